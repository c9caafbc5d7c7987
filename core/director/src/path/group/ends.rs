//! Addresses of eight packets side by side: a word of IPv4's, four of IPv6's.

use super::{NOTHING, halves};
use sluice_lanes::level::{Instructions, Lanes};
use sluice_lanes::words::Words;

/// Sixteen bytes of each lane.
pub(in crate::path) type Rows<'a> = Lanes<&'a [u8; 16]>;

/// No rows.
pub(in crate::path) const NO_ROWS: Rows<'static> = [NOTHING; sluice_lanes::level::LANES];

/// An address of each of eight packets, in network byte order unless it says otherwise.
pub(in crate::path) trait Ends<I: Instructions>: Copy {
    /// Of each lane `yes` where `truth` is, `no` where it is not.
    fn pick(truth: Words<I>, yes: Self, no: Self) -> Self;
    /// Whether each equals the other.
    fn is(self, other: Self) -> Words<I>;
    /// Whether each is all zero.
    fn is_none(self) -> Words<I>;
    /// The sums of the 16-bit halves of each.
    fn sum(self) -> Words<I>;
    /// Addresses in the host's byte order in the network's.
    fn to_wire(self) -> Self;
    /// The last word of each.
    fn last(self) -> Words<I>;
    /// Whether each stands for an address of IPv4, which that of an IPv6 packet is not.
    fn is_mapped(self, _: I) -> Words<I>;
}

impl<I: Instructions> Ends<I> for Words<I> {
    #[inline(always)]
    fn pick(truth: Words<I>, yes: Self, no: Self) -> Self {
        truth.pick(yes, no)
    }

    #[inline(always)]
    fn is(self, other: Self) -> Words<I> {
        Words::is(self, other)
    }

    #[inline(always)]
    fn is_none(self) -> Words<I> {
        self.is_word(0)
    }

    #[inline(always)]
    fn sum(self) -> Words<I> {
        halves(self)
    }

    #[inline(always)]
    fn to_wire(self) -> Self {
        self.swap_bytes()
    }

    #[inline(always)]
    fn last(self) -> Self {
        self
    }

    /// They are all IPv4's.
    #[inline(always)]
    fn is_mapped(self, instructions: I) -> Words<I> {
        Words::splat(instructions, 0)
    }
}

impl<I: Instructions> Ends<I> for [Words<I>; 4] {
    #[inline(always)]
    fn pick(truth: Words<I>, yes: Self, no: Self) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (yes, no);
        [truth.pick(a, e), truth.pick(b, f), truth.pick(c, g), truth.pick(d, h)]
    }

    #[inline(always)]
    fn is(self, other: Self) -> Words<I> {
        let ([a, b, c, d], [e, f, g, h]) = (self, other);
        ((a ^ e) | (b ^ f) | (c ^ g) | (d ^ h)).is_word(0)
    }

    #[inline(always)]
    fn is_none(self) -> Words<I> {
        let [a, b, c, d] = self;
        (a | b | c | d).is_word(0)
    }

    #[inline(always)]
    fn sum(self) -> Words<I> {
        let [a, b, c, d] = self;
        halves(a) + halves(b) + halves(c) + halves(d)
    }

    #[inline(always)]
    fn to_wire(self) -> Self {
        let [a, b, c, d] = self;
        [d.swap_bytes(), c.swap_bytes(), b.swap_bytes(), a.swap_bytes()]
    }

    #[inline(always)]
    fn last(self) -> Words<I> {
        self[3]
    }

    #[inline(always)]
    fn is_mapped(self, _: I) -> Words<I> {
        const PREFIX: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
        let [a, b, c, _] = self;
        (a | b | (c ^ PREFIX)).is_word(0)
    }
}
