//! Places of connections over the network: who gets one, and who loses one for another.
//!
//! Anybody who reaches the address may connect, so connections that have shown no valid token yet
//! are worth little: a peer has few of them at a time, and of all peers the one with most loses its
//! oldest when there is no place left. Those that have shown one keep theirs.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;
use tracing::debug;

/// Connections at a time.
pub(crate) const PLACES: usize = 256;
/// Connections of one peer that have shown no token.
pub(crate) const UNKNOWN_OF_A_PEER: usize = 32;

/// A connection that has a place.
#[derive(Debug)]
struct Taken {
    number: u64,
    peer: IpAddr,
    known: Arc<AtomicBool>,
    task: Option<AbortHandle>,
}

impl Taken {
    fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }
}

/// All places, the oldest connection first.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Mutex<(u64, Vec<Taken>)>,
}

/// The place of one connection; free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    known: Arc<AtomicBool>,
}

impl Place {
    /// Set once the connection has shown a valid token.
    pub(crate) fn known(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.known)
    }

    /// The task that ends when the place is given to another.
    pub(crate) fn is_of(places: &Places, number: u64, task: AbortHandle) {
        let mut taken = places.lock();
        match taken.1.iter_mut().find(|it| it.number == number) {
            Some(it) => it.task = Some(task),
            None => task.abort(),
        }
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().1.retain(|it| it.number != self.number);
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, (u64, Vec<Taken>)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody is connected.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().1.is_empty()
    }

    /// A place for a peer, if need be another's. `None` when all are of those that are known.
    pub(crate) fn admit(places: &Arc<Self>, peer: SocketAddr) -> Option<Place> {
        let peer = site(peer.ip());
        let mut taken = places.lock();
        let of_peer = |peer: IpAddr| move |it: &&Taken| !it.is_known() && it.peer == peer;
        if taken.1.iter().filter(of_peer(peer)).count() >= UNKNOWN_OF_A_PEER {
            taken.1.evict(peer);
        }
        if taken.1.len() >= PLACES {
            let held = |peer: IpAddr| taken.1.iter().filter(of_peer(peer)).count();
            let unknown = taken.1.iter().filter(|it| !it.is_known()).map(|it| it.peer);
            let most = unknown.max_by_key(|peer| held(*peer))?;
            taken.1.evict(most);
        }
        taken.0 += 1;
        let (number, known) = (taken.0, Arc::new(AtomicBool::new(false)));
        taken.1.push(Taken { number, peer, known: Arc::clone(&known), task: None });
        Some(Place { places: Arc::clone(places), number, known })
    }
}

trait Evict {
    /// Takes the place of a peer's oldest connection that has shown no token.
    fn evict(&mut self, peer: IpAddr);
}

impl Evict for Vec<Taken> {
    fn evict(&mut self, peer: IpAddr) {
        let Some(at) = self.iter().position(|it| !it.is_known() && it.peer == peer) else { return };
        debug!(%peer, "a connection without a token made way for another");
        if let Some(task) = self.remove(at).task {
            task.abort();
        }
    }
}

/// Who a peer is: of IPv6 its network of 64 bits, all of which one machine has.
fn site(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) & !u128::from(u64::MAX)).into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u32, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4((0xc000_0200 + number).into()), port)
    }

    fn held(places: &Places, number: u32) -> usize {
        let ip = peer(number, 0).ip();
        places.lock().1.iter().filter(|it| it.peer == ip).count()
    }

    #[test]
    fn a_peer_without_a_token_has_few_places_and_the_newest() {
        let places = Arc::new(Places::default());
        let mut all = Vec::new();
        for port in 0..4000 {
            all.push(Places::admit(&places, peer(1, port)).expect("a place"));
            assert!(held(&places, 1) <= UNKNOWN_OF_A_PEER);
        }
        let other = Places::admit(&places, peer(2, 1)).expect("a place");
        assert_eq!(held(&places, 2), 1);
        drop((all, other));
        assert!(places.is_empty());
    }

    #[test]
    fn who_has_shown_a_token_keeps_the_place() {
        let places = Arc::new(Places::default());
        let known: Vec<_> = (0..100)
            .map(|port| {
                let place = Places::admit(&places, peer(1, port)).expect("a place");
                place.known().store(true, Ordering::Relaxed);
                place
            })
            .collect();
        let lone = Places::admit(&places, peer(2, 1)).expect("a place");
        let mut crowd = Vec::new();
        for number in 3..100 {
            for port in 0..40 {
                crowd.push(Places::admit(&places, peer(number, port)).expect("a place"));
            }
            assert!(places.lock().1.len() <= PLACES);
        }
        assert_eq!(held(&places, 1), known.len(), "who is known was put out");
        // Those with more lose theirs first, as long as there are any.
        assert!((3..100).all(|number| held(&places, number) <= UNKNOWN_OF_A_PEER));
        for place in &crowd {
            place.known().store(true, Ordering::Relaxed);
        }
        lone.known().store(true, Ordering::Relaxed);
        assert!(Places::admit(&places, peer(200, 1)).is_none(), "somebody known was put out");
        drop(crowd);
        assert!(Places::admit(&places, peer(200, 1)).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let at = |text: &str| site(text.parse().expect("an address"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1:2:3"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    }
}
