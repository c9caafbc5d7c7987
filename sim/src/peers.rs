//! Clients and real servers: every end of every connection, and the timers of them all.

mod script;
mod tcp;

pub(crate) use script::Script;
pub(crate) use tcp::Wishes;

use crate::rng::Rng;
use crate::wire::{ACK, Packet, RST, SCTP, SYN, Seen, Stream, TCP, Tuple, UDP, is_v4};
use rustc_hash::{FxBuildHasher, FxHashMap};
use tcp::Conn;

/// Bytes of a datagram that no frame holds.
const LARGE: u16 = 3001;

/// A client's exchange of datagrams.
#[derive(Clone, Debug)]
struct Exchange {
    node: usize,
    tuple: Tuple,
    token: u32,
    sent: u32,
    left: u32,
    gap_ms: u64,
    /// Datagrams at a time.
    at_once: u32,
    rng: Rng,
}

/// Something to be told the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    Conn(u32),
    Exchange(u32),
}

/// All ends.
pub(crate) struct Peers {
    seed: u64,
    /// How long silent connections are kept: scripts have silences around that.
    timeout_ms: u64,
    /// Whether datagrams may be longer than frames.
    large: bool,
    /// Flows with very much traffic, of a thousand.
    elephants: u32,
    conns: Vec<Conn>,
    by_tuple: FxHashMap<(u16, Tuple), u32>,
    exchanges: Vec<Exchange>,
    free: Vec<u32>,
    /// What the ends want to be done; the caller does it, and empties it.
    pub wishes: Wishes,
    /// When they want to be told the time.
    pub alarms: Vec<(u64, Alarm)>,
    /// Connections that both ends closed in order.
    pub opened: u64,
}

impl Peers {
    pub fn new(seed: u64, timeout_ms: u64, large: bool, elephants: u32) -> Self {
        Self {
            seed,
            timeout_ms,
            large,
            elephants,
            conns: Vec::with_capacity(1024),
            by_tuple: FxHashMap::with_capacity_and_hasher(1024, FxBuildHasher),
            exchanges: Vec::new(),
            free: Vec::new(),
            wishes: Wishes::default(),
            alarms: Vec::new(),
            opened: 0,
        }
    }

    /// The course of a connection, by its client's initial sequence number.
    fn script(&self, token: u32) -> Script {
        let script = Script::of(token, self.seed, self.timeout_ms);
        if self.is_elephant(token) { script.with_much() } else { script }
    }

    fn is_elephant(&self, token: u32) -> bool {
        crate::universe::is_elephant(self.seed, token, self.elephants)
    }

    /// Puts an end in place of what was there with its tuple.
    fn place(&mut self, conn: Conn, receives: Tuple) -> u32 {
        let key = (conn.node as u16, receives);
        match self.by_tuple.get(&key) {
            Some(at) => {
                self.conns[*at as usize] = conn;
                *at
            }
            None => {
                self.conns.push(conn);
                let at = (self.conns.len() - 1) as u32;
                self.by_tuple.insert(key, at);
                at
            }
        }
    }

    /// A client opens a connection or begins an exchange of datagrams.
    pub fn start(&mut self, now: u64, node: usize, tuple: Tuple, token: u32) {
        if tuple.protocol == TCP {
            let script = self.script(token);
            let conn = Conn::client(tuple, node, token, script);
            let at = self.place(conn, tuple.reversed());
            self.conns[at as usize].open(now, &mut self.wishes);
            self.watch(at);
            return;
        }
        let mut rng = Rng::of(&[self.seed, 3, token.into()]);
        let gap_ms = match rng.below(30) {
            0 => self.timeout_ms + 1500,
            1 => self.timeout_ms.saturating_sub(800),
            2..10 => rng.below(200),
            _ => rng.below(4),
        };
        let left = *rng.pick(&[1, 1, 3, 10, 40, 40]);
        let (left, gap_ms, at_once) = match self.is_elephant(token) {
            true => (rng.range(100, 1500) as u32, 1, rng.range(1, 30) as u32),
            false => (left, gap_ms, 1),
        };
        let exchange = Exchange { node, tuple, token, sent: 0, left, gap_ms, at_once, rng };
        let at = match self.free.pop() {
            Some(at) => {
                self.exchanges[at as usize] = exchange;
                at
            }
            None => {
                self.exchanges.push(exchange);
                (self.exchanges.len() - 1) as u32
            }
        };
        self.datagrams(now, at);
    }

    /// Sees to it that an end is told the time when it wants.
    fn watch(&mut self, at: u32) {
        let conn = &mut self.conns[at as usize];
        if conn.timer_at != 0 && (conn.alarm_at == 0 || conn.timer_at < conn.alarm_at) {
            conn.alarm_at = conn.timer_at;
            self.alarms.push((conn.timer_at, Alarm::Conn(at)));
        }
    }

    /// It is time.
    pub fn ring(&mut self, now: u64, alarm: Alarm) {
        let at = match alarm {
            Alarm::Exchange(at) => return self.datagrams(now, at),
            Alarm::Conn(at) => at,
        };
        let conn = &mut self.conns[at as usize];
        if conn.alarm_at <= now {
            conn.alarm_at = 0;
        }
        if conn.timer_at != 0 && conn.timer_at <= now {
            conn.tick(now, &mut self.wishes);
        }
        self.watch(at);
    }

    /// The next datagrams of an exchange.
    fn datagrams(&mut self, now: u64, at: u32) {
        for _ in 0..self.exchanges[at as usize].at_once {
            self.datagram(at);
            if self.exchanges[at as usize].left == 0 {
                return self.free.push(at);
            }
        }
        self.alarms.push((now + self.exchanges[at as usize].gap_ms, Alarm::Exchange(at)));
    }

    /// The next one.
    fn datagram(&mut self, at: u32) {
        let exchange = &mut self.exchanges[at as usize];
        let rng = &mut exchange.rng;
        let len = *rng.pick(&[8, 30, 30, 60, 100, 100, 500, 1200]);
        let len = if self.large && rng.chance(50) { LARGE } else { len };
        let place = exchange.sent << 12;
        let payload = Stream { token: exchange.token, at: place, len, headed: true };
        let mut packet = datagram(exchange.tuple, payload, rng);
        // An association is opened by its first packet, and may be ended by its last one.
        if packet.tuple.protocol == SCTP && exchange.sent == 0 {
            (packet.flags, packet.window) = (SYN, 0);
            (packet.seq, packet.ack) = (0, !exchange.token);
            packet.payload = Stream::default();
        } else if packet.tuple.protocol == SCTP && exchange.left == 1 && exchange.token & 3 == 0 {
            (packet.flags, packet.window, packet.ack) = (RST, 0, 0);
            packet.payload = Stream::default();
        }
        self.wishes.packets.push((exchange.node, packet));
        exchange.sent += 1;
        exchange.left -= 1;
    }

    /// A packet arrived at a node, where `serves` says whether real servers are; `data` is its
    /// payload.
    pub fn receive(&mut self, now: u64, node: usize, seen: &Seen, data: &[u8], serves: bool) {
        let tuple = seen.packet.tuple;
        if tuple.protocol != TCP {
            if serves {
                self.answer_datagram(node, seen, data);
            }
            return;
        }
        let key = (node as u16, tuple);
        let Packet { flags, seq, .. } = seen.packet;
        let opens = flags & (SYN | ACK | RST) == SYN && serves;
        let at = match self.by_tuple.get(&key).copied() {
            Some(at) if !(opens && self.conns[at as usize].yields_to(seq)) => at,
            _ if opens => {
                let script = self.script(seq);
                let conn = Conn::server(tuple.reversed(), node, seq, script);
                let at = self.place(conn, tuple);
                self.conns[at as usize].open(now, &mut self.wishes);
                self.opened += 1;
                return self.watch(at);
            }
            _ if flags & RST != 0 => return,
            _ => return self.refuse(node, seen),
        };
        self.conns[at as usize].receive(now, seen, data, &mut self.wishes);
        self.watch(at);
    }

    /// A node is told that its packets with a tuple are too long.
    pub fn told(&mut self, node: usize, tuple: Tuple, mtu: u16) {
        if let Some(at) = self.by_tuple.get(&(node as u16, tuple.reversed())) {
            self.conns[*at as usize].shrink(mtu);
        }
    }

    /// A reset for what belongs to no connection (RFC 9293 3.10.7.1).
    fn refuse(&mut self, node: usize, seen: &Seen) {
        let Packet { flags, seq, ack, payload, tuple, .. } = seen.packet;
        let control = u32::from(flags & SYN != 0) + u32::from(flags & crate::wire::FIN != 0);
        let (seq, ack, flags) = if flags & ACK != 0 {
            (ack, 0, RST)
        } else {
            (0, seq.wrapping_add(control + u32::from(payload.len)), RST | ACK)
        };
        let packet = Packet {
            tuple: tuple.reversed(),
            ttl: 64,
            seq,
            ack,
            flags,
            checksum: true,
            ..Packet::default()
        };
        self.wishes.packets.push((node, packet));
    }

    /// Real servers answer most datagrams, some twice.
    fn answer_datagram(&mut self, node: usize, seen: &Seen, data: &[u8]) {
        let Packet { flags, ack, tuple, .. } = seen.packet;
        if tuple.protocol == SCTP && flags == SYN {
            let mut rng = Rng::of(&[self.seed, 4, ack.into()]);
            let mut packet = datagram(tuple.reversed(), Stream::default(), &mut rng);
            (packet.flags, packet.window) = (SYN | ACK, 0);
            (packet.seq, packet.ack) = (ack, !ack);
            return self.wishes.packets.push((node, packet));
        }
        let Some((token, at)) = Stream::head(data) else { return };
        let mut rng = Rng::of(&[self.seed, 4, token.into(), at.into()]);
        let answers = *rng.pick(&[1, 1, 1, 1, 1, 1, 0, 2]);
        for number in 0..answers {
            let len = *rng.pick(&[8, 8, 60, 60, 100, 200, 200, 900]);
            let len = if self.large && rng.chance(50) { LARGE } else { len };
            let payload = Stream { token: !token, at: at + number, len, headed: true };
            let packet = datagram(seen.packet.tuple.reversed(), payload, &mut rng);
            self.wishes.packets.push((node, packet));
        }
    }
}

fn datagram(tuple: Tuple, payload: Stream, rng: &mut Rng) -> Packet {
    let v4 = is_v4(tuple.src);
    let bare = !matches!(tuple.protocol, UDP | SCTP);
    let sctp = |value: u32| if tuple.protocol == SCTP { value } else { 0 };
    Packet {
        tuple,
        ttl: 64 - rng.below(8) as u8,
        tos: *rng.pick(&[0, 0, 0x28]),
        id: rng.next() as u32 & if v4 { 0xffff } else { 0xf_ffff },
        df: v4 && rng.chance(500),
        checksum: !bare && (!v4 || !rng.chance(100) || tuple.protocol == SCTP),
        seq: sctp(payload.token),
        ack: sctp(payload.at),
        window: sctp(3) as u16,
        payload,
        ..Packet::default()
    }
}
