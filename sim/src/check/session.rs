//! A session as the model has it, and the life of a TCP connection as a balancer sees it.

use super::Place;
use super::told::Told;
use crate::universe::Universe;
use crate::wire::{ACK, FIN, Packet, RST, SYN, Shim, Tuple};
use sluice_director::spec::Mode;

/// A client that opens a connection where one is half closed, or was never answered, means a new
/// one after so long a silence.
const SILENT_MS: u64 = 1000;

/// A direction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Client to real server.
    Inbound = 0,
    Outbound = 1,
}

/// Where a session is in its life; names as an operator sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    SynRecv,
    Established,
    FinWait,
    CloseWait,
    LastAck,
    TimeWait,
    Close,
    Udp,
    Sctp,
    /// Of a protocol that nobody looks into.
    Other,
    /// Of a service that schedules each datagram by itself.
    OnePacket,
}

impl State {
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynRecv => "SYN_RECV",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::CloseWait => "CLOSE_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
            Self::Close => "CLOSE",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
            Self::Other => "OTHER",
            Self::OnePacket => "ONE_PACKET",
        }
    }

    /// How long a session of a service may be silent.
    fn timeout_ms(self, universe: &Universe, service: usize) -> u64 {
        let timeouts = &universe.timeouts;
        let idle_s = universe.services[service].idle_s;
        let rule = universe.services[service].rule.as_ref();
        let established_s = rule.map_or(0, |rule| rule.established_s);
        1000 * u64::from(match self {
            Self::Established if established_s > 0 => established_s,
            Self::Established | Self::Udp | Self::Sctp | Self::Other if idle_s > 0 => idle_s,
            Self::SynRecv => timeouts.tcp_syn_recv_s,
            Self::Established => timeouts.tcp_established_s,
            Self::FinWait => timeouts.tcp_fin_wait_s,
            Self::CloseWait => timeouts.tcp_close_wait_s,
            Self::LastAck => timeouts.tcp_last_ack_s,
            Self::TimeWait => timeouts.tcp_time_wait_s,
            Self::Close => timeouts.tcp_close_s,
            Self::Udp => timeouts.udp_s,
            Self::Sctp => timeouts.sctp_s,
            Self::Other => timeouts.other_s,
            Self::OnePacket => timeouts.one_packet_s,
        })
    }
}

/// A session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub vacant: bool,
    pub worker: u16,
    pub service: usize,
    /// Place of its real server in the service; none as long as no packet went there.
    pub real: Option<usize>,
    pub mode: Mode,
    /// The client's packets as they arrive.
    pub inbound: Tuple,
    /// The same as they reach the real server.
    pub forward: Option<Tuple>,
    pub state: State,
    /// By direction: the number that acknowledges its FIN, and whether it came.
    fins: [Option<(u32, bool)>; 2],
    /// By direction: which 64 KiB of its numbers it has come to; that of the real server is not
    /// known before the client has acknowledged something.
    reached: [u16; 2],
    /// Of SCTP the tag that packets of each direction carry.
    tags: [Option<u32>; 2],
    pub(super) told: Told,
    pub seen_ms: u64,
    /// That passed.
    pub packets: u64,
}

impl Session {
    /// A session that a packet opens.
    pub fn new(worker: u16, service: usize, packet: &Packet, state: State) -> Self {
        let inbound = packet.tuple;
        Self {
            vacant: false,
            worker,
            service,
            real: None,
            mode: Mode::Fnat,
            inbound,
            forward: None,
            state,
            fins: [None; 2],
            reached: [high(packet.end()), high(packet.ack)],
            tags: match packet.flags & SYN {
                0 => [Some(packet.seq), None],
                _ => [None, Some(packet.ack)],
            },
            told: Told::default(),
            seen_ms: 0,
            packets: 0,
        }
    }

    /// Whether its real server answers past the director.
    pub const fn answers_past(&self) -> bool {
        matches!(self.mode, Mode::Dr | Mode::Ipip | Mode::Gue | Mode::Gre)
    }

    /// What its tunnel puts before packets besides an IP header; `None` without a tunnel.
    pub fn shim(&self, universe: &Universe) -> Option<Shim> {
        Shim::of(self.mode, universe.services[self.service].tunnel)
    }

    /// The real server's packets as they arrive, if they come by the director.
    pub fn outbound(&self) -> Option<Tuple> {
        self.forward.filter(|_| !self.answers_past()).map(Tuple::reversed)
    }

    /// What a packet's tuple becomes.
    pub fn becomes(&self, direction: Direction) -> Option<Tuple> {
        match direction {
            Direction::Inbound => self.forward,
            Direction::Outbound => Some(self.inbound.reversed()),
        }
    }

    /// The local port that it takes.
    pub fn place(&self) -> Option<Place> {
        let forward = self.forward.filter(|_| matches!(self.mode, Mode::Fnat | Mode::Snat))?;
        Some((self.worker, forward.protocol, (forward.dst, forward.dport), forward.src))
    }

    /// How long it may be silent.
    pub fn timeout_ms(&self, universe: &Universe) -> u64 {
        self.state.timeout_ms(universe, self.service)
    }

    /// Whether its time is over.
    pub fn is_over(&self, universe: &Universe, now: u64) -> bool {
        now - self.seen_ms > self.timeout_ms(universe)
    }

    /// A packet passed; whether the session is gone with that.
    pub fn pass(
        &mut self,
        universe: &Universe,
        now: u64,
        direction: Direction,
        packet: &Packet,
    ) -> bool {
        self.seen_ms = now;
        self.packets += 1;
        if matches!(self.state, State::Udp | State::OnePacket | State::Other) {
            return false;
        }
        self.follow(direction, packet);
        self.timeout_ms(universe) == 0
    }

    /// Whether a client's packet opens a new connection where this one is over, or nearly.
    pub fn is_reused_by(&self, packet: &Packet, now: u64) -> bool {
        let silent = now - self.seen_ms > SILENT_MS;
        let past = self.answers_past();
        let finished = self.fins[0].map_or(0, |(number, _)| number);
        let next = past && packet.end().wrapping_sub(finished) <= 32 << 20;
        let another = high(packet.end()).wrapping_sub(self.reached[0]) > 1;
        packet.flags & (SYN | ACK | RST) == SYN
            && match self.state {
                State::LastAck | State::TimeWait | State::Close => true,
                State::FinWait => silent || next,
                State::CloseWait => silent,
                State::SynRecv => silent && another,
                _ => false,
            }
    }

    /// Whether a packet has a number that its direction may have come to, and whether it
    /// acknowledges one of the other.
    fn believes(&self, mine: usize, packet: &Packet) -> (bool, bool) {
        let within = |direction: usize, number: u32| {
            let known = direction == 0 || self.state != State::SynRecv;
            known && matches!(high(number).wrapping_sub(self.reached[direction]), 0 | 1)
        };
        (within(mine, packet.end()), packet.flags & ACK != 0 && within(1 - mine, packet.ack))
    }

    /// Whether a packet that is near, or else only answers, may end its direction.
    fn may_end(&self, mine: usize, packet: &Packet, (near, answers): (bool, bool)) -> bool {
        let away = i32::from(high(packet.end()).wrapping_sub(self.reached[mine]) as i16);
        near || answers && (self.state == State::SynRecv || away.abs() <= 64)
    }

    /// Follows the numbers of both sides.
    fn reach(&mut self, mine: usize, packet: &Packet, (near, answers): (bool, bool)) {
        let place = high(packet.end());
        let ahead = place.wrapping_sub(self.reached[mine]);
        // A packet that changes nothing else is not asked how far the other side is.
        let changes = self.state != State::Established || ahead != 0 || packet.flags & FIN != 0;
        if self.fins[mine].is_none() && (ahead == 1 || answers && ahead < 0xc000) {
            self.reached[mine] = place;
        }
        let told = high(packet.ack);
        let ahead = told.wrapping_sub(self.reached[1]);
        let tells = changes && near && mine == 0 && packet.flags & ACK != 0;
        if tells && self.fins[1].is_none() && ahead < 0x8000 {
            self.reached[1] = told;
        }
    }

    /// Follows an association: INIT and its answer tell of tags, an ABORT must have the right one.
    fn associate(&mut self, direction: Direction, packet: &Packet) {
        match (packet.flags & (SYN | ACK | RST), direction) {
            (RST, _) if self.tags[direction as usize] == Some(packet.seq) => {
                self.state = State::Close;
            }
            (flags, Direction::Outbound)
                if flags == SYN | ACK && self.tags[1] == Some(packet.seq) =>
            {
                self.tags[0] = Some(packet.ack);
            }
            _ => {}
        }
    }

    /// Moves the TCP state on.
    fn follow(&mut self, direction: Direction, packet: &Packet) {
        let Packet { flags, ack, .. } = *packet;
        if self.state == State::Sctp {
            return self.associate(direction, packet);
        }
        let (mine, other) = (direction as usize, 1 - direction as usize);
        let fits = self.believes(mine, packet);
        let may_end = self.may_end(mine, packet, fits);
        if flags & RST != 0 {
            if may_end {
                self.state = State::Close;
            }
            return;
        }
        if flags & SYN != 0 {
            return;
        }
        if self.state == State::SynRecv {
            let tells = direction == Direction::Inbound && flags & ACK != 0;
            let begins = direction == Direction::Outbound && flags & FIN != 0;
            if !may_end || !(tells || begins) {
                return;
            }
            if tells {
                self.reached = [high(packet.end()), high(ack)];
            }
        } else {
            self.reach(mine, packet, fits);
            if self.state == State::Close && fits != (true, true) {
                return;
            }
        }
        if flags & FIN != 0 && !may_end {
            return;
        }
        if let Some((number, came)) = &mut self.fins[other] {
            *came |= flags & ACK != 0 && *number == ack;
        }
        if flags & FIN != 0 && !self.fins[mine].is_some_and(|(_, came)| came) {
            let number = packet.end().wrapping_add(1);
            self.fins[mine] = Some((number, false));
            self.reached[mine] = high(number);
        }
        self.state = match self.fins {
            [Some((_, true)), Some((_, true))] => State::TimeWait,
            [Some(_), Some(_)] => State::LastAck,
            [Some(_), None] => State::FinWait,
            [None, Some(_)] => State::CloseWait,
            [None, None] => State::Established,
        };
    }
}

/// Which 64 KiB of the sequence numbers a number is in.
const fn high(number: u32) -> u16 {
    (number >> 16) as u16
}
