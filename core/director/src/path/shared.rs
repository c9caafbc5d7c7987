//! What the engines of both tables share: a worker's state beside its sessions, by what it is for.

use super::elephants::Sketch;
use super::handoff::Bounds;
use super::rate::{Rate, Usage};
use super::{BURST, PathConfig, Round, Waiting, half_open, tunnel};
use crate::counters::{Counters, Direction};
use crate::fib::PortId;
use crate::fib::macs::OwnMacs;
use crate::hash::Seed;
use crate::local_port;
use crate::plan::{RealId, ServiceId};
use crate::schedule::Schedulers;
use crate::time::Time;
use arrayvec::ArrayVec;
use std::net::IpAddr;

/// What one turn of either table shares.
pub(super) struct Shared {
    pub worker: u16,
    pub workers: u16,
    /// Whether sessions may be at workers that their packets do not come to by themselves: see
    /// [`super::restore`].
    pub scattered: bool,
    /// The time of the last turn.
    pub now: Time,
    pub seed: Seed,
    pub scratch: Scratch,
    pub admission: Admission,
    pub ports: Ports,
    pub answers: Answers,
    /// What is known of the paths of tunnels.
    pub paths: tunnel::Paths,
    pub statistics: Statistics,
}

/// What belongs to one turn.
pub(super) struct Scratch {
    /// Frames that the compact table has nothing for and the extended one may have.
    pub deferred: ArrayVec<u8, BURST>,
    /// How many of the turn's frames were received here.
    pub own: usize,
    /// What those behind them have behind them, which other workers have handed over.
    pub rounds: ArrayVec<Round, BURST>,
    /// Which of the turn's frames may open a session from the middle of a stream: a bit for each.
    pub resumes: [u64; BURST / 64],
    /// Frames of the turn that were made packets from outside by hairpinning.
    pub hairpinned: [u64; BURST / 64],
    /// Those whose sender by source NAT has its mapping here.
    pub opens: [u64; BURST / 64],
    /// What the port of this turn takes frames for.
    pub macs: OwnMacs,
    /// Frames that wait for their neighbour.
    pub waiting: ArrayVec<Waiting, BURST>,
    /// The port that all of the turn's frames leave by, if it is one.
    pub leaves_by: Option<PortId>,
    /// Datagrams whose first fragment came in this turn.
    pub joined: ArrayVec<u32, BURST>,
}

/// What decides whether a new session is opened, and with whom.
pub(super) struct Admission {
    /// Sessions of both tables, templates included.
    pub live: u32,
    /// The templates among them.
    pub templates: u32,
    /// The most there may be.
    pub capacity: u32,
    pub schedulers: Schedulers,
    /// What each service uses of its limits.
    pub usage: Vec<Usage>,
    /// Half-open sessions, and what they press for.
    pub load: half_open::Load,
}

/// The local ports that this worker gives out.
pub(super) struct Ports {
    /// Where the walk through them stopped, by real server.
    pub walks: Vec<local_port::Walk>,
    /// Where those of new real servers begin.
    pub from: u32,
    /// Of each pool those that are this worker's: the first, and how many.
    pub shares: Vec<(u16, u32)>,
    /// What tells most packets that are for none of another worker's.
    pub bounds: Bounds,
    /// Whether sessions that came from elsewhere may have ports of the other table's half.
    pub mixed: bool,
}

/// What bounds and numbers the packets that the director makes itself.
#[derive(Default)]
pub(super) struct Answers {
    /// ICMP errors that were sent.
    pub errors: Rate,
    /// Refused connections that were answered: apart, so that a flood of them leaves path MTU
    /// discovery its errors.
    pub refusals: Rate,
    /// Identification of IPv4 packets that were made of IPv6 ones.
    pub nat64_id: u16,
    /// Identification of outer headers whose packets are cut although what is inside may not be.
    pub cut_id: u16,
}

/// What is counted.
pub(super) struct Statistics {
    pub counters: Counters,
    /// Which real server each counter belongs to, to notice that an id was given anew.
    pub counted: Vec<(ServiceId, IpAddr, u16)>,
    /// Since which plan each service is there, to notice the same of its id.
    pub births: Vec<u64>,
    /// The sessions with the most traffic.
    pub sketch: Box<Sketch>,
}

impl Shared {
    /// That of a path without sessions.
    pub fn new(config: &PathConfig) -> Self {
        Self {
            worker: config.worker,
            workers: config.workers.max(1),
            scattered: false,
            now: Time::default(),
            seed: Seed::new(config.seed),
            scratch: Scratch {
                deferred: ArrayVec::new(),
                own: 0,
                rounds: ArrayVec::new(),
                resumes: [0; BURST / 64],
                hairpinned: [0; BURST / 64],
                opens: [0; BURST / 64],
                macs: OwnMacs::ANY,
                waiting: ArrayVec::new(),
                leaves_by: None,
                joined: ArrayVec::new(),
            },
            admission: Admission {
                live: 0,
                templates: 0,
                capacity: config.sessions,
                schedulers: Schedulers::new(config.worker, config.workers, config.seed),
                usage: Vec::new(),
                load: half_open::Load::new(),
            },
            ports: Ports {
                walks: Vec::new(),
                from: 0,
                shares: Vec::new(),
                bounds: Bounds::NONE,
                mixed: false,
            },
            answers: Answers::default(),
            paths: tunnel::Paths::default(),
            statistics: Statistics {
                counters: Counters::default(),
                counted: Vec::new(),
                births: Vec::new(),
                sketch: Sketch::new(config.seed),
            },
        }
    }
}

impl Statistics {
    /// Counts a packet that was forwarded.
    #[inline(always)]
    pub fn forwarded(&mut self, real: RealId, direction: Direction, length: u16) {
        self.forwarded_all(real, direction, (1, u64::from(length)));
    }

    /// Counts packets that were forwarded, and their bytes.
    #[inline(always)]
    pub fn forwarded_all(
        &mut self,
        real: RealId,
        direction: Direction,
        (packets, bytes): (u64, u64),
    ) {
        if let Some(real) = self.counters.reals.get_mut(real.0 as usize) {
            real.forwarded(direction, (packets, bytes));
        }
    }
}
