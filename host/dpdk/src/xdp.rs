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

use std::os::fd::{AsRawFd, RawFd};

use sluice_steer::Attached;
use sluice_xdp::{Queue, QueueConfig, Receiver, Sender};
use tracing::{debug, info};

use crate::eal::Eal;
use crate::ethdev::{ETHERNET_OVERHEAD, check_interface};
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
}

impl Xdp {
    /// Opens all queues of an interface.
    pub fn open(
        eal: &Eal,
        config: &PortConfig,
        name: &str,
        busy_poll: Option<u16>,
    ) -> Result<(Self, Vec<Ends>)> {
        let failed = |what: &str, source| {
            let context = format!("{}: {what} {}", config.name, config.device);
            Error::System { context, source }
        };
        let steer = |source| Error::Steer { port: config.name.clone(), source: Box::new(source) };
        let interface = Interface::find(&config.name, name)?;
        check_interface(eal, config, &interface)?;
        // DPDK's driver tells its sockets by what appears meanwhile.
        let _exclusive = eal.exclusive();
        sluice_steer::release_stale(interface.index).map_err(steer)?;
        if let Some(mtu) = config.mtu {
            interface.set_mtu(mtu).map_err(|source| failed("set the MTU of", source))?;
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
                .map_err(|source| failed(&format!("open queue {number} of"), source))?;
            program.bind(number, open.fd()).map_err(steer)?;
            let joins = config.queues == 1 && !open.kind().zero_copy;
            let joiner = joins.then(|| Joiner::open(interface.index)).and_then(|joiner| {
                joiner.inspect_err(|error| debug!(%error, "streams are not joined")).ok()
            });
            queues.push(open);
            ends.push((receiver, sender, joiner));
        }
        if let Some(kind) = queues.first().map(Queue::kind) {
            let (zero_copy, several) = (kind.zero_copy, kind.spreads);
            info!(port = config.name, mode = ?program.mode(), zero_copy, several_buffers = several,
                huge_pages = kind.huge_pages, "AF_XDP sockets are bound");
        }
        Ok((Self { program, interface, queues }, ends))
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
