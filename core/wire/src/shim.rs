//! What a tunnel puts between its outer IP header and the packet inside, finished: lengths and
//! checksums, which cover the packet.
//!
//! The shim's own bytes say what there is to finish, so that whoever cuts a tunnelled frame into
//! segments can do it again without knowing the tunnel.

use crate::{gre, ipv4, udp};

/// Bytes of the longest shim.
pub const MOST: usize = 12;

/// Writes a shim's length, and its checksum if it has one. `protocol` is what the outer header says
/// is behind it; `length` counts the shim and the packet inside; `pseudo` is the sum over the outer
/// pseudo header, and `inside` that of the packet's bytes, read only when they are needed.
pub fn finish(
    protocol: u8,
    shim: &mut [u8],
    length: usize,
    (pseudo, inside): (impl FnOnce() -> u16, impl FnOnce() -> u16),
) -> Option<()> {
    match protocol {
        gre::PROTOCOL => gre::finish(shim, inside),
        ipv4::UDP => udp::finish(shim, length, (pseudo, inside)),
        _ => Some(()),
    }
}
