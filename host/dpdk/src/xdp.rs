//! A kernel interface by AF_XDP sockets of our own: `sluice-xdp`'s queues, and the steering program
//! that gives them their packets.
//!
//! DPDK's driver (net_af_xdp) is to be had by `driver=dpdk`. Of a port with that one every queue is
//! a device, each of which attaches a program of its own; its frames lie in packet buffers, which
//! limits them to a page; and it loses buffers, sockets and descriptors when it is closed
//! ([`crate::xsk`]).
//!
//! Invariant: the program is on the interface as long as the value lives.

mod joiner;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use sluice_steer::{Attached, Steer, link_held};
use sluice_xdp::{Heirloom, Opened, Queue, QueueConfig, Receiver, Sender};
use tracing::{debug, info};

use crate::eal::Eal;
use crate::ethdev::{ETHERNET_OVERHEAD, check_interface};
use crate::handover::{self, expect_count};
use crate::interface::{self, Interface};
use crate::port::PortStats;
use crate::{Error, PortConfig, Result};

/// Descriptors of each ring.
const RING: u32 = 2048;
/// Smallest MTU that frames are made for: an interface's may be raised to the usual one later.
const USUAL_MTU: u16 = 1500;

pub(crate) use joiner::Joiner;

/// The ends of a queue, with the way out of streams if it has one.
pub(crate) type Ends = (Receiver, Sender, Option<Joiner>);

/// An open interface.
#[derive(Debug)]
pub(crate) struct Xdp {
    /// First, so that the program leaves the interface before the sockets close.
    #[allow(dead_code, reason = "held until the port is closed")]
    program: Attached,
    pub interface: Interface,
    queues: Vec<Queue>,
    /// The link of another process's program, whose place the program takes.
    link: Option<OwnedFd>,
    /// Those of ways out for streams: closed here, and not by workers.
    _joiners: Vec<Arc<OwnedFd>>,
}

/// An interface of another process, which this one is about to go on with.
#[derive(Debug)]
pub(crate) struct Following {
    program: Attached,
    pub interface: Interface,
    queues: Vec<(Heirloom, Option<Joiner>)>,
    link: OwnedFd,
}

impl Following {
    /// Loads the program and maps the memory of an interface's queues.
    pub fn new(
        config: &PortConfig,
        name: &str,
        opened: &[Opened],
        fds: Vec<OwnedFd>,
    ) -> Result<Self> {
        expect_count(config, fds.len(), 1 + 2 * opened.len())?;
        expect_count(config, opened.len(), config.queues.into())?;
        let steer = |source| Error::Steer { port: config.name.clone(), source: Box::new(source) };
        let interface = Interface::find(&config.name, name)?;
        let spreads = opened.first().is_some_and(|opened| opened.spreads);
        let mut program = Attached::following(interface.index, spreads).map_err(steer)?;
        let (mut fds, mut queues) = (fds.into_iter(), Vec::new());
        let link = fds.next();
        for (number, opened) in (0..).zip(opened) {
            let (Some(socket), Some(memory)) = (fds.next(), fds.next()) else { break };
            let queue = Heirloom::new(*opened, socket, memory)
                .map_err(|source| failed(config, "take over a queue of", source))?;
            program.bind(number, queue.fd()).map_err(steer)?;
            queues.push((queue, joiner(config, &interface, opened.zero_copy)));
        }
        let lacks = || failed(config, "take over", io::ErrorKind::InvalidInput.into());
        Ok(Self { program, interface, queues, link: link.ok_or_else(lacks)? })
    }

    /// The maps of the program.
    pub fn steer(&self, config: &PortConfig) -> Result<Steer> {
        let steer = |source| Error::Steer { port: config.name.clone(), source: Box::new(source) };
        self.program.steer(self.interface.index).map_err(steer)
    }

    /// Goes on with the queues, of each of which the other process left these frames.
    pub fn complete(self, config: &PortConfig, left: &[Vec<u32>]) -> Result<(Xdp, Vec<Ends>)> {
        let Self { program, interface, queues: heirlooms, link } = self;
        expect_count(config, left.len(), heirlooms.len())?;
        let (mut queues, mut ends) = (Vec::new(), Vec::new());
        for ((heirloom, joiner), left) in heirlooms.into_iter().zip(left) {
            let (open, receiver, sender) = Queue::adopt(heirloom, left)
                .map_err(|source| failed(config, "take over a queue of", source))?;
            queues.push(open);
            ends.push((receiver, sender, joiner));
        }
        let _joiners = sockets_of(&ends);
        Ok((Xdp { program, interface, queues, link: Some(link), _joiners }, ends))
    }
}

fn failed(config: &PortConfig, what: &str, source: io::Error) -> Error {
    let context = format!("{}: {what} {}", config.name, config.device);
    Error::System { context, source }
}

fn sockets_of(ends: &[Ends]) -> Vec<Arc<OwnedFd>> {
    ends.iter().filter_map(|(_, _, joiner)| joiner.as_ref().map(Joiner::socket)).collect()
}

/// A queue's way out for streams, if it is to have one.
fn joiner(config: &PortConfig, interface: &Interface, zero_copy: bool) -> Option<Joiner> {
    let joins = config.queues == 1 && !zero_copy;
    let joiner = joins.then(|| Joiner::open(interface.index))?;
    joiner.inspect_err(|error| debug!(%error, "streams are not joined")).ok()
}

impl Xdp {
    /// Opens all queues of an interface.
    pub fn open(
        eal: &Eal,
        config: &PortConfig,
        name: &str,
        busy_poll: Option<u16>,
    ) -> Result<(Self, Vec<Ends>)> {
        let steer = |source| Error::Steer { port: config.name.clone(), source: Box::new(source) };
        let interface = Interface::find(&config.name, name)?;
        check_interface(eal, config, &interface)?;
        // DPDK's driver tells its sockets by what appears meanwhile.
        let _exclusive = eal.exclusive();
        sluice_steer::release_stale(interface.index).map_err(steer)?;
        if let Some(mtu) = config.mtu {
            interface.set_mtu(mtu).map_err(|source| failed(config, "set the MTU of", source))?;
        }
        let mac = interface.mac()?;
        if config.mac.is_some_and(|wanted| wanted != mac) {
            interface::warn_of_mac(&config.name, &interface.name);
        }
        let largest = u32::from(interface.mtu()?.max(USUAL_MTU)) + ETHERNET_OVERHEAD;
        let queue = |queue| QueueConfig {
            interface: interface.index,
            queue,
            ring: RING,
            largest,
            huge_pages: eal.huge_pages(),
            busy_poll,
        };
        let mut program = Attached::to(interface.index, queue(0).spreads()).map_err(steer)?;
        let (mut queues, mut ends) = (Vec::new(), Vec::new());
        for number in 0..u32::from(config.queues) {
            let (open, receiver, sender) = Queue::open(&queue(number))
                .map_err(|source| failed(config, &format!("open queue {number} of"), source))?;
            program.bind(number, open.fd()).map_err(steer)?;
            let joiner = joiner(config, &interface, open.kind().zero_copy);
            queues.push(open);
            ends.push((receiver, sender, joiner));
        }
        if let Some(kind) = queues.first().map(Queue::kind) {
            let (zero_copy, several) = (kind.zero_copy, kind.spreads);
            info!(port = config.name, mode = ?program.mode(), zero_copy, several_buffers = several,
                huge_pages = kind.huge_pages, "AF_XDP sockets are bound");
        }
        let _joiners = sockets_of(&ends);
        Ok((Self { program, interface, queues, link: None, _joiners }, ends))
    }

    /// How the queues were opened; the descriptors of the program's link, and of each queue's
    /// socket and memory. `None` where the kernel has no links.
    pub fn offer(&self) -> Option<(Vec<Opened>, Vec<OwnedFd>)> {
        let mut fds = match &self.link {
            Some(link) => vec![link.try_clone().ok()?],
            None => handover::copies(&[link_held(self.interface.index)?])?,
        };
        let mut all = Vec::new();
        for queue in &self.queues {
            let (opened, of_queue) = queue.offer();
            all.push(opened);
            for fd in of_queue {
                fds.push(fd.try_clone_to_owned().ok()?);
            }
        }
        Some((all, fds))
    }

    /// What each queue left. `None` while one is in use.
    pub fn left(&self) -> Option<Vec<Vec<u32>>> {
        self.queues.iter().map(Queue::left).collect()
    }

    /// Puts the program in the place of the one before, if it follows one.
    pub fn settle(&self, port: &str) -> Result<()> {
        let steer = |source| Error::Steer { port: port.to_owned(), source: Box::new(source) };
        let Some(link) = &self.link else { return Ok(()) };
        handover::update_link(link, self.program.fd().map_err(steer)?).map_err(|source| {
            let context = format!("{port}: put the steering program in place of the former one");
            Error::System { context, source }
        })
    }

    /// The queues' descriptors.
    pub fn fds(&self) -> Vec<RawFd> {
        self.queues.iter().map(|queue| queue.fd().as_raw_fd()).collect()
    }

    /// The sum over the queues.
    pub fn stats(&self) -> PortStats {
        let mut sum = PortStats::default();
        for stats in self.queues.iter().map(Queue::stats) {
            sum.rx_frames += stats.rx_frames;
            sum.tx_frames += stats.tx_frames;
            sum.rx_bytes += stats.rx_bytes;
            sum.tx_bytes += stats.tx_bytes;
            sum.rx_missed += stats.rx_missed;
            sum.rx_errors += stats.rx_errors;
            sum.tx_errors += stats.tx_errors;
            sum.rx_no_buffer += stats.rx_no_buffer;
        }
        sum
    }
}
