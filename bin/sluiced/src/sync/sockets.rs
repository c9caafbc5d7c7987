//! The sockets of session synchronisation: one for each peer's datagrams, and one for the group's.

use crate::errors::Error;
use rustix::event::{PollFd, PollFlags};
use sluice_config::SessionSync;
use sluice_linux::Kernel;
use sluice_sync::Destination;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;

/// The sockets, and the addresses at their other ends.
pub struct Sockets {
    own: UdpSocket,
    /// What is sent to the group leaves by the first socket.
    group: Option<(UdpSocket, SocketAddr)>,
    peers: Vec<SocketAddr>,
}

impl Sockets {
    /// Opens them. The group is joined on the interface that has the address of `listen`.
    pub fn open(config: &SessionSync, listen: SocketAddr, kernel: &Kernel) -> Result<Self, Error> {
        let failed = |source| Error::SyncSocket { listen, source };
        let own = UdpSocket::bind(listen).map_err(failed)?;
        own.set_nonblocking(true).map_err(failed)?;
        let group = match config.group {
            Some(group) => {
                let interface = interface_of(kernel, listen.ip()).map_err(failed)?;
                let joined = join(&own, group, interface);
                Some((joined.map_err(|source| Error::SyncGroup { group, source })?, group))
            }
            None => None,
        };
        Ok(Self { own, group, peers: config.peers.clone() })
    }

    /// What may have to be waited for.
    pub fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let group = self.group.as_ref().map(|(socket, _)| socket);
        let sockets = std::iter::once(&self.own).chain(group);
        sockets.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN))
    }

    /// The next datagram of a peer: how many bytes of whom. `None` when there are none now; others'
    /// are passed over, at most `most` in all.
    pub fn receive(&self, bytes: &mut [u8], most: &mut usize) -> Option<(usize, usize)> {
        let group = self.group.as_ref().map(|(socket, _)| socket);
        for socket in std::iter::once(&self.own).chain(group) {
            while *most > 0 {
                *most -= 1;
                match socket.recv_from(bytes) {
                    Ok((length, from)) => {
                        if let Some(peer) = self.peers.iter().position(|peer| *peer == from) {
                            return Some((peer, length));
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // An ICMP error of an earlier datagram: the peer is not there.
                    Err(_) => {}
                }
            }
        }
        None
    }

    /// Sends a datagram. What the socket does not take is lost, and repaired.
    pub fn send(&self, datagram: &[u8], to: Destination) {
        let to = match to {
            Destination::Peer(peer) => self.peers.get(peer),
            Destination::Group => self.group.as_ref().map(|(_, group)| group),
        };
        if let Some(to) = to {
            let _ = self.own.send_to(datagram, to);
        }
    }
}

/// The interface that has an address.
fn interface_of(kernel: &Kernel, ip: IpAddr) -> io::Result<u32> {
    let holder = kernel.addresses().find(|address| address.ip == ip);
    let none = || io::Error::new(io::ErrorKind::AddrNotAvailable, "no interface has the address");
    Ok(holder.ok_or_else(none)?.ifindex)
}

/// A socket for what is sent to the group. `own` sends to it by the same interface, and does not
/// hear itself.
fn join(own: &UdpSocket, group: SocketAddr, interface: u32) -> io::Result<UdpSocket> {
    let sender = socket2::SockRef::from(own);
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    // Directors of several configurations may share a machine.
    socket.set_reuse_address(true)?;
    match (group.ip(), own.local_addr()?.ip()) {
        (IpAddr::V4(address), IpAddr::V4(listen)) => {
            let index = socket2::InterfaceIndexOrAddress::Index(interface);
            socket.bind(&group.into())?;
            socket.join_multicast_v4_n(&address, &index)?;
            sender.set_multicast_if_v4(&listen)?;
            sender.set_multicast_loop_v4(false)?;
        }
        (IpAddr::V6(address), _) => {
            socket.set_only_v6(true)?;
            let scoped = SocketAddrV6::new(address, group.port(), 0, interface);
            socket.bind(&SocketAddr::from(scoped).into())?;
            socket.join_multicast_v6(&address, interface)?;
            sender.set_multicast_if_v6(interface)?;
            sender.set_multicast_loop_v6(false)?;
        }
        // The configuration has one family for both.
        (IpAddr::V4(_), IpAddr::V6(_)) => return Err(io::ErrorKind::InvalidInput.into()),
    }
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
