//! Probes by datagrams: UDP, DNS, ping. An ICMP error comes back as an error of the socket.

use crate::socket::{Trouble, Way, datagrams, echoes, peer};
use sluice_health::expect::Expect;
use sluice_health::finding::printable;
use sluice_health::ping::Echo;
use sluice_health::{Finding, dns};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::timeout;

/// The longest datagram that is looked at, in bytes.
const LONGEST: usize = 64 << 10;

async fn send(socket: &UdpSocket, bytes: &[u8]) -> Result<(), Trouble> {
    socket.send(bytes).await.map(drop).map_err(|error| peer("send", &error))
}

async fn receive(socket: &UdpSocket, into: &mut [u8]) -> Result<usize, Trouble> {
    socket.recv(into).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Trouble::Peer("ICMP port unreachable".to_owned()),
        _ => peer("receive", &error),
    })
}

/// A number that a stranger cannot guess.
fn unguessable(of: u64) -> u64 {
    RandomState::new().hash_one(of)
}

pub async fn udp(
    to: SocketAddr,
    way: &Way,
    (payload, expect): (&[u8], Option<&Expect>),
    patience: Duration,
) -> Result<Finding, Trouble> {
    let socket = datagrams(to, way).await?;
    send(&socket, payload).await?;
    let mut answer = vec![0; LONGEST];
    let length = match (timeout(patience, receive(&socket, &mut answer)).await, expect) {
        (Ok(received), _) => received?,
        (Err(_), None) => return Ok(Finding::pass("no ICMP error")),
        (Err(_), Some(expect)) => {
            return Ok(Finding::fail(format!("no answer, expected {expect}")));
        }
    };
    let answer = &answer[..length];
    if expect.is_none_or(|expect| expect.is_in(answer)) {
        return Ok(Finding::pass(format!("{length} bytes came back")));
    }
    let start = printable(&String::from_utf8_lossy(&answer[..length.min(60)]));
    let expected = expect.map(Expect::to_string).unwrap_or_default();
    Ok(Finding::fail(format!("answer {start:?}, expected {expected}")))
}

pub async fn dns(
    to: SocketAddr,
    way: &Way,
    (name, of, wanted): (&str, dns::Type, dns::Wanted),
) -> Result<Finding, Trouble> {
    let id = unguessable(0) as u16;
    let question = dns::Question::new(id, name, of, wanted);
    let question = question.map_err(|_| Trouble::Blind(format!("{name:?} cannot be asked for")))?;
    let socket = datagrams(to, way).await?;
    send(&socket, question.bytes()).await?;
    let mut answer = [0; dns::ANSWER_BYTES];
    loop {
        let length = receive(&socket, &mut answer).await?;
        // What is no answer to this question may come from anybody.
        if let Some(finding) = question.judge(&answer[..length]) {
            return Ok(finding);
        }
    }
}

pub async fn ping(to: IpAddr, way: &Way, number: u64) -> Result<Finding, Trouble> {
    let cookie = unguessable(number);
    let id = std::process::id() as u16;
    let echo = Echo { v6: to.is_ipv6(), id, sequence: number as u16, cookie };
    let (socket, with_header) = echoes(to, way)?;
    send(&socket, &echo.request()).await?;
    let mut packet = [0; 2048];
    loop {
        let length = receive(&socket, &mut packet).await?;
        if let Some(finding) = echo.judge(&packet[..length], with_header) {
            return Ok(finding);
        }
    }
}
