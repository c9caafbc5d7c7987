//! Asking the processor for a cache line before it is needed.
//!
//! A random line from DRAM takes about 150 ns alone and about 10 ns when 32 are asked for
//! together, so every stage of the packet path prefetches for the one after it.

/// Asks for the line that holds the start of `value`, for reading and soon.
#[inline(always)]
pub fn read<T: ?Sized>(value: &T) {
    ask(core::ptr::from_ref(value).cast());
}

/// The same of a slice's element, whether there is one at this place or not.
#[inline(always)]
pub fn element<T>(slice: &[T], at: usize) {
    ask(slice.as_ptr().wrapping_add(at).cast());
}

/// Asks for a line; never faults, whatever is there.
#[inline(always)]
fn ask(pointer: *const i8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHT0 does not access memory architecturally and never faults; SSE is part of
    // the x86-64 baseline.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(pointer);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is a hint; it does not access memory architecturally and never faults.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) pointer,
                         options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = pointer;
}
