//! Small kernels that use what the processor has, each beside a scalar twin that says what it
//! does, with a differential test between them.
//!
//! Unsafe is allowed here for the intrinsics; every public function is safe, except [`copy::copy`],
//! which copies between memory that a peer may write and has no references to it.

pub mod at;
pub mod copy;
pub mod level;
pub mod part;
pub mod prefetch;
pub mod tags;
pub mod words;
