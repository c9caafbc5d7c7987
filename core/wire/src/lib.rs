//! Wire formats, one file each: where the fields are, what their values mean, what a valid header
//! looks like. Readers take byte slices and never trust a length they have not checked.
//!
//! Fields are read by offset from a header that the caller has bounds-checked once as a fixed-size
//! array, so that a field read costs a load and no check.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod ethernet;
pub mod icmp;
pub mod ipv4;
pub mod tcp;
pub mod udp;

/// The big-endian 16-bit value at `at`; `at + 2` must be within `N`, which the compiler checks
/// away when `at` is a constant.
#[inline(always)]
const fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The big-endian 32-bit value at `at`; see [`be16`].
#[inline(always)]
const fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
