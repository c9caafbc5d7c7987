//! What a run is made from: everything that is needed to have exactly the same run again.

use std::fmt;
use std::ops::RangeInclusive;

/// A kind of trouble that can be left out of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Feature {
    /// Packets are lost.
    Loss,
    /// Packets are duplicated.
    Duplicates,
    /// Packets arrive late, and so out of order.
    Jitter,
    /// Bits are flipped and frames cut.
    Spoilt,
    /// Some links are VLANs.
    Vlans,
    /// Real servers of other modes and families than their service's; and services leave whose
    /// clients belong to one worker.
    Mixed,
    /// Services and real servers come, go, drain and return.
    Changes,
    /// Real servers are found dead, and alive again.
    Down,
    /// Local addresses leave their pools and return.
    Pools,
    /// Neighbours vanish, return, and get other MAC addresses.
    Neighbours,
    /// Routes are withdrawn and return.
    Routes,
    /// Hosts fall silent.
    Silence,
    /// Packets that belong to nothing.
    Misdirected,
    /// Services of SCTP, and of any protocol.
    Protocols,
    /// Packets that arrive in fragments.
    Pieces,
    /// ICMP errors that arrive.
    Errors,
    /// Flows that several workers process.
    Spread,
    /// Tunnels of more kinds than IP in IP, with checksums and keys.
    Tunnels,
    /// Services whose real servers are told who their client is: TOA and PROXY.
    Told,
    /// A NIC's rules for spread flows, and receive queues with a backlog while they change.
    Redirects,
    /// Hosts behind the director that open connections to the outside, by source NAT.
    Outside,
}

impl Feature {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Loss,
        Self::Duplicates,
        Self::Jitter,
        Self::Spoilt,
        Self::Vlans,
        Self::Mixed,
        Self::Changes,
        Self::Down,
        Self::Pools,
        Self::Neighbours,
        Self::Routes,
        Self::Silence,
        Self::Misdirected,
        Self::Protocols,
        Self::Pieces,
        Self::Errors,
        Self::Spread,
        Self::Tunnels,
        Self::Told,
        Self::Redirects,
        Self::Outside,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Duplicates => "duplicates",
            Self::Jitter => "jitter",
            Self::Spoilt => "spoilt",
            Self::Vlans => "vlans",
            Self::Mixed => "mixed",
            Self::Changes => "changes",
            Self::Down => "down",
            Self::Pools => "pools",
            Self::Neighbours => "neighbours",
            Self::Routes => "routes",
            Self::Silence => "silence",
            Self::Misdirected => "strays",
            Self::Protocols => "protocols",
            Self::Pieces => "pieces",
            Self::Errors => "errors",
            Self::Spread => "spread",
            Self::Tunnels => "tunnels",
            Self::Told => "told",
            Self::Redirects => "redirects",
            Self::Outside => "snat",
        }
    }

    /// The feature of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

/// Something that is broken on purpose, to show that the checker notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A byte of a sent packet's payload changes.
    Payload,
    /// A byte of a sent packet's header changes.
    Header,
    /// A sent frame gets the MAC address of somebody else.
    Mac,
    /// A frame is forgotten.
    Leak,
    /// A frame that was sent is also counted as dropped.
    Miscount,
    /// The checksum of a sent SCTP packet is one bit off.
    Crc,
    /// A packet of a protocol that nobody looks into goes on with another protocol's number.
    Renumber,
    /// A worker forgets all its sessions.
    Amnesia,
    /// The sweep does not run.
    NoSweep,
    /// Real servers that left keep getting sessions: a change is not adopted.
    OldPlan,
    /// Packets of a session go to another real server.
    Swerve,
    /// A frame is given to a worker that does not own it.
    WrongWorker,
    /// A later fragment goes elsewhere than its datagram's first.
    Piece,
    /// Fragments that wait for a first are not turned again when it came.
    Deaf,
    /// An ICMP error tells another MTU, or is about another packet.
    Error,
    /// What a helper is done with leaves before what was dealt earlier.
    Overtake,
    /// Packets of a spread flow are counted twice.
    CountTwice,
    /// A packet is lost between a flow's owner and a helper, and not counted.
    Mislay,
    /// A NIC's rule for a spread flow changes without a fence.
    NoFence,
    /// A worker gives its mark though its receive queues are not empty.
    EarlyMark,
    /// A spread flow is not frozen anew when routes or the plan have changed.
    Stale,
    /// What a helper puts around a packet of a spread flow has a wrong checksum.
    OuterSum,
    /// A helper leaves the numbers of a stream behind a PROXY header as they were.
    Offset,
    /// A helper shifts acknowledgement numbers, and not the edges of SACK blocks.
    SackOffset,
    /// Of an inside endpoint of source NAT a later session has another port outside.
    Remap,
    /// An answer to a host inside goes to another one.
    Misdeliver,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// What the world and all that happens in it come from.
    pub seed: u64,
    /// Packets into the director after which no new ones are made.
    pub steps: u64,
    /// Virtual milliseconds after which the run ends, if it has not by then.
    pub ms: Option<u64>,
    /// Workers; drawn from the seed without a number.
    pub workers: Option<u16>,
    /// What is left out, as bits of [`Feature`].
    pub without: u32,
    /// The actions that happen; all of them without a list.
    pub only: Option<Vec<RangeInclusive<u32>>>,
    /// Something broken on purpose.
    pub sabotage: Option<Sabotage>,
}

impl Recipe {
    /// A run of a seed with nothing left out.
    pub const fn new(seed: u64, steps: u64) -> Self {
        // What the director cannot do yet.
        let later: [Feature; 0] = [];
        let (mut without, mut at) = (0, 0);
        while at < later.len() {
            without |= 1 << later[at] as u32;
            at += 1;
        }
        Self { seed, steps, ms: None, workers: None, without, only: None, sabotage: None }
    }

    /// Whether a feature is in.
    pub const fn has(&self, feature: Feature) -> bool {
        self.without & (1 << feature as u32) == 0
    }

    /// Whether an action happens.
    pub fn allows(&self, action: u32) -> bool {
        match &self.only {
            None => true,
            Some(ranges) => ranges.iter().any(|range| range.contains(&action)),
        }
    }
}

impl fmt::Display for Recipe {
    /// The command that runs it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sluice-sim --seed {} --steps {}", self.seed, self.steps)?;
        if let Some(ms) = self.ms {
            write!(f, " --ms {ms}")?;
        }
        if let Some(workers) = self.workers {
            write!(f, " --workers {workers}")?;
        }
        let without: Vec<_> =
            Feature::ALL.iter().filter(|feature| !self.has(**feature)).map(|f| f.name()).collect();
        if !without.is_empty() {
            write!(f, " --without {}", without.join(","))?;
        }
        if let Some(only) = &self.only {
            let ranges = only.iter().map(|range| match (range.start(), range.end()) {
                (first, last) if first == last => first.to_string(),
                (first, last) => format!("{first}-{last}"),
            });
            let ranges: Vec<_> = ranges.collect();
            write!(f, " --only {}", ranges.join(","))?;
        }
        Ok(())
    }
}
