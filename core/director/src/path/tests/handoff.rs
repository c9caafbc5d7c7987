//! Packets for local ports of other workers, found with the rest of a burst and before it.

use super::lab::{BACK, Lab, MemFrame, with_ipv6};
use super::modes::{datagram, ip};
use crate::frame::Frame;
use crate::path::{BURST, Level, Marked, Unprobed, Verdict};
use crate::spec::{LocalPool, Spec};
use arrayvec::ArrayVec;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

const WORKER: u16 = 1;
const WORKERS: u16 = 3;

/// Addresses of two pools with ports of their own, of a service, and of nobody.
const ADDRESSES: [&str; 9] = [
    "192.0.2.10",
    "198.51.100.9",
    "192.0.2.9",
    "198.51.100.200",
    "203.0.113.1",
    "2001:db8:2::10",
    "2001:db8:1::9",
    "2001:db8:1::200",
    "2001:db8:3::9",
];

fn with_two_pools(spec: &mut Spec) {
    with_ipv6(spec);
    // One of them ends in zeros, as nothing does.
    let addresses = vec![ip("198.51.100.9"), ip("2001:db8:1::9"), ip("2001:db8:9::")];
    spec.pools.push(LocalPool {
        network: String::new(),
        name: "wan".into(),
        addresses,
        ports: 20_000..=50_000,
        peer_addresses: Vec::new(),
    });
}

/// One pool, whose addresses of IPv4 are a range.
fn with_a_range(spec: &mut Spec) {
    with_ipv6(spec);
    spec.pools[0].addresses.push(ip("192.0.2.9"));
}

/// A packet to one of the addresses, and a byte of it that is changed.
#[derive(Clone, Debug)]
struct Misdirected {
    to: usize,
    port: u16,
    changed: Option<(usize, u8)>,
}

impl Misdirected {
    fn frame(&self) -> MemFrame {
        let to = ip(ADDRESSES[self.to]);
        let from = if to.is_ipv6() { "2001:db8:2::11" } else { "192.0.2.11" };
        let ends = (SocketAddr::new(ip(from), 53), SocketAddr::new(to, self.port));
        let mut frame = datagram(ends.0, ends.1);
        if let Some((at, value)) = self.changed {
            let bytes = frame.bytes_mut();
            let at = at % bytes.len();
            bytes[at] = value;
        }
        frame
    }

    /// The other worker that it is for, as long as no byte is changed.
    fn owner(&self, lab: &Lab) -> Option<u16> {
        let address: IpAddr = ip(ADDRESSES[self.to]);
        let local = lab.plan.locals.iter().position(|local| *local == address)?;
        let has = |ids: &[crate::plan::LocalId]| ids.iter().any(|id| usize::from(id.0) == local);
        let mut pools = lab.plan.pools.iter();
        let pool = pools.find(|pool| pool.locals.iter().any(|ids| has(ids)))?;
        pool.owner(self.port, WORKERS).filter(|owner| *owner != WORKER)
    }
}

fn any_misdirected() -> impl Strategy<Value = Misdirected> {
    let port = prop_oneof![
        4 => any::<u16>(),
        1 => prop_oneof![22_525u16..22_531, 44_020u16..44_030],
        1 => prop_oneof![29_995u16..30_005, 39_995u16..40_005],
    ];
    let changed = proptest::option::weighted(0.3, (0usize..70, any::<u8>()));
    (0..ADDRESSES.len(), port, changed).prop_map(|(to, port, changed)| Misdirected {
        to,
        port,
        changed,
    })
}

proptest! {
    /// Taken is what a turn would hand over as well, to whom and as it would; what is not taken
    /// gets the verdict that it would have got among the others.
    #[test]
    fn strays_are_those_that_a_turn_hands_over(
        mut misdirected in proptest::collection::vec(any_misdirected(), 1..=BURST),
        alike in any::<bool>(),
        range in any::<bool>(),
        level in prop_oneof![Just(Level::detect()), Just(Level::BASELINE)],
    ) {
        let pools = if range { with_a_range } else { with_two_pools };
        let lab = || Lab::with(pools, 1000, (WORKER, WORKERS)).at_level(level);
        if alike {
            let six = |packet: &Misdirected| packet.to >= 5;
            let first = six(&misdirected[0]);
            misdirected.retain(|packet| six(packet) == first);
        }
        // What comes together is alike, the first says how.
        let all = alike && misdirected[0].changed.is_none();
        let (mut whole, mut parted) = (lab(), lab());
        let mut frames: Vec<_> = misdirected.iter().map(Misdirected::frame).collect();
        let verdicts = whole.burst(BACK, &mut frames);
        let mut burst: ArrayVec<_, BURST> = misdirected.iter().map(Misdirected::frame).collect();
        let mut given = Vec::new();
        let give = |owners: &[u16], round, frames: &mut Marked<'_, _>| {
            given.extend(owners.iter().zip(frames).map(|(owner, frame)| (*owner, round, frame)));
        };
        let count = parted.path.take_misdirected(&parted.plan, &mut burst, give, &mut Unprobed);
        prop_assert_eq!(given.len(), count);
        prop_assert_eq!(parted.path.counters().handed_off, count as u64);
        let mut stayed = burst.clone().into_iter();
        let mut given = given.into_iter().peekable();
        let mut left = Vec::new();
        for (lane, packet) in misdirected.iter().enumerate() {
            let handed = Verdict::HandOff(packet.owner(&whole).unwrap_or(WORKER));
            if packet.changed.is_none() {
                let expected = packet.owner(&whole).is_some();
                prop_assert_eq!(verdicts[lane] == handed, expected, "{:?}", packet);
                let hands = matches!(verdicts[lane], Verdict::HandOff(_));
                prop_assert_eq!(hands, expected, "{:?}", packet);
            }
            let frame = packet.frame();
            if given.peek().is_some_and(|(.., other)| *other == frame)
                && stayed.as_slice().first() != Some(&frame)
            {
                let (owner, round, _) = given.next().unwrap();
                prop_assert_eq!(round, whole.path.round(lane));
                // Who gets it finds what is wrong with it.
                let bad = matches!(verdicts[lane], Verdict::Drop(_) | Verdict::Kernel(_));
                let same = verdicts[lane] == Verdict::HandOff(owner);
                prop_assert!(same || bad && packet.changed.is_some(), "{:?}", packet);
            } else {
                prop_assert_eq!(stayed.next(), Some(frame), "order");
                let missed = matches!(verdicts[lane], Verdict::HandOff(_));
                prop_assert!(!all || packet.changed.is_some() || !missed, "{:?}", packet);
                left.push(verdicts[lane]);
            }
        }
        prop_assert!(given.next().is_none());
        prop_assert_eq!(parted.burst(BACK, &mut burst), left);
    }
}

/// A burst that was handed over as a whole leaves nothing to the next, which may not have been
/// searched.
#[test]
fn the_next_burst_is_looked_at_anew() {
    let mut lab = Lab::with(with_two_pools, 1000, (WORKER, WORKERS));
    let misdirected = (0..=u16::MAX).map(|port| Misdirected { to: 0, port, changed: None });
    let packet = misdirected.into_iter().find(|packet| packet.owner(&lab).is_some()).unwrap();
    let mut burst: ArrayVec<_, BURST> = std::iter::repeat_n(packet.frame(), 8).collect();
    let give = |_: &[u16], _, frames: &mut Marked<'_, _>| frames.for_each(drop);
    assert_eq!(lab.path.take_misdirected(&lab.plan, &mut burst, give, &mut Unprobed), 8);
    let verdict = lab.one(BACK, &mut packet.frame());
    assert_eq!(verdict, Verdict::HandOff(packet.owner(&lab).unwrap()));
}
