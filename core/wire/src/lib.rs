//! Wire formats, one file each: where the fields are, what their values mean, what a valid header
//! looks like. Readers take byte slices and never trust a length they have not checked.
//!
//! Fields are read by offset from a header that the caller has bounds-checked once as a fixed-size
//! array, so that a field read costs a load and no check.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod ethernet;
pub mod fragment;
pub mod gre;
pub mod gue;
pub mod icmp;
pub mod ipip;
pub mod ipv4;
pub mod ipv6;
pub mod offload;
pub mod proxy_protocol;
pub mod sctp;
pub mod shim;
pub mod tcp;
pub mod tcp_options;
pub mod translate;
pub mod udp;
pub mod vxlan;

/// Why an IP header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The frame ends within the header, its options or its extension headers.
    Truncated,
    /// The version is another, the IPv4 header length is under 20 bytes, or an IPv6 extension
    /// header is where it may not be.
    BadHeader,
    /// The length that the header gives is under its own or beyond the frame's end.
    BadLength,
}

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
