//! What is known of the ways to the far ends of tunnels: the most bytes of an outer packet that get
//! there, where an error has told that these are fewer than the first link takes.
//!
//! Workers tell only what they have proved (`core/director/src/vxlan/narrow.rs`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long it is believed after the last error (RFC 1191 6.3, RFC 8201 4).
const BELIEVED: Duration = Duration::from_mins(10);
/// The most remotes that are remembered.
const MOST: usize = 4096;

/// Path MTUs by remotes, each with the time of its last error.
#[derive(Debug, Default)]
pub(crate) struct PathMtus(HashMap<IpAddr, (u16, Instant)>);

impl PathMtus {
    /// Believes an error. Whether that changes anything. An error never makes a path's MTU larger:
    /// that is for time to tell.
    pub fn learn(&mut self, remote: IpAddr, told: u16, now: Instant) -> bool {
        let known = self.0.get(&remote).copied().filter(|(_, at)| is_fresh(*at, now));
        if known.is_none() && self.0.len() >= MOST {
            return false;
        }
        let mtu = known.map_or(told, |(known, _)| known.min(told));
        self.0.insert(remote, (mtu, now));
        known.is_none_or(|(known, _)| known != mtu)
    }

    /// Forgets what is no longer believed. Whether that was anything.
    pub fn forget(&mut self, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|_, (_, at)| is_fresh(*at, now));
        self.0.len() != before
    }

    /// What gets to a remote, of what the first link takes.
    pub fn limit(&self, remote: IpAddr, link: u16) -> u16 {
        self.0.get(&remote).map_or(link, |(mtu, _)| link.min(*mtu))
    }
}

fn is_fresh(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < BELIEVED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u32) -> IpAddr {
        IpAddr::from((0xc000_0200 + last).to_be_bytes())
    }

    #[test]
    fn errors_make_it_smaller_and_time_makes_it_large_again() {
        let (mut mtus, start) = (PathMtus::default(), Instant::now());
        let later = |minutes| start + Duration::from_mins(minutes);
        assert_eq!(mtus.limit(at(1), 1500), 1500);
        assert!(mtus.learn(at(1), 1400, start));
        assert!(!mtus.learn(at(1), 1450, start), "never larger");
        assert_eq!((mtus.limit(at(1), 1500), mtus.limit(at(2), 1500)), (1400, 1500));
        assert_eq!(mtus.limit(at(1), 1300), 1300, "the link itself takes less");
        assert!(!mtus.learn(at(1), 1400, later(9)), "the same");
        assert!(!mtus.forget(later(18)), "the last error counts");
        assert!(mtus.learn(at(1), 1350, later(18)));
        assert!(mtus.forget(later(28)));
        assert_eq!(mtus.limit(at(1), 1500), 1500);
        assert!(!mtus.forget(later(40)));
    }

    #[test]
    fn it_has_a_limit() {
        let (mut mtus, now) = (PathMtus::default(), Instant::now());
        for last in 0..MOST as u32 {
            assert!(mtus.learn(at(last), 1400, now));
        }
        assert!(!mtus.learn(at(u32::MAX >> 8), 1400, now));
        assert!(mtus.learn(at(7), 1300, now), "what is known goes on");
    }
}
