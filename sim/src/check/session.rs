//! A session as the model has it, and the life of a TCP connection as a balancer sees it.

use super::Place;
use crate::universe::Universe;
use crate::wire::{ACK, FIN, Packet, RST, SYN, Tuple};
use sluice_director::blueprint::Mode;

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
        1000 * u64::from(match self {
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
    pub seen_ms: u64,
}

impl Session {
    pub fn new(worker: u16, service: usize, inbound: Tuple, state: State) -> Self {
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
            seen_ms: 0,
        }
    }

    /// The real server's packets as they arrive, if they come by the director.
    pub fn outbound(&self) -> Option<Tuple> {
        let past = matches!(self.mode, Mode::Dr | Mode::Ipip);
        self.forward.filter(|_| !past).map(Tuple::reversed)
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
        let forward = self.forward.filter(|_| self.mode == Mode::Fnat)?;
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
        if matches!(self.state, State::Udp | State::OnePacket | State::Other) {
            return false;
        }
        self.follow(direction, packet);
        self.timeout_ms(universe) == 0
    }

    /// Whether a client's packet opens a new connection where this one is over, or nearly.
    pub fn is_reused_by(&self, packet: &Packet) -> bool {
        use State::{Close, FinWait, LastAck, TimeWait};
        packet.flags & (SYN | ACK | RST) == SYN
            && matches!(self.state, FinWait | LastAck | TimeWait | Close)
    }

    /// Moves the TCP state on.
    fn follow(&mut self, direction: Direction, packet: &Packet) {
        let Packet { flags, seq, ack, payload, .. } = *packet;
        if flags & RST != 0 {
            self.state = State::Close;
            return;
        }
        if self.state == State::Sctp {
            return;
        }
        let over = matches!(self.state, State::Close | State::TimeWait);
        if flags & SYN != 0 {
            return;
        }
        let (mine, other) = (direction as usize, 1 - direction as usize);
        if flags & FIN != 0 {
            let number = seq.wrapping_add(u32::from(payload.len)).wrapping_add(1);
            let came = self.fins[mine].is_some_and(|(_, came)| came);
            self.fins[mine] = Some((number, came));
        }
        if let Some((number, came)) = &mut self.fins[other] {
            *came |= flags & ACK != 0 && *number == ack;
        }
        if over {
            return;
        }
        self.state = match self.fins {
            [Some((_, true)), Some((_, true))] => State::TimeWait,
            [Some(_), Some(_)] => State::LastAck,
            [Some(_), None] => State::FinWait,
            [None, Some(_)] => State::CloseWait,
            [None, None] if self.state == State::SynRecv => {
                let confirms = direction == Direction::Inbound && flags & ACK != 0;
                if confirms { State::Established } else { State::SynRecv }
            }
            [None, None] => self.state,
        };
    }
}
