//! Sockets of probes: not blocking, bound where the configuration says, and closed so that nothing
//! of a probe stays behind.

use rustix::io::Errno;
use sluice_health::Finding;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// Where a probe's packets leave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Way {
    /// Source address.
    pub source: Option<IpAddr>,
    /// Mark of its packets (`SO_MARK`), for policy routing; 0 for none.
    pub mark: u32,
    /// Interface that they leave by (`SO_BINDTODEVICE`).
    pub interface: Option<String>,
}

/// Why there is no conversation.
#[derive(Debug)]
pub enum Trouble {
    /// The director could not look.
    Blind(String),
    /// The real server, or the way to it, did not do its part.
    Peer(String),
}

impl From<Trouble> for Finding {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Blind(text) => Self::blind(text),
            Trouble::Peer(text) => Self::fail(text),
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

fn open(to: IpAddr, kind: Type, protocol: Protocol, way: &Way) -> Result<Socket, Trouble> {
    let domain = if to.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, kind, Some(protocol)).map_err(blind("open a socket"))?;
    settle(&socket, way)?;
    Ok(socket)
}

fn settle(socket: &Socket, way: &Way) -> Result<(), Trouble> {
    socket.set_nonblocking(true).map_err(blind("open a socket"))?;
    if way.mark != 0 {
        socket.set_mark(way.mark).map_err(blind("mark packets"))?;
    }
    if let Some(interface) = &way.interface {
        let bound = socket.bind_device(Some(interface.as_bytes()));
        bound.map_err(blind("bind to the interface"))?;
    }
    if let Some(source) = way.source {
        let bound = socket.bind(&SockAddr::from(SocketAddr::new(source, 0)));
        bound.map_err(blind("bind to the source address"))?;
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
