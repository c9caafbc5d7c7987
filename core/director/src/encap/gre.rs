//! GRE: four bytes that say what is inside, with a checksum and a key if they are asked for.

use super::{Patch, Shim};
use crate::spec::TunnelOptions;
use sluice_wire::ethernet;
use sluice_wire::gre::{self, Header};

/// The shim.
pub(super) fn shim(options: TunnelOptions) -> Shim {
    let (bytes, length) = gre::template(options.checksum.unwrap_or(false), options.key);
    let name = Some((gre::NAME as u8, [ethernet::IPV4, ethernet::IPV6]));
    Shim { bytes, length, patch: Patch { name, source_port: false }, protocol: Some(gre::PROTOCOL) }
}

/// Whether a quoted packet may be one with this shim: flags and key are the same, as far as they
/// are quoted.
pub(super) fn may_be(shim: &[u8], quoted: &[u8]) -> bool {
    let Some(start) = quoted.first_chunk::<{ gre::HEADER }>() else { return false };
    let key = |header: &[u8]| Header::parse(header).map(|header| header.key());
    let inside =
        matches!(u16::from_be_bytes([start[2], start[3]]), ethernet::IPV4 | ethernet::IPV6);
    inside && start[..2] == shim[..2] && key(quoted).is_none_or(|sent| Some(sent) == key(shim))
}
