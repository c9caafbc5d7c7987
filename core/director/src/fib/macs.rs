//! The link-layer addresses that a port takes frames for.
//!
//! A switch that floods, or a promiscuous port, brings frames that are for somebody else: another
//! director with the same services would forward them too (RFC 1812 3.3.5 asks a router not to).
//! Where nothing is known of a port's addresses, it takes what is to any single receiver.

use super::PortId;
use sluice_wire::ethernet::{self, Mac};

/// How many addresses of a port are told apart: its own and those of interfaces stacked on it, as
/// VRRP's are. A port with more takes what is to any single receiver.
pub const MOST: usize = 8;

/// The addresses of a port; none when nothing is known of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnMacs {
    words: [[u32; 2]; MOST],
    count: u8,
}

impl OwnMacs {
    /// Nothing is known.
    pub(crate) const ANY: Self = Self { words: [[0; 2]; MOST], count: 0 };

    /// Those of one port.
    pub(super) fn of(port: PortId, all: &[(PortId, Mac)]) -> Self {
        let mut own = Self::ANY;
        for (_, mac) in all.iter().filter(|(of, _)| *of == port) {
            let new = words(mac);
            if own.words().contains(&new) {
                continue;
            }
            let Some(place) = own.words.get_mut(usize::from(own.count)) else { return Self::ANY };
            *place = new;
            own.count += 1;
        }
        own
    }

    /// Each of them.
    pub(super) fn all(&self) -> Vec<Mac> {
        let mac = |[front, back]: &[u32; 2]| {
            let (front, back) = (front.to_ne_bytes(), back.to_ne_bytes());
            [front[0], front[1], front[2], front[3], back[2], back[3]]
        };
        self.words().iter().map(mac).collect()
    }

    /// The first four bytes of each and the last four, as they lie in memory.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[[u32; 2]] {
        self.words.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// Whether frames that begin with these eight bytes are all to the first of them, as most are.
    /// One comparison for all, since one each would be seen in the rate.
    #[inline(always)]
    pub(crate) fn take_all<const N: usize>(&self, frames: [&[u8; N]; 8]) -> bool {
        let Some([front, back]) = self.words().first() else { return false };
        let first = u64::from(*front) | u64::from(*back >> 16) << 32;
        let differs = frames.iter().fold(0, |differs, frame| {
            let head = frame.first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
            differs | head ^ first
        });
        differs << 16 == 0
    }

    /// Whether a frame is to one of them, or to any single receiver when none is known.
    #[inline(always)]
    pub(crate) fn take(&self, frame: &[u8]) -> bool {
        let Some(to) = frame.first_chunk::<6>() else { return false };
        if self.count == 0 {
            return to[0] & 1 == 0;
        }
        let to = words(to);
        self.words().contains(&to)
    }

    /// Whether a frame carries IP for a single receiver that is another one.
    #[cold]
    pub(crate) fn refuse(&self, frame: &[u8]) -> bool {
        let is_ip = || {
            let payload = ethernet::payload(frame);
            payload.is_some_and(|p| matches!(p.ethertype, ethernet::IPV4 | ethernet::IPV6))
        };
        !self.take(frame) && !ethernet::is_group(frame) && is_ip()
    }
}

/// The first four bytes of an address and the last four.
#[inline(always)]
const fn words(mac: &Mac) -> [u32; 2] {
    let [a, b, c, d, e, f] = *mac;
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([c, d, e, f])]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(to: Mac, ethertype: u16) -> Vec<u8> {
        [&to[..], &[2; 6], &ethertype.to_be_bytes()].concat()
    }

    #[test]
    fn a_port_takes_what_is_to_its_own_addresses() {
        let (own, vrrp) = ([2, 0, 0, 0, 0, 1], [0, 0, 0x5e, 0, 1, 51]);
        let all = [(PortId(0), own), (PortId(1), [2, 0, 0, 0, 0, 9]), (PortId(0), vrrp)];
        let macs = OwnMacs::of(PortId(0), &all);
        for to in [own, vrrp] {
            assert!(macs.take(&frame(to, ethernet::IPV4)));
        }
        for other in [[2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 2], [0, 0, 0x5e, 0, 1, 52]] {
            assert!(macs.refuse(&frame(other, ethernet::IPV4)));
            assert!(macs.refuse(&frame(other, ethernet::IPV6)));
            assert!(!macs.refuse(&frame(other, ethernet::ARP)), "the kernel's");
            assert!(!OwnMacs::ANY.refuse(&frame(other, ethernet::IPV4)));
            assert!(OwnMacs::ANY.take(&frame(other, ethernet::IPV4)));
        }
        let group = frame([0xff; 6], ethernet::IPV4);
        assert!(!macs.take(&group) && !macs.refuse(&group) && !OwnMacs::ANY.take(&group));
        assert!(!macs.take(&own[..5]) && !macs.refuse(&own[..5]));
    }

    #[test]
    fn one_with_too_many_takes_any() {
        let all: Vec<_> = (0..=MOST as u8).map(|n| (PortId(0), [2, 0, 0, 0, 0, n])).collect();
        assert_eq!(OwnMacs::of(PortId(0), &all[1..]).words().len(), MOST);
        assert_eq!(OwnMacs::of(PortId(0), &all), OwnMacs::ANY);
        let twice = [all[0], all[0]];
        assert_eq!(OwnMacs::of(PortId(0), &twice).words().len(), 1);
    }
}
