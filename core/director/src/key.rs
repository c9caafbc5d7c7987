//! The endpoints of a packet in network byte order: what the plain path compares, chooses and
//! writes as it is, without turning bytes around.

/// The endpoints and protocol of a packet, as its bytes lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Key<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// Source port, then destination port.
    pub ports: u32,
    /// IP protocol number.
    pub protocol: u8,
}

impl<A: Copy> Key<A> {
    /// That of what answers a packet with this one.
    #[inline(always)]
    #[must_use]
    pub const fn reversed(&self) -> Self {
        Self { src: self.dst, dst: self.src, ports: swapped(self.ports), protocol: self.protocol }
    }
}

/// Two ports as they lie in a header.
#[inline(always)]
pub(crate) const fn ports(source: u16, destination: u16) -> u32 {
    // One load where both lie beside each other, and two instructions.
    both(source, destination).swap_bytes().rotate_left(16).to_le()
}

/// Source and destination port in host byte order.
#[inline(always)]
pub(crate) const fn split(ports: u32) -> (u16, u16) {
    let both = u32::from_le(ports).rotate_left(16).swap_bytes();
    (both as u16, (both >> 16) as u16)
}

/// The ports of what answers.
#[inline(always)]
pub(crate) const fn swapped(ports: u32) -> u32 {
    ports.rotate_left(16)
}

#[inline(always)]
const fn both(low: u16, high: u16) -> u32 {
    low as u32 | (high as u32) << 16
}

/// Two ports in network byte order, beside each other.
#[inline(always)]
pub(crate) const fn pair(source: u16, destination: u16) -> u32 {
    if cfg!(target_endian = "little") {
        both(source, destination)
    } else {
        both(destination, source)
    }
}

/// The first and the second of two ports, in network byte order.
#[inline(always)]
pub(crate) const fn halves(ports: u32) -> (u16, u16) {
    let little = cfg!(target_endian = "little");
    let (low, high) = (ports as u16, (ports >> 16) as u16);
    if little { (low, high) } else { (high, low) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ports_lie_as_in_a_header(source in any::<u16>(), destination in any::<u16>()) {
            let [a, b, c, d] = ports(source, destination).to_ne_bytes();
            prop_assert_eq!(u16::from_be_bytes([a, b]), source);
            prop_assert_eq!(u16::from_be_bytes([c, d]), destination);
            prop_assert_eq!(split(ports(source, destination)), (source, destination));
            let turned = swapped(ports(source, destination));
            prop_assert_eq!(turned, ports(destination, source));
            let (first, second) = halves(ports(source, destination));
            prop_assert_eq!((first, second), (source.to_be(), destination.to_be()));
            prop_assert_eq!(pair(first, second), ports(source, destination));
        }
    }
}
