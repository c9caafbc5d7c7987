//! GUE: a UDP header, whose source port the flow chooses, and four bytes that say what is inside.

use super::{Patch, Shim};
use crate::spec::TunnelOptions;
use sluice_wire::gue::{self, Header};
use sluice_wire::{ipv4, udp};

/// The shim, with a checksum of the outer datagram if that is asked for.
pub(super) fn shim(options: TunnelOptions) -> Shim {
    let port = options.port.unwrap_or(gue::PORT);
    let patch = Patch {
        name: Some((gue::NAME as u8, [ipv4::IPV4 as u16, ipv4::IPV6 as u16])),
        source_port: true,
    };
    Shim {
        bytes: gue::template(port, options.checksum.unwrap_or(false)),
        length: gue::LEN,
        patch,
        protocol: Some(ipv4::UDP),
    }
}

/// Whether a quoted datagram may be one with this shim: it went to its port, and what is quoted of
/// its GUE header is as it is sent.
pub(super) fn may_be(shim: &[u8], quoted: &[u8]) -> bool {
    let Some(udp) = quoted.first_chunk::<{ udp::HEADER }>() else { return false };
    let quoted = &quoted[udp::HEADER..];
    let header = Header::parse(quoted);
    let fits = header.is_some_and(|header| matches!(header.protocol(), ipv4::IPV4 | ipv4::IPV6));
    udp[2..4] == shim[2..4] && (fits || quoted.len() < gue::HEADER)
}

/// Whether a quoted datagram has a checksum if this shim has one, and none if it has none.
pub(super) fn has_like_checksum(shim: &[u8], quoted: &[u8]) -> bool {
    let is_none = |header: &[u8]| header.get(6..udp::HEADER) == Some(&[0, 0]);
    is_none(shim) == is_none(quoted)
}
