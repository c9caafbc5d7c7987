//! Sockets of probes: not blocking, bound where the configuration says, and closed so that nothing
//! of a probe stays behind.

use crate::network::Network;
use rustix::io::Errno;
use sluice_health::Finding;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use std::{fmt, io};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// The discard service's port (RFC 863); nothing is sent there.
const DISCARD: u16 = 9;

/// Makes sockets somewhere else than in the machine's own network.
#[derive(Clone)]
pub struct Maker(pub Arc<dyn Fn(Domain, Type, Protocol) -> io::Result<Socket> + Send + Sync>);

impl PartialEq for Maker {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Maker {}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Maker")
    }
}

/// What plain probes may not come from: virtual and local addresses, which the kernel takes for
/// addresses as good as any (RFC 6724, 5: the longest matching prefix), and whose answers are the
/// workers'. Each with the one to take instead. All clones share it.
#[derive(Clone, Debug, Default)]
pub struct Sources(Arc<RwLock<HashMap<IpAddr, IpAddr>>>);

impl Sources {
    /// Replaces them.
    pub fn set(&self, instead: HashMap<IpAddr, IpAddr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = instead;
    }

    /// The address to come from, where that is not what the kernel would choose.
    fn instead(&self, to: IpAddr, way: &Way) -> Option<IpAddr> {
        let instead = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if instead.keys().all(|source| source.is_ipv4() != to.is_ipv4()) {
            return None;
        }
        // To connect a datagram socket sends nothing. What fails here fails again, and is told,
        // where the probe begins.
        let scratch = Socket::new(domain(to), Type::DGRAM, Some(Protocol::UDP)).ok()?;
        steer(&scratch, way).ok()?;
        scratch.connect(&SockAddr::from(SocketAddr::new(to, DISCARD))).ok()?;
        let chosen = scratch.local_addr().ok()?.as_socket()?.ip();
        instead.get(&chosen).copied()
    }
}

impl PartialEq for Sources {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Sources {}

/// Where a probe's packets leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// Who makes its sockets; the machine's own network without.
    pub maker: Option<Maker>,
    /// Source address; without, the kernel chooses.
    pub source: Option<IpAddr>,
    /// What the kernel may not choose.
    pub sources: Sources,
    /// Source port; 0 for any.
    pub port: u16,
    /// Mark of its packets (`SO_MARK`), for policy routing; 0 for none.
    pub mark: u32,
    /// Interface that they leave by (`SO_BINDTODEVICE`).
    pub interface: Option<String>,
    /// The isolated network whose device they leave by if there is no `interface`.
    pub network: Option<Network>,
}

/// Why there is no conversation.
#[derive(Debug)]
pub enum Trouble {
    /// The director could not look.
    Blind(String),
    /// The real server, or the way to it, did not do its part.
    Peer(String),
    /// There is no route, says this machine's kernel or a router.
    NoRoute(String),
}

impl From<Trouble> for Finding {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Blind(text) => Self::blind(text),
            Trouble::Peer(text) | Trouble::NoRoute(text) => Self::fail(text),
        }
    }
}

/// What a failed call of an existing socket means.
pub fn peer(what: &str, error: &io::Error) -> Trouble {
    // These are about this machine, not about the peer.
    let own = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    let text = format!("{what}: {}", words(error));
    if errno.is_some_and(|errno| own.contains(&errno)) {
        Trouble::Blind(text)
    } else if errno == Some(Errno::NETUNREACH) {
        Trouble::NoRoute(text)
    } else {
        Trouble::Peer(text)
    }
}

/// The system's words for an error, without its number.
pub fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = text.split(" (os error").next().unwrap_or(&text);
    plain.to_lowercase()
}

fn blind(what: &'static str) -> impl Fn(io::Error) -> Trouble {
    move |error| Trouble::Blind(format!("cannot {what}: {}", words(&error)))
}

const fn domain(to: IpAddr) -> Domain {
    if to.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 }
}

fn open(to: IpAddr, kind: Type, protocol: Protocol, way: &Way) -> Result<Socket, Trouble> {
    let made = match &way.maker {
        Some(maker) => maker.0(domain(to), kind, protocol),
        None => Socket::new(domain(to), kind, Some(protocol)),
    };
    let socket = made.map_err(blind("open a socket"))?;
    socket.set_nonblocking(true).map_err(blind("open a socket"))?;
    steer(&socket, way)?;
    if let Some(source) = way.source.or_else(|| way.sources.instead(to, way)) {
        // A port that was just used for another real server, or by the probe before.
        socket.set_reuse_address(way.port != 0).map_err(blind("bind to the source address"))?;
        let bound = socket.bind(&SockAddr::from(SocketAddr::new(source, way.port)));
        bound.map_err(blind("bind to the source address"))?;
    }
    Ok(socket)
}

fn steer(socket: &Socket, way: &Way) -> Result<(), Trouble> {
    if way.mark != 0 {
        socket.set_mark(way.mark).map_err(blind("mark packets"))?;
    }
    if let Some(interface) = &way.interface {
        let bound = socket.bind_device(Some(interface.as_bytes()));
        bound.map_err(blind("bind to the interface"))?;
    }
    Ok(())
}

/// A connection. It is reset when it is closed, so that neither end keeps it.
pub async fn connect(to: SocketAddr, way: &Way) -> Result<TcpStream, Trouble> {
    let socket = open(to.ip(), Type::STREAM, Protocol::TCP, way)?;
    socket.set_linger(Some(Duration::ZERO)).map_err(blind("open a socket"))?;
    // Requests are small, and answered before there is more to send.
    socket.set_tcp_nodelay(true).map_err(blind("open a socket"))?;
    let connected = TcpSocket::from_std_stream(socket.into()).connect(to).await;
    connected.map_err(|error| peer("connect", &error))
}

/// A socket that sends datagrams to, and hears from, one peer.
pub async fn datagrams(to: SocketAddr, way: &Way) -> Result<UdpSocket, Trouble> {
    let socket = open(to.ip(), Type::DGRAM, Protocol::UDP, way)?;
    connected(socket, to)
}

/// A socket for echo requests; and whether what it receives begins with an IPv4 header.
pub fn echoes(to: IpAddr, way: &Way) -> Result<(UdpSocket, bool), Trouble> {
    let protocol = if to.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
    // Needs no privilege where `net.ipv4.ping_group_range` allows it.
    let (socket, raw) = match open(to, Type::DGRAM, protocol, way) {
        Ok(socket) => (socket, false),
        Err(_) => (open(to, Type::RAW, protocol, way)?, true),
    };
    let socket = connected(socket, SocketAddr::new(to, 0))?;
    Ok((socket, raw && to.is_ipv4()))
}

fn connected(socket: Socket, to: SocketAddr) -> Result<UdpSocket, Trouble> {
    socket.connect(&SockAddr::from(to)).map_err(|error| peer("connect", &error))?;
    UdpSocket::from_std(socket.into()).map_err(blind("open a socket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two addresses of the machine's own, of which the kernel takes the first.
    #[test]
    fn a_probe_comes_from_a_stand_in() {
        let own = |last| IpAddr::from([127, 0, 0, last]);
        let way = Way::default();
        let to = SocketAddr::new(own(1), DISCARD);
        let source = |way: &Way| {
            let socket = open(to.ip(), Type::DGRAM, Protocol::UDP, way).expect("a socket");
            socket.connect(&SockAddr::from(to)).expect("a peer");
            socket.local_addr().expect("an address").as_socket().map(|it| it.ip())
        };
        assert_eq!(source(&way), Some(own(1)));
        way.sources.set(HashMap::from([(own(1), own(2))]));
        assert_eq!(source(&way), Some(own(2)));
        let named = Way { source: Some(own(3)), ..way.clone() };
        assert_eq!(source(&named), Some(own(3)));
        way.sources.set(HashMap::from([(own(9), own(2))]));
        assert_eq!(source(&way), Some(own(1)), "another is of no concern");
    }
}
