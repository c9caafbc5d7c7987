//! `sluice-peer`: the little clients and servers that no package offers in the form the tests
//! need. Runs inside a namespace; says on standard output what it saw.
#![forbid(unsafe_code)]

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};

const PATIENCE: Duration = Duration::from_secs(2);
/// How long a line may be on its way. A busy machine answers late; a broken connection never does.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);

#[derive(Parser)]
#[command(about = "Little clients and servers for Sluice's end-to-end tests")]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Answers every datagram with itself.
    UdpEcho {
        /// Port to listen on.
        port: u16,
        /// The addresses to listen on and to answer from; all of both families otherwise.
        #[arg(default_value = "::")]
        addresses: Vec<IpAddr>,
    },
    /// Sends datagrams from one socket each and checks that they come back unchanged.
    UdpProbe {
        /// Whom to ask.
        server: SocketAddr,
        /// How many datagrams.
        count: u32,
        /// Bytes in each.
        size: usize,
    },
    /// Sends each server a burst of datagrams at once and says which of them came back.
    UdpBursts {
        /// The local port, the same for all.
        from: u16,
        /// The datagrams of a burst.
        each: u8,
        /// Whom to ask, one after the other.
        servers: Vec<SocketAddr>,
    },
    /// Answers every datagram and every HTTP request with the endpoint that it came from.
    Reflect {
        /// Where to listen, and to answer from.
        addresses: Vec<SocketAddr>,
    },
    /// Asks reflecting servers by UDP one after the other, all from one local port, and says each
    /// answer. (For TCP there is `curl --local-port`.)
    Ask {
        /// The local port.
        from: u16,
        /// Whom to ask.
        servers: Vec<SocketAddr>,
    },
    /// Greets as ssh does, then echoes lines.
    Lines {
        /// Port to listen on.
        port: u16,
    },
    /// Opens a line session and keeps it busy with a line every 50 ms; says `line N` for each that
    /// came back, and ends when one does not.
    Hold {
        /// The line service.
        server: SocketAddr,
        /// Seconds to keep it busy.
        seconds: u64,
        /// A file: once it exists, it has been busy long enough.
        over: Option<PathBuf>,
    },
    /// Copies standard input to standard output at a rate until a file exists, the rest at once.
    Pace {
        /// The rate.
        bytes_per_s: u32,
        /// The file.
        over: PathBuf,
    },
    /// Opens many connections one after the other, gets one HTTP answer on each, closes it.
    Connects {
        /// The web service.
        server: SocketAddr,
        /// How many connections.
        count: u32,
        /// How many at once.
        parallel: u32,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().role {
        Role::UdpEcho { port, addresses } => udp_echo(&addresses, port),
        Role::UdpProbe { server, count, size } => udp_probe(server, count, size),
        Role::UdpBursts { from, each, servers } => udp_bursts(from, each, &servers),
        Role::Reflect { addresses } => reflect(addresses),
        Role::Ask { from, servers } => ask(from, &servers),
        Role::Lines { port } => lines(port),
        Role::Hold { server, seconds, over } => {
            hold(server, Duration::from_secs(seconds), over.as_deref())
        }
        Role::Pace { bytes_per_s, over } => pace(bytes_per_s, &over),
        Role::Connects { server, count, parallel } => connects(server, count, parallel),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-peer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

fn udp_echo(addresses: &[IpAddr], port: u16) -> io::Result<()> {
    let sockets: Vec<_> =
        addresses.iter().map(|own| UdpSocket::bind((*own, port))).collect::<Result<_, _>>()?;
    say("listening")?;
    let all: Vec<_> =
        sockets.into_iter().map(|one| std::thread::spawn(move || echo_datagrams(&one))).collect();
    all.into_iter().try_for_each(|one| one.join().unwrap_or(Ok(())))
}

fn echo_datagrams(socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => drop(socket.send_to(&buffer[..len], from)),
            // A client that went away answers with an ICMP error; that is its own affair.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
}

fn udp_probe(server: SocketAddr, count: u32, size: usize) -> io::Result<()> {
    let mut answered = 0;
    for number in 0..count {
        let socket = UdpSocket::bind((any_like(server), 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        // Odd sizes and changing bytes, so that a checksum has something to get wrong.
        let datagram: Vec<u8> =
            (0..size + number as usize % 2).map(|at| (at as u32 * 31 + number) as u8).collect();
        socket.send(&datagram)?;
        let mut buffer = vec![0; 65_536];
        match socket.recv(&mut buffer) {
            Ok(len) if buffer[..len] == datagram[..] => answered += 1,
            Ok(_) => return Err(io::Error::other(format!("datagram {number} came back changed"))),
            Err(error) => return Err(io::Error::other(format!("datagram {number}: {error}"))),
        }
    }
    say(&format!("answered {answered}"))
}

/// Says for each server who answered how much, and the numbers of the datagrams that are missing.
fn udp_bursts(from: u16, each: u8, servers: &[SocketAddr]) -> io::Result<()> {
    let first = servers.first().ok_or_else(|| io::Error::other("nobody to ask"))?;
    let socket = UdpSocket::bind((any_like(*first), from))?;
    for server in servers {
        for number in 0..each {
            socket.send_to(&[number], server)?;
        }
        let mut missing: Vec<u8> = (0..each).collect();
        let deadline = Instant::now() + PATIENCE;
        while !missing.is_empty() && Instant::now() < deadline {
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            let mut datagram = [0; 2];
            match socket.recv_from(&mut datagram) {
                Ok((1, from)) if from == *server => missing.retain(|one| *one != datagram[0]),
                Ok((len, from)) => say(&format!("{from} sent {len} bytes"))?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        if missing.is_empty() {
            say(&format!("{server} answered"))?;
        } else {
            say(&format!("{server} did not answer {missing:?}"))?;
        }
    }
    Ok(())
}

fn any_like(server: SocketAddr) -> IpAddr {
    match server.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn reflect(addresses: Vec<SocketAddr>) -> io::Result<()> {
    let mut all = Vec::new();
    for address in addresses {
        let (datagrams, connections) = (UdpSocket::bind(address)?, TcpListener::bind(address)?);
        all.push(std::thread::spawn(move || reflect_datagrams(&datagrams)));
        std::thread::spawn(move || {
            for (connection, from) in connections.incoming().flatten().filter_map(|connection| {
                let from = connection.peer_addr().ok()?;
                Some((connection, from))
            }) {
                // A client that has gone already gets no answer.
                let _ = reflect_http(&connection, &from.to_string());
            }
        });
    }
    say("listening")?;
    all.into_iter().try_for_each(|one| one.join().unwrap_or(Ok(())))
}

fn reflect_datagrams(socket: &UdpSocket) -> io::Result<()> {
    loop {
        let (_, from) = socket.recv_from(&mut [0; 1])?;
        socket.send_to(from.to_string().as_bytes(), from)?;
    }
}

/// HTTP, so that curl understands it: the request is read to its empty line first.
fn reflect_http(connection: &TcpStream, text: &str) -> io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(connection).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let mut connection = connection;
    write!(connection, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

fn ask(port: u16, servers: &[SocketAddr]) -> io::Result<()> {
    let first = servers.first().ok_or_else(|| io::Error::other("nobody to ask"))?;
    let socket = UdpSocket::bind((any_like(*first), port))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = [0; 100];
    for server in servers {
        socket.send_to(b"?", server)?;
        let (len, from) = socket.recv_from(&mut buffer)?;
        if from != *server {
            return Err(io::Error::other(format!("asked {server}, {from} answered")));
        }
        say(&String::from_utf8_lossy(&buffer[..len]))?;
    }
    Ok(())
}

fn lines(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
    say("listening")?;
    for connection in listener.incoming() {
        let connection = connection?;
        // A session that breaks off ends its own thread only.
        std::thread::spawn(move || echo_lines(connection));
    }
    Ok(())
}

fn echo_lines(mut connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    connection.write_all(b"SSH-2.0-sluice-peer\r\n")?;
    let mut buffer = [0; 4096];
    loop {
        let len = connection.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        connection.write_all(&buffer[..len])?;
    }
}

/// Connects, again and again while there is no route: BFD on a busy machine takes one away now and
/// then, for a second.
fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect_timeout(&server, PATIENCE) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable
                ) && begun.elapsed() < ANSWER_PATIENCE =>
            {
                std::thread::sleep(Duration::from_millis(50));
            }
            done => return done,
        }
    }
}

fn hold(server: SocketAddr, span: Duration, over: Option<&Path>) -> io::Result<()> {
    let mut connection = connect(server)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(ANSWER_PATIENCE))?;
    let mut answers = BufReader::new(connection.try_clone()?);
    let mut greeting = String::new();
    answers.read_line(&mut greeting)?;
    say(&format!("greeted {}", greeting.trim_end()))?;
    let started = Instant::now();
    let mut number = 0_u32;
    let mut is_last = false;
    // One line follows what it was held for.
    while !is_last {
        is_last = started.elapsed() >= span || over.is_some_and(Path::exists);
        number += 1;
        let line = format!("line {number}\n");
        connection.write_all(line.as_bytes())?;
        let mut answer = String::new();
        answers.read_line(&mut answer)?;
        if answer != line {
            return Err(io::Error::other(format!("sent {line:?}, got {answer:?}")));
        }
        say(&format!("line {number}"))?;
        std::thread::sleep(Duration::from_millis(50));
    }
    say("held")
}

fn pace(bytes_per_s: u32, over: &Path) -> io::Result<()> {
    const A_SECOND: u32 = 20;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let chunk = u64::from(bytes_per_s / A_SECOND);
    while !over.exists() && io::copy(&mut input.by_ref().take(chunk), &mut output)? > 0 {
        std::thread::sleep(Duration::from_secs(1) / A_SECOND);
    }
    io::copy(&mut input, &mut output)?;
    output.flush()
}

fn connects(server: SocketAddr, count: u32, parallel: u32) -> io::Result<()> {
    let next = AtomicU32::new(0);
    let good = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..parallel {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    match one_request(server) {
                        Ok(()) => drop(good.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => eprintln!("sluice-peer: {error}"),
                    }
                }
            });
        }
    });
    let good = good.into_inner();
    say(&format!("answered {good}"))?;
    if good == count { Ok(()) } else { Err(io::Error::other(format!("{good} of {count}"))) }
}

fn one_request(server: SocketAddr) -> io::Result<()> {
    let mut connection = TcpStream::connect_timeout(&server, PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    if text.starts_with("HTTP/1.1 200") && text.contains("Real Server 0") {
        return Ok(());
    }
    Err(io::Error::other(format!("unexpected answer {text:?}")))
}
