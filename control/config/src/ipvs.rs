//! `[ipvs]` as typed data: what programs that know IPVS set for the director as a whole.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::errors::{Fault, quoted};
use crate::words::Word;
use crate::{Mode, Timeouts};

/// `[ipvs]`: timeouts in place of those of `[timeouts]`; 0 for what these say. Marks and daemons
/// are shown from what the state holds: the director makes nothing of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ipvs {
    /// TCP, established, in seconds.
    pub tcp_s: u32,
    /// TCP, after the client's FIN, in seconds.
    pub tcp_fin_s: u32,
    /// UDP, in seconds.
    pub udp_s: u32,
    /// Firewall marks, each with whether it is IPv6's.
    pub marks: Vec<(u32, bool)>,
    /// Daemons: whether each is the one that sends.
    pub daemons: Vec<bool>,
}

impl Ipvs {
    /// What holds, where the file's section says `timeouts`.
    pub fn onto(&self, mut timeouts: Timeouts) -> Timeouts {
        for (said, held) in [
            (self.tcp_s, &mut timeouts.tcp_established_s),
            (self.tcp_fin_s, &mut timeouts.tcp_fin_wait_s),
            (self.udp_s, &mut timeouts.udp_s),
        ] {
            if said != 0 {
                *held = said;
            }
        }
        timeouts
    }
}

/// A real server of a service by a firewall mark: `192.0.2.11:80 nat 1`, and with limits
/// `192.0.2.11:80 nat 1 100 50`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkDestination {
    /// Address and port; port 0 for that of the packet.
    pub at: SocketAddr,
    /// How packets would reach it.
    pub mode: Mode,
    /// Its weight.
    pub weight: u16,
    /// Sessions from which on it would be full; 0 for no limit.
    pub upper: u32,
    /// Sessions below which it would not be full any more.
    pub lower: u32,
}

impl FromStr for MarkDestination {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let mut words = text.split_whitespace();
        let mut next = || words.next();
        let parsed = (|| {
            let at = next()?.parse().ok()?;
            let mode = next()?;
            let mode = Mode::ALL.iter().find(|(word, _)| *word == mode)?.1;
            let weight = next()?.parse().ok()?;
            let (upper, lower) = match next() {
                Some(upper) => (upper.parse().ok()?, next()?.parse().ok()?),
                None => (0, 0),
            };
            next().is_none().then_some(Self { at, mode, weight, upper, lower })
        })();
        parsed.filter(|it| it.lower <= it.upper).ok_or_else(|| {
            let hint = "use address and port, mode, weight, and the upper and lower number of \
                        sessions if there are any: \"192.0.2.11:80 nat 1\"";
            Fault::new(format!("{} is no destination", quoted(text)), hint)
        })
    }
}

impl fmt::Display for MarkDestination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, mode, weight, upper, lower } = self;
        write!(out, "{at} {} {weight}", mode.name())?;
        if *upper != 0 { write!(out, " {upper} {lower}") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_read_as_it_is_written() {
        for text in
            ["192.0.2.11:80 nat 1", "[2001:db8::1]:0 ipip 0", "192.0.2.11:80 fnat 65535 100 50"]
        {
            let read: MarkDestination = text.parse().expect(text);
            assert_eq!(read.to_string(), text);
        }
        for text in [
            "",
            "192.0.2.11 nat 1",
            "192.0.2.11:80 snat 1",
            "192.0.2.11:80 nat",
            "192.0.2.11:80 nat 65536",
            "192.0.2.11:80 nat 1 5",
            "192.0.2.11:80 nat 1 5 6",
            "192.0.2.11:80 nat 1 6 5 4",
        ] {
            assert!(text.parse::<MarkDestination>().is_err(), "{text}");
        }
    }
}
