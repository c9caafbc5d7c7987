//! How packets to a real server are forwarded: what the plan makes of a mode.
//!
//! The path reads these properties and knows no mode, so that a mode is added here and in no stage.
//! They are bits of one byte, which lies beside a real server's addresses, for the vector path to
//! test eight at a time.

use crate::encap::{Encap, Kind};
use crate::spec::{Mode, TunnelOptions};
use std::net::IpAddr;

/// The properties of a real server's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Forwarding(u8);

impl Forwarding {
    /// A local address and port takes the place of the client's.
    pub(crate) const SOURCE: u32 = 1;
    /// The real server's address and port takes the place of the virtual one.
    pub(crate) const DESTINATION: u32 = 2;
    /// The real server's answers come back through the director.
    pub(crate) const RETURNS: u32 = 4;
    /// Packets get an outer header, as the real server's [`Encap`] says.
    pub(crate) const TUNNEL: u32 = 8;
    /// Each session has a remote endpoint of its own, which the host inside chose.
    const REMOTE: u32 = 16;
    /// The vector path leaves its packets to the general path.
    pub(crate) const GENERAL: u32 = 32;

    /// Those of a mode.
    pub const fn of(mode: Mode) -> Self {
        Self(match mode {
            Mode::Fnat => Self::SOURCE | Self::DESTINATION | Self::RETURNS,
            Mode::Nat => Self::DESTINATION | Self::RETURNS,
            Mode::Dr => 0,
            Mode::Ipip => Self::TUNNEL,
            Mode::Gue | Mode::Gre => Self::TUNNEL | Self::GENERAL,
            Mode::Snat => Self::SOURCE | Self::RETURNS | Self::REMOTE | Self::GENERAL,
        } as u8)
    }

    const fn has(self, properties: u32) -> bool {
        self.0 as u32 & properties == properties
    }

    /// As a word for the vector path.
    #[inline(always)]
    pub(crate) const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Whether the client's address and port are translated to local ones.
    #[inline(always)]
    pub(crate) const fn translates_source(self) -> bool {
        self.has(Self::SOURCE)
    }

    /// Whether the virtual address and port are translated to the real server's.
    #[inline(always)]
    pub(crate) const fn translates_destination(self) -> bool {
        self.has(Self::DESTINATION)
    }

    /// Whether both are: the real server does not see its client.
    #[inline(always)]
    pub(crate) const fn translates_both(self) -> bool {
        self.has(Self::SOURCE | Self::DESTINATION)
    }

    /// Whether only the destination is: the real server answers its client, through the director.
    #[inline(always)]
    pub(crate) const fn answers_client(self) -> bool {
        self.has(Self::DESTINATION) && !self.has(Self::SOURCE)
    }

    /// Whether a real server answers its clients itself, so that the director sees one direction.
    #[inline(always)]
    pub(crate) const fn answers_past(self) -> bool {
        !self.has(Self::RETURNS)
    }

    /// Whether packets go into a tunnel.
    #[inline(always)]
    pub(crate) const fn has_tunnel(self) -> bool {
        self.has(Self::TUNNEL)
    }

    /// Whether each session has a remote endpoint of its own in place of a real server's.
    #[inline(always)]
    pub(crate) const fn has_remote(self) -> bool {
        self.has(Self::REMOTE)
    }
}

/// What is put before packets to a real server in a mode.
pub(crate) fn encap(mode: Mode, options: TunnelOptions, to: IpAddr) -> Option<Encap> {
    let kind = match mode {
        Mode::Ipip => Kind::Ipip,
        Mode::Gue => Kind::Gue,
        Mode::Gre => Kind::Gre,
        Mode::Fnat | Mode::Nat | Mode::Dr | Mode::Snat => return None,
    };
    Some(Encap::new(kind, options, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_its_properties() {
        for (mode, both, only_destination, past, tunnel, remote) in [
            (Mode::Fnat, true, false, false, false, false),
            (Mode::Nat, false, true, false, false, false),
            (Mode::Dr, false, false, true, false, false),
            (Mode::Ipip, false, false, true, true, false),
            (Mode::Gue, false, false, true, true, false),
            (Mode::Gre, false, false, true, true, false),
            (Mode::Snat, false, false, false, false, true),
        ] {
            let is = Forwarding::of(mode);
            assert_eq!(is.translates_both(), both, "{mode:?}");
            assert_eq!(is.answers_client(), only_destination, "{mode:?}");
            assert_eq!(is.answers_past(), past, "{mode:?}");
            assert_eq!(is.has_tunnel(), tunnel, "{mode:?}");
            assert_eq!(is.has_remote(), remote, "{mode:?}");
            assert_eq!(is.translates_source(), both || remote, "{mode:?}");
            assert_eq!(is.translates_destination(), both || only_destination, "{mode:?}");
        }
    }
}
