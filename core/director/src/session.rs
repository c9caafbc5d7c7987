//! A session: who talks to whom through which local port, in which state, and when it was last
//! seen; and the table that finds it from either direction.
//!
//! Thirty-two bytes in the IPv4 table, 64 in the extended one. Addresses of the service, the real
//! server and the local address live once, in the plan; the entry names them by their ids, which
//! the plan keeps stable for as long as a session uses them. Each session is in the index once for
//! each direction that comes by the director, and the index's value is the session's id and the
//! direction.

mod flow;
mod state;

use crate::counters::Direction;
use crate::family::{Family, Tuple};
use crate::hash::Seed;
use crate::key::{self, Key};
use crate::plan::{Forwarding, LocalId, Plan, RealId};
use crate::time::Time;
use bytemuck::{CheckedBitPattern, NoUninit, Pod, Zeroable};
pub use flow::Flow;
use sluice_table::index::Vacancy;
use sluice_table::{Index, MemoryFile, PagePolicy, Region, RegionError, Slab, Slot};
pub use state::State;
use std::hint::select_unpredictable;
use std::ops::{Deref, DerefMut};

/// One session. All zero is a free slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Zeroable)]
pub struct Session<A, X = ()> {
    /// Client address (of source NAT: the inside host's).
    pub client: A,
    /// What does not depend on the family.
    pub core: Core,
    /// What only the extended table has.
    pub extra: X,
}

/// What all sessions have. It is full: what a feature needs besides lies in an array of its own
/// beside the slots (`sluice_table::SideArray`), as the lists of half-open sessions do.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Zeroable, NoUninit, CheckedBitPattern)]
pub struct Core {
    /// Client port.
    pub client_port: u16,
    /// Virtual port (of source NAT: the outside port).
    pub virtual_port: u16,
    /// Local port.
    pub local_port: u16,
    /// Local address.
    pub local: LocalId,
    /// Lower half of the number that acknowledges a FIN: see [`crate::track`]. The upper half of it
    /// is in `seen`.
    pub fin: u16,
    /// State.
    pub state: State,
    /// Which sides have closed and been acknowledged: see [`crate::track`].
    pub closing: u8,
    /// Real server in the upper 24 bits, IP protocol in the lower 8; in a free slot the id of the
    /// next free one.
    pub(crate) real_protocol: u32,
    /// Low 32 bits of the time of the last packet.
    pub seen_ms: u32,
    /// Next hop towards the client; valid while `hop_generation` is the current one.
    pub client_hop: u16,
    /// Generation of the routes that `client_hop` was found in.
    pub hop_generation: u16,
    /// Upper half of the sequence numbers that each direction has come to: see [`crate::track`].
    pub seen: [u16; 2],
}

/// Bytes of a [`Core`].
pub const CORE: usize = size_of::<Core>();

impl Core {
    /// Its bytes as they lie in memory.
    #[inline(always)]
    pub const fn bytes(&self) -> &[u8; CORE] {
        bytemuck::must_cast_ref(self)
    }
}

impl<A, X> Deref for Session<A, X> {
    type Target = Core;

    #[inline(always)]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl<A, X> DerefMut for Session<A, X> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

/// What a session of the extended table has besides.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Zeroable, Pod)]
pub struct Extra {
    /// Of TCP whose stream begins with a PROXY header, or whose first segments carry the client's
    /// address: the client's initial sequence number. Of source NAT: the next hop towards the
    /// outside and the generation of the routes that it was found in.
    pub isn: u32,
    /// Of source NAT: the outside address, lower word first.
    far: [u32; 4],
}

impl Extra {
    /// That of a session of source NAT.
    pub const fn towards(far: u128) -> Self {
        let words = [far as u32, (far >> 32) as u32, (far >> 64) as u32, (far >> 96) as u32];
        // No hop is known yet.
        Self { isn: u16::MAX as u32, far: words }
    }

    /// That of a session whose client began with this sequence number.
    pub const fn beginning_at(isn: u32) -> Self {
        Self { isn, far: [0; 4] }
    }

    /// The outside address.
    #[inline(always)]
    pub const fn far(&self) -> u128 {
        let [a, b, c, d] = self.far;
        a as u128 | (b as u128) << 32 | (c as u128) << 64 | (d as u128) << 96
    }
}

/// A session as the table of a family has it.
pub type SessionOf<F> = Session<<F as Family>::Addr, <F as Family>::Extra>;

const _: () = assert!(size_of::<SessionOf<crate::family::Ipv4>>() == 32);
const _: () = assert!(size_of::<SessionOf<crate::family::Ipv6>>() == 64);

impl Core {
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

impl Core {
    /// Of a template of source NAT: how many sessions share it.
    pub const fn holders(&self) -> u32 {
        (self.seen[1] as u32) << 16 | self.seen[0] as u32
    }

    /// See [`Self::holders`].
    pub const fn set_holders(&mut self, holders: u32) {
        self.seen = [holders as u16, (holders >> 16) as u16];
    }
}

impl Core {
    /// The same towards a real server (below 2²⁴).
    #[must_use]
    pub const fn to(self, real: RealId, protocol: u8) -> Self {
        Self { real_protocol: real.0 << 8 | protocol as u32, ..self }
    }
}

impl<A: Copy + Default + Zeroable, X: Copy + Default + Zeroable> Slot for Session<A, X> {
    #[inline(always)]
    fn is_vacant(&self) -> bool {
        matches!(self.state, State::Vacant)
    }

    fn vacate(&mut self, next: u32) {
        let core = Core { real_protocol: next, ..Core::default() };
        *self = Self { core, ..Self::default() };
    }

    fn next(&self) -> u32 {
        self.real_protocol
    }
}

/// Why a session could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

/// A key that the table does not have, as it is added: its hash, and where its place was seen.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub(crate) hash: u64,
    pub(crate) vacancy: Option<Vacancy>,
}

impl From<u64> for Entry {
    /// One whose place is still to be looked for.
    fn from(hash: u64) -> Self {
        Self { hash, vacancy: None }
    }
}

/// The sessions of one worker and one family.
pub struct Sessions<F: Family> {
    slab: Slab<SessionOf<F>>,
    index: Index,
    seed: Seed,
    removals: u32,
    is_kept: bool,
}

impl<F: Family> Sessions<F> {
    /// The most sessions that a table can hold: ids and a direction fit the index's values.
    pub const MAX: u32 = 1 << 30;

    /// A table for `capacity` sessions, and a few, at most a quarter as many, that linger besides.
    /// With an empty `file`, of tmpfs or hugetlbfs, the sessions lie there if there is room.
    pub fn new(
        (capacity, lingering): (u32, u32),
        seed: Seed,
        policy: PagePolicy,
        file: Option<&MemoryFile>,
    ) -> Result<Self, RegionError> {
        let capacity = capacity.clamp(1, Self::MAX);
        let slots = capacity.saturating_add(lingering).min(Self::MAX);
        // Without room in the file system sessions are held all the same, only not kept.
        let kept = file.and_then(|file| Region::in_file(file, slots as usize).ok());
        let is_kept = kept.is_some();
        let slab = match kept {
            Some(slots) => Slab::over(slots),
            None => Slab::new(slots, policy)?,
        };
        let index = Index::new(u64::from(capacity) * 2, policy)?;
        Ok(Self { slab, index, seed, removals: 0, is_kept })
    }

    /// Whether the sessions lie in the file that was given for them.
    pub const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Bytes of address space that the table takes.
    pub const fn mapped_bytes(&self) -> usize {
        self.slab.mapped_bytes() + self.index.mapped_bytes()
    }

    /// Changes whenever a session is removed.
    pub const fn removals(&self) -> u32 {
        self.removals
    }

    /// The secret of its hash.
    pub const fn seed(&self) -> &Seed {
        &self.seed
    }

    /// The hash of a tuple.
    #[inline(always)]
    pub fn hash(&self, tuple: &Tuple<F::Addr>) -> u64 {
        F::hash(tuple, &self.seed)
    }

    /// The hash of a key.
    #[inline(always)]
    pub fn hash_key(&self, key: &Key<F::Addr>) -> u64 {
        F::hash_key(key, &self.seed)
    }

    /// The index, for staged lookups.
    #[inline(always)]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// The slots, for staged lookups.
    #[inline(always)]
    pub const fn slab(&self) -> &Slab<SessionOf<F>> {
        &self.slab
    }

    /// All slots, writable.
    #[inline(always)]
    pub fn slots_mut(&mut self) -> &mut [SessionOf<F>] {
        self.slab.slots_mut()
    }

    /// A session by its id.
    ///
    /// # Panics
    /// When `id` is beyond the capacity.
    #[inline(always)]
    pub fn at_mut(&mut self, id: u32) -> &mut SessionOf<F> {
        self.slab.at_mut(id)
    }

    /// Whether `flow` is the one that packets with this tuple belong to: the whole key decides,
    /// whether the session goes on or not.
    pub fn is_flow_of(&self, plan: &Plan, flow: Flow, tuple: &Tuple<F::Addr>) -> bool {
        let session = self.slab.at(flow.id());
        Self::keys(plan, session)
            .is_some_and(|keys| keys[flow.direction() as usize].as_ref() == Some(tuple))
    }

    /// What the key of a packet becomes and how it is forwarded if it belongs to a session in a
    /// direction and the session goes on, and `None` if not: the whole key decides.
    ///
    /// Which direction a packet goes in nobody can foresee, so it chooses values, not branches.
    #[inline(always)]
    pub fn turned(
        plan: &Plan,
        session: &SessionOf<F>,
        direction: Direction,
        key: &Key<F::Addr>,
    ) -> Option<(Key<F::Addr>, Forwarding)> {
        let side = F::side(plan);
        let real = side.real(session.real())?;
        let inbound = matches!(direction, Direction::Inbound);
        let protocol = session.protocol();
        if !(real.goes_on(inbound) & !session.is_vacant() & (protocol == key.protocol)) {
            return None;
        }
        let forwarding = real.forwarding;
        let (mut vip, mut address) = (real.wire_vip, real.wire_address);
        if F::WIDE && forwarding.has_remote() {
            if session.state == State::Template {
                return None;
            }
            (vip, address) = (F::wire(F::far(session)), F::wire(F::far(session)));
        }
        let client = F::wire(session.client);
        let near = key::ports(session.client_port, session.virtual_port);
        let (client_port, virtual_port) = key::halves(near);
        // The client as the real server sees it.
        let (middle, middle_port) = match forwarding.translates_source() {
            true => (side.local_wire(session.local)?, session.local_port.to_be()),
            false => (client, client_port),
        };
        let far = key::pair(real.port_for_wire(virtual_port), middle_port);
        let inward = Key { src: client, dst: vip, ports: near, protocol };
        let outward = Key { src: address, dst: middle, ports: far, protocol };
        let either = |a: &Key<F::Addr>, b: &Key<F::Addr>| Key {
            src: select_unpredictable(inbound, a.src, b.src),
            dst: select_unpredictable(inbound, a.dst, b.dst),
            ports: select_unpredictable(inbound, a.ports, b.ports),
            protocol,
        };
        let belongs = either(&inward, &outward) == *key;
        belongs.then(|| (either(&outward, &inward).reversed(), forwarding))
    }

    /// [`Self::turned`] in host byte order.
    #[inline(always)]
    pub fn translated(
        plan: &Plan,
        session: &SessionOf<F>,
        direction: Direction,
        tuple: &Tuple<F::Addr>,
    ) -> Option<(Tuple<F::Addr>, Forwarding)> {
        let (new, forwarding) = Self::turned(plan, session, direction, &F::key(tuple))?;
        Some((F::tuple(&new), forwarding))
    }

    /// The flow that packets with this tuple belong to.
    pub fn find(&self, plan: &Plan, hash: u64, tuple: &Tuple<F::Addr>) -> Option<Flow> {
        self.index.find(hash, |value| self.is_flow_of(plan, Flow(value), tuple)).map(Flow)
    }

    /// A key with this hash as it would be added, if one look says that the table does not have it.
    #[inline(always)]
    pub fn vacancy(&self, hash: u64) -> Option<Entry> {
        let vacancy = self.index.vacancy(hash)?;
        Some(Entry { hash, vacancy: Some(vacancy) })
    }

    /// The tuples of a session's packets as they arrive, inbound and outbound, as far as it is
    /// found by them. `None` when the plan does not know its service, real server or local
    /// address.
    pub fn keys(plan: &Plan, session: &SessionOf<F>) -> Option<[Option<Tuple<F::Addr>>; 2]> {
        let side = F::side(plan);
        let real = side.real(session.real()).filter(|real| real.is_known())?;
        let protocol = session.protocol();
        let client = Tuple {
            src: session.client,
            dst: F::Addr::default(),
            sport: session.client_port,
            dport: session.virtual_port,
            protocol,
        };
        if real.forwarding.has_remote() {
            let dst = F::far(session);
            let outbound = Tuple {
                src: dst,
                dst: side.local(session.local)?,
                sport: session.virtual_port,
                dport: session.local_port,
                protocol,
            };
            return Some([Some(Tuple { dst, ..client }), Some(outbound)]);
        }
        let inbound = Tuple { dst: F::wire(real.wire_vip), ..client };
        let from = |dst, dport| Tuple {
            src: F::wire(real.wire_address),
            dst,
            sport: real.port_for(session.virtual_port),
            dport,
            protocol,
        };
        let forwarding = real.forwarding;
        let outbound = match forwarding.translates_destination() {
            _ if session.state == State::Template => None,
            true if forwarding.translates_source() => {
                Some(from(side.local(session.local)?, session.local_port))
            }
            true => Some(from(session.client, session.client_port)),
            false => None,
        };
        Some([Some(inbound).filter(|_| session.state != State::OnePacket), outbound])
    }

    /// The hashes of [`Self::keys`].
    pub fn hashes(&self, plan: &Plan, session: &SessionOf<F>) -> Option<[Option<u64>; 2]> {
        let keys = Self::keys(plan, session)?;
        Some(keys.map(|key| key.map(|key| self.hash(&key))))
    }

    /// Adds a session whose keys are not in the table.
    pub fn insert(&mut self, plan: &Plan, session: SessionOf<F>) -> Result<u32, TableFull> {
        let hashes = self.hashes(plan, &session).ok_or(TableFull)?;
        self.insert_by(&session, hashes.map(|hash| hash.map(Entry::from)))
    }

    /// The same for one with these keys, inbound and outbound.
    #[inline(always)]
    pub fn insert_by(
        &mut self,
        session: &SessionOf<F>,
        entries: [Option<Entry>; 2],
    ) -> Result<u32, TableFull> {
        let id = self.slab.insert(*session).ok_or(TableFull)?;
        for (at, direction) in DIRECTIONS.into_iter().enumerate() {
            let Some(Entry { hash, vacancy }) = entries[at] else { continue };
            let value = Flow::new(id, direction).0;
            let inserted = match vacancy {
                Some(vacancy) => self.index.insert_at(hash, vacancy, value),
                None => self.index.insert(hash, value),
            };
            if inserted.is_err() {
                let hashes = entries.map(|entry| entry.map(|entry| entry.hash));
                self.unindex(id, &hashes[..at]);
                self.slab.remove(id);
                return Err(TableFull);
            }
        }
        Ok(id)
    }

    /// Removes a session and gives what it was. `None` when the slot is free.
    pub fn remove(&mut self, plan: &Plan, id: u32) -> Option<SessionOf<F>> {
        let session = *self.slab.at(id);
        if session.is_vacant() {
            return None;
        }
        let hashes = self.hashes(plan, &session).unwrap_or_default();
        self.remove_by(id, hashes)
    }

    /// The same for one whose keys, inbound and outbound, have these hashes.
    #[inline(always)]
    pub fn remove_by(&mut self, id: u32, hashes: [Option<u64>; 2]) -> Option<SessionOf<F>> {
        self.unindex(id, &hashes);
        self.removals = self.removals.wrapping_add(1);
        self.slab.remove(id)
    }

    fn unindex(&mut self, id: u32, hashes: &[Option<u64>]) {
        for (hash, direction) in hashes.iter().zip(DIRECTIONS) {
            let Some(hash) = *hash else { continue };
            let removed = self.index.remove(hash, Flow::new(id, direction).0);
            debug_assert!(removed, "a session's keys are in the index");
        }
    }
}

const DIRECTIONS: [Direction; 2] = [Direction::Inbound, Direction::Outbound];
