//! The mirror: a socket that follows the kernel's announcements, and the state they lead to.
//!
//! Invariant: the follower subscribes before the first dump, and a dump is always followed by
//! draining the follower, so every change is either in the dump or in an announcement behind it.
//! When announcements were lost (`ENOBUFS`), or when an event implies changes that the kernel
//! does not announce, the state is read again.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::attributes::{Messages, Request, ip_bytes};
use crate::commands::Commands;
use crate::error::Error;
use crate::event::{ADDRESS_HEADER_LEN, Event, LINK_HEADER_LEN, NEIGHBOUR_HEADER_LEN, decode};
use crate::event_route::{NEXTHOP_HEADER_LEN, ROUTE_HEADER_LEN};
use crate::request::{Dump, Requester, socket_error};
use crate::state::{Changed, Kernel, NeighbourState, Table};
use crate::uapi;

/// Room for announcements that were not read yet: some 10,000 route changes. Not allocated ahead.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;
/// Each overrun doubles the room, up to this.
const RECEIVE_BUFFER_MAX_BYTES: usize = 128 << 20;
/// Largest datagram of announcements; the kernel packs one message in each.
const DATAGRAM_BYTES: usize = 64 * 1024;
/// Datagrams that one call of [`Mirror::process`] follows before it returns to its caller.
const DATAGRAMS_A_CALL: usize = 65_536;
/// How often one call of [`Mirror::process`] reads afresh.
const ROUNDS_A_CALL: usize = 3;
/// How often a dump that was interrupted by changes is tried again at once.
const DUMP_ATTEMPTS: usize = 8;
/// An interface index that the kernel never gives out.
const NO_LINK: i32 = i32::MAX;

/// What of the state is known not to be exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stale {
    Nothing,
    Routes,
    Everything,
}

/// A copy of the kernel's links, addresses, routes, neighbours and VXLAN forwarding entries that
/// follows the kernel.
///
/// Belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Mirror {
    follower: Socket,
    buffer: Vec<u8>,
    receive_buffer_bytes: usize,
    commands: Commands,
    kernel: Kernel,
    tables: BTreeSet<u32>,
    stale: Stale,
    fdb_in_doubt: bool,
    overruns: u64,
    malformed: u64,
}

impl Mirror {
    /// Subscribes to the kernel's announcements and reads its present state. Needs no privilege;
    /// [`Self::resolve`], [`Self::keep`] and [`Self::commands`] need `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// When the sockets cannot be made, or the kernel refuses a dump.
    pub fn open() -> Result<Self, Error> {
        Self::open_with(RECEIVE_BUFFER_BYTES)
    }

    /// As [`Self::open`], with room for `receive_buffer_bytes` of unread announcements (without
    /// `CAP_NET_ADMIN` at most `net.core.rmem_max`).
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(receive_buffer_bytes: usize) -> Result<Self, Error> {
        let mut follower = Socket::new(NETLINK_ROUTE).map_err(socket_error("open a socket"))?;
        set_receive_buffer(&follower, receive_buffer_bytes)?;
        follower.bind_auto().map_err(socket_error("bind a socket"))?;
        for group in uapi::GROUPS {
            follower.add_membership(group).map_err(socket_error("subscribe to changes"))?;
        }
        let mut mirror = Self {
            follower,
            buffer: Vec::with_capacity(DATAGRAM_BYTES),
            receive_buffer_bytes,
            commands: Commands::open()?,
            kernel: Kernel::default(),
            tables: BTreeSet::new(),
            stale: Stale::Everything,
            fdb_in_doubt: false,
            overruns: 0,
            malformed: 0,
        };
        mirror.process()?;
        Ok(mirror)
    }

    /// Readable when there is something to [`Self::process`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.follower.as_fd()
    }

    /// The mirrored state, as of the last [`Self::process`].
    pub fn state(&self) -> &Kernel {
        &self.kernel
    }

    /// Follows all announcements that are waiting, and reads afresh what is no longer exact. Never
    /// waits for anything to happen; reading afresh takes time in proportion to the tables.
    ///
    /// # Errors
    /// When a socket fails or the kernel refuses a dump. The state stays as it was, and the next
    /// call tries again.
    pub fn process(&mut self) -> Result<Changed, Error> {
        let mut changed = self.drain()?;
        for _ in 0..ROUNDS_A_CALL {
            if self.stale == Stale::Nothing {
                break;
            }
            let everything = self.stale == Stale::Everything;
            changed |= self.read_afresh()?;
            self.fdb_in_doubt = everything;
            let drained = self.drain();
            self.fdb_in_doubt = false;
            changed |= drained?;
        }
        Ok(changed)
    }

    /// Mirrors these routing tables beside `main` and `default`, and no others: by number, from 1
    /// without 253 to 255. The routes are read again if the set is another one.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number that names no such table; nothing changes then. Otherwise
    /// as [`Self::process`], and the set holds.
    pub fn follow_tables(&mut self, tables: BTreeSet<u32>) -> Result<Changed, Error> {
        let is_other = |number: u32| matches!(Table::of(number), Some(Table::Other(_)));
        if let Some(wrong) = tables.iter().find(|&&number| !is_other(number)) {
            return Err(Error::Invalid(format!("routing table {wrong} cannot be named")));
        }
        if tables != self.tables {
            self.tables = tables;
            self.stale = self.stale.max(Stale::Routes);
        }
        self.process()
    }

    /// The routing tables that are mirrored beside `main` and `default`.
    pub fn followed_tables(&self) -> &BTreeSet<u32> {
        &self.tables
    }

    /// Whether the state is known not to be exact, because it kept changing while it was read:
    /// call [`Self::process`] again soon (some 10 ms), also if [`Self::fd`] is not readable.
    pub fn is_stale(&self) -> bool {
        self.stale != Stale::Nothing
    }

    /// Marks everything as to be read afresh by the next [`Self::process`]: for callers that
    /// audit the mirror from time to time.
    pub fn distrust(&mut self) {
        self.stale = Stale::Everything;
    }

    /// How often announcements were lost because they were not read in time.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// Changes links and addresses, over the mirror's own socket.
    pub fn commands(&mut self) -> &mut Commands {
        &mut self.commands
    }

    /// Asks the kernel to resolve a neighbour. Returns at once; the answer comes as a change of
    /// neighbours: usable, or failed after some seconds. Does nothing to a neighbour that is
    /// usable; asks again for one that failed. For IPv6 the kernel asks from the link's own
    /// link-local address, so no question goes out while that is tentative (some 2 s after the
    /// link came up).
    ///
    /// # Errors
    /// [`Error::Refused`]: the link is gone (`ENODEV`), the neighbour table is full (`ENOBUFS`),
    /// or `CAP_NET_ADMIN` is missing (`EPERM`).
    pub fn resolve(&mut self, ifindex: u32, ip: IpAddr) -> Result<(), Error> {
        // NTF_USE without a state makes the kernel treat the neighbour as if it had a packet for
        // it: a new or failed entry is asked for, by its own rules and limits.
        let request = neighbour_request(ifindex, ip, 0, libc::NTF_USE, libc::NLM_F_CREATE)?;
        let action = format!("resolve neighbour {ip} on link {ifindex}");
        self.commands.requester.ask(request, &action, |_| {})
    }

    /// Keeps a neighbour that the data path uses fresh, so that a silently changed Ethernet
    /// address is noticed: one that is stale is asked again (by unicast; the kernel declares it
    /// failed when it does not answer three times within 3 s), one that is unknown or failed is
    /// resolved. Any other is left alone. Meant to be called about once a second for each
    /// neighbour in use; costs one question each half minute for a neighbour that answers.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn keep(&mut self, ifindex: u32, ip: IpAddr) -> Result<(), Error> {
        match self.kernel.neighbour(ifindex, ip).map(|neighbour| neighbour.state) {
            None | Some(NeighbourState::None | NeighbourState::Failed) => self.resolve(ifindex, ip),
            Some(NeighbourState::Stale) => {
                // NTF_USE would only start the five seconds in which the kernel waits for hints
                // from its own TCP, which never sees the director's packets.
                let request = neighbour_request(ifindex, ip, libc::NUD_PROBE, 0, 0)?;
                let action = format!("probe neighbour {ip} on link {ifindex}");
                match self.commands.requester.ask(request, &action, |_| {}) {
                    // Gone, or no longer valid, since it was last announced.
                    Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::EINVAL)) => {
                        self.resolve(ifindex, ip)
                    }
                    answer => answer,
                }
            }
            Some(_) => Ok(()),
        }
    }

    /// Applies the announcements that are waiting. After an overrun the kernel announces nothing
    /// more until the queue has been emptied once, so then there is no limit.
    fn drain(&mut self) -> Result<Changed, Error> {
        let mut changed = Changed::default();
        let mut datagrams = 0;
        while datagrams < DATAGRAMS_A_CALL || changed.overrun {
            datagrams += 1;
            self.buffer.clear();
            let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
            match self.follower.recv_from(&mut self.buffer, flags) {
                Ok((len, sender)) => {
                    if sender.port_number() == 0 {
                        changed |= self.follow(len);
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => break,
                    Some(libc::EINTR) => {}
                    Some(libc::ENOBUFS) => {
                        changed.overrun = true;
                        self.stale = Stale::Everything;
                    }
                    _ => return Err(socket_error("receive")(error)),
                },
            }
        }
        if changed.overrun {
            self.overrun();
        }
        Ok(changed)
    }

    /// Applies one datagram of announcements, `len` bytes long before it was cut to the buffer.
    fn follow(&mut self, len: usize) -> Changed {
        if len > self.buffer.len() {
            self.buffer.reserve(len - self.buffer.len());
            self.stale = Stale::Everything;
        }
        let mut changed = Changed::default();
        if self.stale == Stale::Everything {
            return changed; // The dump to come contains it.
        }
        for message in Messages(&self.buffer) {
            match decode(&message, &self.tables) {
                Ok(Some(event)) => {
                    let goes = matches!(event, Event::FdbGone(_) | Event::NextHopGone(_));
                    let effect = self.kernel.apply(event);
                    changed |= effect.changed;
                    // The kernel lists forwarding entries by their place: when one goes that was
                    // listed already, the next one takes its place and is left out, and nothing
                    // says that the dump was interrupted.
                    if self.fdb_in_doubt && goes && effect.changed.fdb {
                        self.stale = Stale::Everything;
                    }
                    if effect.reread_routes {
                        self.stale = self.stale.max(Stale::Routes);
                    }
                }
                Ok(None) => {}
                Err(_) => note_malformed(&mut self.malformed, message.kind),
            }
        }
        changed
    }

    /// Says once for each overrun what happened, and makes more room.
    fn overrun(&mut self) {
        self.overruns += 1;
        self.receive_buffer_bytes =
            self.receive_buffer_bytes.saturating_mul(2).min(RECEIVE_BUFFER_MAX_BYTES);
        let room = set_receive_buffer(&self.follower, self.receive_buffer_bytes);
        tracing::warn!(
            overruns = self.overruns,
            receive_buffer_bytes = self.receive_buffer_bytes,
            grown = room.is_ok(),
            "the kernel's announcements came faster than they were read; reading everything afresh"
        );
    }

    /// Reads what is stale. It stays marked as stale when the kernel could give no consistent
    /// picture.
    fn read_afresh(&mut self) -> Result<Changed, Error> {
        self.settle()?;
        let mut whole = false;
        let mut fresh = Kernel::default();
        for _ in 0..DUMP_ATTEMPTS {
            fresh = Kernel::default();
            whole = self.read(&mut fresh)? == Dump::Whole;
            if whole {
                break;
            }
        }
        let changed = match self.stale {
            Stale::Everything => self.kernel.take_all(fresh),
            _ => self.kernel.take_routes(&mut fresh),
        };
        if whole {
            self.stale = Stale::Nothing;
        }
        Ok(changed)
    }

    /// Waits until the kernel has finished the change it is announcing. It announces that a link
    /// goes down, or an address goes, before it flushes the routes, and lets them be dumped
    /// meanwhile; but it works off changes one at a time. So a change that cannot succeed is
    /// requested: its answer, whatever it is, means that earlier ones are done. (Without
    /// `CAP_NET_ADMIN` it is refused at once, and only the dump of next-hop objects, which takes
    /// the same lock in the kernels known today, orders the two.)
    fn settle(&mut self) -> Result<(), Error> {
        let mut header = [0; LINK_HEADER_LEN];
        header[4..8].copy_from_slice(&NO_LINK.to_ne_bytes());
        let request = Request::new(libc::RTM_SETLINK, libc::NLM_F_ACK, &header);
        match self.commands.requester.ask(request, "finish changes", |_| {}) {
            Err(Error::Refused { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Dumps what is stale into `fresh`. Next-hop objects come before the routes and the
    /// forwarding entries that refer to them, links before what is on them.
    fn read(&mut self, fresh: &mut Kernel) -> Result<Dump, Error> {
        let (any, ipv4, ipv6) = (libc::AF_UNSPEC, libc::AF_INET, libc::AF_INET6);
        let routes = [
            (uapi::RTM_GETNEXTHOP, NEXTHOP_HEADER_LEN, any, "list next-hop objects"),
            (libc::RTM_GETROUTE, ROUTE_HEADER_LEN, ipv4, "list IPv4 routes"),
            (libc::RTM_GETROUTE, ROUTE_HEADER_LEN, ipv6, "list IPv6 routes"),
        ];
        let others = [
            (libc::RTM_GETLINK, LINK_HEADER_LEN, any, "list links"),
            (libc::RTM_GETADDR, ADDRESS_HEADER_LEN, ipv4, "list IPv4 addresses"),
            (libc::RTM_GETADDR, ADDRESS_HEADER_LEN, ipv6, "list IPv6 addresses"),
            (libc::RTM_GETNEIGH, NEIGHBOUR_HEADER_LEN, ipv4, "list IPv4 neighbours"),
            (libc::RTM_GETNEIGH, NEIGHBOUR_HEADER_LEN, ipv6, "list IPv6 neighbours"),
        ];
        let fdb = [(
            libc::RTM_GETNEIGH,
            NEIGHBOUR_HEADER_LEN,
            libc::AF_BRIDGE,
            "list forwarding entries",
        )];
        let (others, fdb) = match self.stale {
            Stale::Everything => (&others[..], &fdb[..]),
            _ => (&[][..], &[][..]),
        };
        let mut whole = Dump::Whole;
        for &(kind, header_len, family, action) in others.iter().chain(&routes).chain(fdb) {
            let mut header = vec![0; header_len];
            header[0] = u8::try_from(family).unwrap_or_default();
            let request = Request::new(kind, libc::NLM_F_DUMP, &header);
            let (requester, malformed) = (&mut self.commands.requester, &mut self.malformed);
            match dump_into(requester, request, action, (&self.tables, &mut *fresh), malformed) {
                Ok(Dump::Whole) => {}
                Ok(Dump::Interrupted) => whole = Dump::Interrupted,
                // A kernel without next-hop objects has none.
                Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(whole)
    }
}

impl AsFd for Mirror {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

impl AsRawFd for Mirror {
    fn as_raw_fd(&self) -> RawFd {
        self.follower.as_raw_fd()
    }
}

fn dump_into(
    requester: &mut Requester,
    request: Request,
    action: &str,
    (tables, fresh): (&BTreeSet<u32>, &mut Kernel),
    malformed: &mut u64,
) -> Result<Dump, Error> {
    requester.dump(request, action, |message| match decode(&message, tables) {
        Ok(Some(event)) => {
            fresh.apply(event);
        }
        Ok(None) => {}
        Err(_) => note_malformed(malformed, message.kind),
    })
}

/// Says the first time that a message could not be read.
fn note_malformed(malformed: &mut u64, kind: u16) {
    if *malformed == 0 {
        tracing::warn!(message_type = kind, "left out a message of the kernel that makes no sense");
    }
    *malformed += 1;
}

fn neighbour_request(
    ifindex: u32,
    ip: IpAddr,
    state: u16,
    use_flag: u8,
    flags: i32,
) -> Result<Request, Error> {
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(Error::Invalid(format!("{ip} cannot be a neighbour")));
    }
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut header = [0; NEIGHBOUR_HEADER_LEN];
    header[0] = u8::try_from(family).unwrap_or_default();
    header[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    header[10] = use_flag;
    let request = Request::new(libc::RTM_NEWNEIGH, libc::NLM_F_ACK | flags, &header);
    Ok(request.with(libc::NDA_DST, &ip_bytes(ip)))
}

/// Makes room for unread announcements: beyond the system's limit where the process may.
fn set_receive_buffer(socket: &Socket, bytes: usize) -> Result<(), Error> {
    use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
    set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|_| set_socket_recv_buffer_size(socket, bytes))
        .map_err(io::Error::from)
        .map_err(socket_error("size the receive buffer"))
}
