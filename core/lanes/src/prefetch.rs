//! Asking the processor for a cache line before it is needed.
//!
//! A random line from DRAM takes about 150 ns alone and about 10 ns when 32 are asked for
//! together, so every stage of the packet path prefetches for the one after it.

/// Asks for the line that holds the start of `value`, for reading and soon.
#[inline(always)]
pub fn read<T: ?Sized>(value: &T) {
    at(core::ptr::from_ref(value).cast());
}

/// The same of a slice's element, whether there is one at this place or not.
#[inline(always)]
pub fn element<T>(slice: &[T], at: usize) {
    self::at(slice.as_ptr().wrapping_add(at).cast());
}

/// Asks for the line of an address, for reading. It never faults, whatever is there.
#[inline(always)]
pub fn at(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHT0 does not access memory architecturally and never faults; SSE is part of
    // the x86-64 baseline.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is a hint; it does not access memory architecturally and never faults.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address,
                         options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Asks for the line of an address for writing, so that another core that has it lets go of it
/// ahead of the write. It never faults, whatever is there.
///
/// In assembly: the compiler makes a prefetch for reading of its hint for writing unless the
/// whole program may use PREFETCHW, and the write then has to ask the other core again. Processors
/// without the instruction take it for none (Intel SDM, volume 2, PREFETCHW).
#[inline(always)]
pub fn to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHW does not access memory architecturally and never faults.
    unsafe {
        core::arch::asm!("prefetchw [{0}]", in(reg) address,
                         options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as in `at`.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{0}]", in(reg) address,
                         options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
