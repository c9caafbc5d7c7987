//! A session: who talks to whom through which local port, in which state, and when it was last
//! seen; and the table that finds it from either direction.
//!
//! Thirty-two bytes for IPv4. Addresses of the service, the real server and the local address live
//! once, in the plan; the entry names them by their ids, which the plan keeps stable for as long
//! as a session uses them. Each session is in the index twice, once for each direction's tuple, and
//! the index's value is the session's id and the direction.

use crate::counters::Direction;
use crate::family::{Family, Seed, Tuple};
use crate::plan::{LocalId, Plan, RealId, ServiceId};
use crate::time::Time;
use bytemuck::Zeroable;
use sluice_table::{Index, PagePolicy, RegionError, Slab, Slot};

/// Where a session is in its life. TCP's names are those of IPVS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Zeroable)]
#[repr(u8)]
pub enum State {
    /// A free slot.
    #[default]
    Vacant = 0,
    /// TCP: a SYN was seen.
    SynRecv,
    /// TCP: the handshake is complete.
    Established,
    /// TCP: the client closed its side.
    FinWait,
    /// TCP: the real server closed its side.
    CloseWait,
    /// TCP: both sides closed; an acknowledgement is missing.
    LastAck,
    /// TCP: both sides closed and acknowledged.
    TimeWait,
    /// TCP: reset.
    Close,
    /// UDP.
    Udp,
}

impl State {
    /// How many states there are.
    pub const COUNT: usize = 9;

    /// The name used in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vacant => "VACANT",
            Self::SynRecv => "SYN_RECV",
            Self::Established => "ESTABLISHED",
            Self::FinWait => "FIN_WAIT",
            Self::CloseWait => "CLOSE_WAIT",
            Self::LastAck => "LAST_ACK",
            Self::TimeWait => "TIME_WAIT",
            Self::Close => "CLOSE",
            Self::Udp => "UDP",
        }
    }
}

/// One session. All zero is a free slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Zeroable)]
pub struct Session<A> {
    /// Client address; in a free slot the id of the next free one is in `real_protocol`.
    pub client: A,
    /// Client port.
    pub client_port: u16,
    /// Virtual port.
    pub virtual_port: u16,
    /// Local port.
    pub local_port: u16,
    /// Local address.
    pub local: LocalId,
    /// Virtual service.
    pub service: ServiceId,
    /// State.
    pub state: State,
    /// Which sides have closed and been acknowledged: see [`crate::track`].
    pub closing: u8,
    /// Real server in the upper 24 bits, IP protocol in the lower 8.
    pub(crate) real_protocol: u32,
    /// Low 32 bits of the time of the last packet.
    pub seen_ms: u32,
    /// Next hop towards the client; valid while `hop_generation` is the current one.
    pub client_hop: u16,
    /// Generation of the routes that `client_hop` was found in.
    pub hop_generation: u16,
    /// Low half of the acknowledgement number that answers the FIN of each direction.
    pub fin_ack: [u16; 2],
}

const _: () = assert!(size_of::<Session<u32>>() == 32);
const _: () = assert!(size_of::<Session<u128>>() <= 48);

impl<A> Session<A> {
    /// Real server.
    #[inline(always)]
    pub const fn real(&self) -> RealId {
        RealId(self.real_protocol >> 8)
    }

    /// IP protocol number.
    #[inline(always)]
    pub const fn protocol(&self) -> u8 {
        self.real_protocol as u8
    }

    /// Milliseconds since the last packet.
    #[inline(always)]
    pub const fn idle_ms(&self, now: Time) -> u32 {
        now.low().wrapping_sub(self.seen_ms)
    }
}

impl<A: Default> Session<A> {
    /// A session towards a real server (below 2²⁴), otherwise empty.
    pub fn towards(real: RealId, protocol: u8) -> Self {
        Self { real_protocol: real.0 << 8 | u32::from(protocol), ..Self::default() }
    }
}

impl<A: Copy + Default + Zeroable> Slot for Session<A> {
    #[inline(always)]
    fn is_vacant(&self) -> bool {
        matches!(self.state, State::Vacant)
    }

    fn vacate(&mut self, next: u32) {
        *self = Self { real_protocol: next, ..Self::default() };
    }

    fn next(&self) -> u32 {
        self.real_protocol
    }
}

/// A session's id and a direction, as the index stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow(pub u32);

impl Flow {
    /// No flow.
    pub const NONE: Self = Self(u32::MAX);

    /// The flow of a session in a direction.
    #[inline(always)]
    pub const fn new(id: u32, direction: Direction) -> Self {
        Self(id << 1 | direction as u32)
    }

    /// The session's id.
    #[inline(always)]
    pub const fn id(self) -> u32 {
        self.0 >> 1
    }

    /// The direction.
    #[inline(always)]
    pub const fn direction(self) -> Direction {
        if self.0 & 1 == 0 { Direction::Inbound } else { Direction::Outbound }
    }
}

/// Why a session could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

/// The sessions of one worker and one family.
pub struct Sessions<F: Family> {
    slab: Slab<Session<F::Addr>>,
    index: Index,
    seed: Seed,
}

impl<F: Family> Sessions<F> {
    /// The most sessions that a table can hold: ids and a direction fit the index's values.
    pub const MAX: u32 = 1 << 30;

    /// A table for `capacity` sessions.
    pub fn new(capacity: u32, seed: Seed, policy: PagePolicy) -> Result<Self, RegionError> {
        let capacity = capacity.clamp(1, Self::MAX);
        let slab = Slab::new(capacity, policy)?;
        Ok(Self { slab, index: Index::new(u64::from(capacity) * 2, policy)?, seed })
    }

    /// The hash of a tuple.
    #[inline(always)]
    pub fn hash(&self, tuple: &Tuple<F::Addr>) -> u64 {
        F::hash(tuple, &self.seed)
    }

    /// The index, for staged lookups.
    #[inline(always)]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// The slots, for staged lookups.
    #[inline(always)]
    pub const fn slab(&self) -> &Slab<Session<F::Addr>> {
        &self.slab
    }

    /// A session by its id.
    ///
    /// # Panics
    /// When `id` is beyond the capacity.
    #[inline(always)]
    pub fn at_mut(&mut self, id: u32) -> &mut Session<F::Addr> {
        self.slab.at_mut(id)
    }

    /// Whether `flow` is the one that packets with this tuple belong to: the whole key decides.
    #[inline(always)]
    pub fn is_flow_of(&self, plan: &Plan, flow: Flow, tuple: &Tuple<F::Addr>) -> bool {
        Self::translated(plan, self.slab.at(flow.id()), flow.direction(), tuple).is_some()
    }

    /// What the tuple of a packet becomes if the packet belongs to a session in a direction, and
    /// `None` if it does not: the whole key decides.
    #[inline(always)]
    pub fn translated(
        plan: &Plan,
        session: &Session<F::Addr>,
        direction: Direction,
        tuple: &Tuple<F::Addr>,
    ) -> Option<Tuple<F::Addr>> {
        let side = F::side(plan);
        let (vip, local) = (side.vip(session.service)?, side.local(session.local)?);
        let (real, real_port) = side.real(session.real())?;
        let protocol = session.protocol();
        // No branch for each field: it is nearly always the one.
        let (same, new) = if direction == Direction::Inbound {
            let same = (session.client == tuple.src)
                & (session.client_port == tuple.sport)
                & (session.virtual_port == tuple.dport)
                & (vip == tuple.dst);
            let (sport, dport) = (session.local_port, real_port);
            (same, Tuple { src: local, dst: real, sport, dport, protocol })
        } else {
            let same = (session.local_port == tuple.dport)
                & (local == tuple.dst)
                & (real == tuple.src)
                & (real_port == tuple.sport);
            let (sport, dport) = (session.virtual_port, session.client_port);
            (same, Tuple { src: vip, dst: session.client, sport, dport, protocol })
        };
        (same & (protocol == tuple.protocol) & !session.is_vacant()).then_some(new)
    }

    /// The flow that packets with this tuple belong to.
    pub fn find(&self, plan: &Plan, hash: u64, tuple: &Tuple<F::Addr>) -> Option<Flow> {
        self.index.find(hash, |value| self.is_flow_of(plan, Flow(value), tuple)).map(Flow)
    }

    /// The tuples of a session's packets as they arrive, inbound and outbound. `None` when the
    /// plan does not know its service, real server or local address.
    pub fn tuples(plan: &Plan, session: &Session<F::Addr>) -> Option<[Tuple<F::Addr>; 2]> {
        let side = F::side(plan);
        let (real, real_port) = side.real(session.real())?;
        let protocol = session.protocol();
        let inbound = Tuple {
            src: session.client,
            dst: side.vip(session.service)?,
            sport: session.client_port,
            dport: session.virtual_port,
            protocol,
        };
        let outbound = Tuple {
            src: real,
            dst: side.local(session.local)?,
            sport: real_port,
            dport: session.local_port,
            protocol,
        };
        Some([inbound, outbound])
    }

    /// Adds a session whose tuples are not in the table.
    pub fn insert(&mut self, plan: &Plan, session: Session<F::Addr>) -> Result<u32, TableFull> {
        let tuples = Self::tuples(plan, &session).ok_or(TableFull)?;
        let id = self.slab.insert(session).ok_or(TableFull)?;
        let hashes = tuples.map(|tuple| self.hash(&tuple));
        if self.index.insert(hashes[0], Flow::new(id, Direction::Inbound).0).is_err() {
            self.slab.remove(id);
            return Err(TableFull);
        }
        if self.index.insert(hashes[1], Flow::new(id, Direction::Outbound).0).is_err() {
            self.index.remove(hashes[0], Flow::new(id, Direction::Inbound).0);
            self.slab.remove(id);
            return Err(TableFull);
        }
        Ok(id)
    }

    /// Removes a session and gives what it was. `None` when the slot is free.
    pub fn remove(&mut self, plan: &Plan, id: u32) -> Option<Session<F::Addr>> {
        let session = *self.slab.at(id);
        if session.is_vacant() {
            return None;
        }
        if let Some(tuples) = Self::tuples(plan, &session) {
            for (tuple, direction) in tuples.iter().zip([Direction::Inbound, Direction::Outbound]) {
                let removed = self.index.remove(self.hash(tuple), Flow::new(id, direction).0);
                debug_assert!(removed, "both directions of a session are in the index");
            }
        }
        self.slab.remove(id)
    }
}
