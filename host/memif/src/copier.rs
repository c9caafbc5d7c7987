//! Who copies frames when the processor does not: an engine that is told to, and asked later.

use std::fmt::Debug;

/// One copy, of bytes that do not overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Where the bytes are.
    pub from: *const u8,
    /// Where they are to be.
    pub to: *mut u8,
    /// How many.
    pub length: u32,
}

// SAFETY: addresses; what they may be used for is said where a job is begun.
unsafe impl Send for Job {}

/// A queue of copies, each begun once and over later, in the order in which they were begun.
///
/// # Safety
/// Whoever implements it says of no copy that it is over while memory of it may still be read or
/// written, and touches no memory but that of copies that were begun.
pub unsafe trait Copier: Send + Debug {
    /// Begins copies, from the front, as many as there is room for; gives how many.
    ///
    /// # Safety
    /// Until a copy is over its source may be read and its destination written, and nobody else in
    /// this process does so. (Another process may write the source meanwhile: the copy has then
    /// bytes from before or after.)
    unsafe fn begin(&mut self, jobs: &[Job]) -> usize;

    /// Appends, for each copy that is over and was not told yet, whether it was done. One that was
    /// not may have written any part of its destination.
    fn over(&mut self, results: &mut Vec<bool>);
}
