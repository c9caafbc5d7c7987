//! What one worker has counted. Plain numbers: only the owner writes them, and whoever else wants
//! them gets a copy.

use crate::reason::Reason;

/// A direction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Client to real server.
    Inbound = 0,
    /// Real server to client.
    Outbound = 1,
}

/// Counts of one real server at one worker. What a packet, or the life of a session, counts is in
/// one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealCounters {
    /// Packets forwarded, inbound and outbound.
    pub packets: [u64; 2],
    /// Bytes of IP packets forwarded, inbound and outbound.
    pub bytes: [u64; 2],
    /// Sessions opened.
    pub sessions: u64,
    /// Sessions open now.
    pub active: u64,
    /// TCP connections whose handshake was completed.
    pub handshakes: u64,
    /// TCP sessions now whose handshake is complete and that neither side has closed.
    pub established: u32,
    /// Sessions now that a side has closed, or a reset has ended: what IPVS calls inactive.
    pub closing: u32,
    /// Clients now that persistence leads to it.
    pub bound: u32,
    /// Sessions that are over and closed, and still in the table: what they lead to keeps its id.
    pub lingering: u32,
    /// TCP connections that it refused with a reset.
    pub refused: u64,
}

const _: () = assert!(size_of::<RealCounters>() == 128);

impl RealCounters {
    /// Counts packets that were forwarded in a direction, and their bytes.
    #[inline(always)]
    pub(crate) const fn forwarded(&mut self, direction: Direction, (packets, bytes): (u64, u64)) {
        self.packets[direction as usize] += packets;
        self.bytes[direction as usize] += bytes;
    }

    /// Sessions now that IPVS counts as active (`ActiveConn`): since Linux 4.8 those of TCP that
    /// are being opened or are established, and all of what has no end that shows, UDP too.
    pub const fn flowing(&self) -> u64 {
        self.active.saturating_sub(self.closing as u64)
    }

    /// Whether a session, or what persistence remembers, leads to it.
    pub const fn is_used(&self) -> bool {
        self.active > 0 || self.bound > 0 || self.lingering > 0
    }

    /// The same without what is a state and no count: sums of it are made anew.
    pub const fn clear_gauges(&mut self) {
        (self.active, self.established, self.closing) = (0, 0, 0);
        (self.bound, self.lingering) = (0, 0);
    }

    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        for direction in 0..2 {
            self.packets[direction] += other.packets[direction];
            self.bytes[direction] += other.bytes[direction];
        }
        self.sessions += other.sessions;
        self.active += other.active;
        self.handshakes += other.handshakes;
        self.established += other.established;
        self.closing += other.closing;
        self.bound += other.bound;
        self.lingering += other.lingering;
        self.refused += other.refused;
    }
}

/// Packets of one service that were dropped, or answered instead of forwarded: by reason, in the
/// order of [`Reason::OF_SERVICE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceDrops([u64; Reason::OF_SERVICE.len()]);

impl ServiceDrops {
    /// Counts one packet, if a service's packets are counted under this reason.
    pub fn count(&mut self, reason: Reason) {
        if let Some(count) = reason.place_of_service().and_then(|at| self.0.get_mut(at)) {
            *count += 1;
        }
    }

    /// Packets counted under a reason.
    pub fn of(&self, reason: Reason) -> u64 {
        reason.place_of_service().map_or(0, |at| self.0[at])
    }

    /// Each reason with its packets.
    pub fn by_reason(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::OF_SERVICE.iter().copied().zip(self.0)
    }

    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// What came on top of an earlier count; everything, if the counter began again.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        if self.0.iter().zip(&before.0).any(|(now, before)| now < before) {
            return *self;
        }
        let mut since = *self;
        since.0.iter_mut().zip(&before.0).for_each(|(count, before)| *count -= before);
        since
    }
}

/// Counts of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Packets by reason.
    pub reasons: [u64; Reason::COUNT],
    /// By real server's id.
    pub reals: Vec<RealCounters>,
    /// What was dropped of each service, by its id. Made when a plan is taken over.
    pub services: Vec<ServiceDrops>,
    /// Sessions opened.
    pub created: u64,
    /// Sessions that ended by themselves: four-way close or reset.
    pub closed: u64,
    /// Sessions that timed out.
    pub expired: u64,
    /// Sessions that an operator ended.
    pub killed: u64,
    /// Resets and FINs that fit no session's numbers, and so ended none.
    pub ignored_ends: u64,
    /// Sessions that gave way to new ones: half-open ones, and those of services above their share.
    pub evicted: u64,
    /// Packets that were handed to another worker.
    pub handed_off: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            reasons: [0; Reason::COUNT],
            reals: Vec::new(),
            services: Vec::new(),
            created: 0,
            closed: 0,
            expired: 0,
            killed: 0,
            ignored_ends: 0,
            evicted: 0,
            handed_off: 0,
        }
    }
}

impl Counters {
    /// Counts one packet under a reason.
    #[inline(always)]
    pub fn count(&mut self, reason: Reason) {
        self.reasons[reason as usize] += 1;
    }

    /// Packets counted under a reason.
    pub const fn of(&self, reason: Reason) -> u64 {
        self.reasons[reason as usize]
    }

    /// Adds another worker's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.reasons.iter_mut().zip(&other.reasons) {
            *mine += theirs;
        }
        if self.reals.len() < other.reals.len() {
            self.reals.resize(other.reals.len(), RealCounters::default());
        }
        for (mine, theirs) in self.reals.iter_mut().zip(&other.reals) {
            mine.add(theirs);
        }
        if self.services.len() < other.services.len() {
            self.services.resize(other.services.len(), ServiceDrops::default());
        }
        for (mine, theirs) in self.services.iter_mut().zip(&other.services) {
            mine.add(theirs);
        }
        self.created += other.created;
        self.closed += other.closed;
        self.expired += other.expired;
        self.killed += other.killed;
        self.ignored_ends += other.ignored_ends;
        self.evicted += other.evicted;
        self.handed_off += other.handed_off;
    }
}
