//! A network of endpoints under a clock of its own.

use crate::record::{Change, Real, Service, Session};
use crate::{Destination, Endpoint, Event, Settings};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

pub(super) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A small PRNG: splitmix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub(super) fn real(number: u8) -> Real {
    Real {
        service: Service::Service {
            network: String::new(),
            protocol: 6,
            vip: Ipv4Addr::new(192, 0, 2, 1).into(),
            first_port: 443,
            last_port: 443,
            extended: false,
        },
        address: Ipv4Addr::new(10, 0, 0, number).into(),
        port: 8443,
        mode: 3,
    }
}

/// The nth session: FNAT over IPv4.
pub(super) fn session(number: u32) -> Session {
    Session {
        change: Change::Live,
        protocol: 6,
        state: 2,
        closing: 0,
        client: IpAddr::V4(Ipv4Addr::from(0xcb00_0000 | number)),
        client_port: 40_000 + (number % 20_000) as u16,
        virtual_port: 443,
        local: Some((Ipv4Addr::new(10, 1, 0, 1).into(), 1024 + (number % 60_000) as u16)),
        far: None,
        idle_ms: 1500,
        fin: 0,
        seen: [7, 9],
        isn: number,
    }
}

/// An endpoint and what its host keeps.
pub(super) struct Node {
    pub(super) end: Endpoint,
    /// What it has yet to give.
    pub(super) feed: VecDeque<u32>,
    /// What it has for those who pull.
    pub(super) table: Vec<u32>,
    walks: VecDeque<(u64, usize)>,
    /// What came, as peer and number.
    pub(super) got: Vec<(usize, u32)>,
    pub(super) events: Vec<Event>,
    /// The most that was added to the time that a session was idle.
    pub(super) oldest_ms: u32,
    /// Whether it reads its events.
    pub(super) reads: bool,
}

impl Node {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            end: Endpoint::new(settings).unwrap(),
            feed: VecDeque::new(),
            table: Vec::new(),
            walks: VecDeque::new(),
            got: Vec::new(),
            events: Vec::new(),
            oldest_ms: 0,
            reads: true,
        }
    }

    /// What a host does in a turn.
    fn turn(&mut self, now: Duration) {
        while self.reads
            && let Some(event) = self.end.poll_event()
        {
            match event {
                Event::Sessions { peer, runs } => {
                    for session in runs.iter().flat_map(|(_, sessions)| sessions) {
                        let sent = super::world::session(session.isn);
                        assert!(session.idle_ms >= sent.idle_ms);
                        self.oldest_ms = self.oldest_ms.max(session.idle_ms - sent.idle_ms);
                        assert_eq!(Session { idle_ms: sent.idle_ms, ..*session }, sent);
                        self.got.push((peer, session.isn));
                    }
                }
                Event::Pull { pull, .. } => {
                    self.walks.push_back((pull, 0));
                    self.events.push(event);
                }
                event => self.events.push(event),
            }
        }
        while let Some(number) = self.feed.front().copied() {
            if self.end.room() == 0 {
                assert!(!self.end.send(now, &real(1), &session(number)));
                break;
            }
            assert!(self.end.send(now, &real((number / 64 % 4) as u8), &session(number)));
            self.feed.pop_front();
        }
        if let Some((pull, mut place)) = self.walks.pop_front() {
            while place < self.table.len() && self.end.room() > 0 {
                assert!(self.end.send(now, &real(1), &session(self.table[place])));
                place += 1;
            }
            if place == self.table.len() {
                self.end.pull_complete(now, pull);
            } else {
                self.walks.push_front((pull, place));
            }
        }
    }

    /// The numbers that came from a peer.
    pub(super) fn from(&self, peer: usize) -> Vec<u32> {
        self.got.iter().filter(|(from, _)| *from == peer).map(|(_, number)| *number).collect()
    }

    pub(super) fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| wanted(event)).count()
    }
}

/// A datagram that was seen on the network.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) bytes: Vec<u8>,
}

pub(super) struct World {
    pub(super) nodes: Vec<Node>,
    pub(super) now: Duration,
    pub(super) random: Random,
    /// Of a hundred.
    pub(super) loss: u64,
    pub(super) doubling: u64,
    /// Delay in microseconds, at least and in addition at most.
    pub(super) delay: (u64, u64),
    /// Whether nothing goes through.
    pub(super) cut: bool,
    /// The node from which nothing goes through.
    pub(super) muted: Option<usize>,
    /// The node that nothing for the group reaches.
    pub(super) outside: Option<usize>,
    /// What was sent, when it is recorded.
    pub(super) record: Option<Vec<Seen>>,
    queue: BTreeMap<(Duration, u64), Seen>,
    serial: u64,
}

pub(super) fn settings(number: u8, peers: usize) -> Settings {
    Settings {
        name: format!("director {number}"),
        keys: vec![[1; 32]],
        peers,
        fingerprint: u64::from(number),
        random: [number; 32],
        ..Settings::default()
    }
}

impl World {
    /// So many endpoints without faults of the network.
    pub(super) fn new(count: usize) -> Self {
        let nodes = (0..count).map(|it| Node::new(settings(it as u8 + 1, count - 1))).collect();
        Self::of(nodes)
    }

    pub(super) fn of(nodes: Vec<Node>) -> Self {
        Self {
            nodes,
            now: ms(5000),
            random: Random(1),
            loss: 0,
            doubling: 0,
            delay: (100, 50),
            cut: false,
            muted: None,
            outside: None,
            record: None,
            queue: BTreeMap::new(),
            serial: 0,
        }
    }

    pub(super) fn faulty(mut self, seed: u64) -> Self {
        (self.random, self.loss, self.doubling, self.delay) = (Random(seed), 5, 3, (100, 1000));
        self
    }

    /// The index that a node has for another.
    pub(super) fn peer(of: usize, other: usize) -> usize {
        if other > of { other - 1 } else { other }
    }

    fn put(&mut self, seen: Seen) {
        if let Some(record) = &mut self.record {
            record.push(seen.clone());
        }
        let copies = 1 + u64::from(self.random.below(100) < self.doubling);
        for _ in 0..copies {
            if self.cut || self.muted == Some(seen.from) || self.random.below(100) < self.loss {
                continue;
            }
            let delay = self.delay.0 + self.random.below(self.delay.1);
            self.serial += 1;
            let at = self.now + Duration::from_micros(delay);
            self.queue.insert((at, self.serial), seen.clone());
        }
    }

    fn turn(&mut self) {
        let mut buffer = Vec::new();
        for index in 0..self.nodes.len() {
            self.nodes[index].turn(self.now);
            while let Some(to) = self.nodes[index].end.poll_transmit(self.now, &mut buffer) {
                let all = 0..self.nodes.len();
                let to: Vec<usize> = match to {
                    Destination::Peer(peer) => vec![if peer >= index { peer + 1 } else { peer }],
                    Destination::Group => {
                        all.filter(|it| *it != index && self.outside != Some(*it)).collect()
                    }
                };
                for to in to {
                    self.put(Seen { from: index, to, bytes: buffer.clone() });
                }
            }
        }
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.turn();
        while self.now < end {
            let arrives = self.queue.first_key_value().map(|((at, _), _)| *at);
            let mut next = arrives.unwrap_or(end).min(end);
            for node in &self.nodes {
                // A host looks at its tables now and then.
                let idle = node.feed.is_empty() && node.walks.is_empty();
                let host = if idle { end } else { self.now + ms(1) };
                next = next.min(node.end.poll_timeout(self.now)).min(host);
            }
            // Time that stands still is a host that spins.
            self.now = next.max(self.now + Duration::from_micros(1));
            while let Some(entry) = self.queue.first_entry() {
                if entry.key().0 > self.now {
                    break;
                }
                let Seen { from, to, bytes } = entry.remove();
                self.nodes[to].end.handle(self.now, Self::peer(to, from), &bytes);
            }
            self.turn();
        }
    }

    /// Runs until something holds.
    pub(super) fn until(&mut self, most: Duration, holds: impl Fn(&[Node]) -> bool) {
        let end = self.now + most;
        while !holds(&self.nodes) {
            assert!(self.now < end, "it does not come to pass within {most:?}");
            self.run(ms(10));
        }
    }

    /// Runs until all are synchronised, and forgets the events.
    pub(super) fn settled(mut self) -> Self {
        self.until(ms(20_000), |nodes| {
            nodes.iter().all(|node| {
                let status = node.end.status(Duration::ZERO);
                let up = status.peers.iter().all(|peer| peer.up && peer.synchronised);
                status.synchronised && status.pulling_from.is_none() && up
            })
        });
        self.run(ms(1500));
        for node in &mut self.nodes {
            node.events.clear();
            node.got.clear();
        }
        self
    }
}
