//! What became of a packet, in words: the steps of a trace, and the comment of a capture.

use super::names::Names;
use super::{Caught, Teller, line};
use sluice_api::model::{LookEnd, PacketFate, TraceLine, TraceStep, TracedPacket};
use sluice_director::counters::Direction;
use sluice_director::family::Tuple;
use sluice_director::fib::PortId;
use sluice_director::path::{Headers, SeenSession, Verdict};
use sluice_director::plan::Plan;
use sluice_director::spec::Mode;
use sluice_worker::capture_point::{Came, Catch};
use std::net::{IpAddr, SocketAddr};

/// A trace as lines of JSON.
pub struct Trace {
    names: Names,
    told: u64,
    out: Vec<u8>,
}

impl Trace {
    pub const fn new(names: Names) -> Self {
        Self { names, told: 0, out: Vec::new() }
    }
}

impl Teller for Trace {
    fn begin(&mut self, workers: usize) {
        self.out = line(&TraceLine::Watching { workers: workers as u64 });
    }

    fn tell(&mut self, caught: &Caught) {
        self.told += 1;
        let packet = traced(&self.names, &caught.catch, self.told);
        self.out.extend(line(&TraceLine::Packet(Box::new(packet))));
    }

    fn end(&mut self, end: &LookEnd) {
        self.out.extend(line(&TraceLine::End(end.clone())));
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn told(&self) -> u64 {
        self.told
    }
}

/// One packet with all that was decided.
fn traced(names: &Names, catch: &Catch, number: u64) -> TracedPacket {
    let headers = catch.view.map(|view| view.headers).or(catch.sent_headers);
    let mut steps = Steps { names, catch, steps: Vec::new() };
    steps.came();
    steps.owned();
    steps.session();
    steps.left();
    let (fate, text) = fate(names, catch);
    steps.add(step_of(fate), text);
    TracedPacket {
        number,
        at_unix_s: catch.at_ns as f64 / 1e9,
        worker: catch.worker,
        packet: headers.map_or_else(|| "no IP packet".to_owned(), |headers| packet(&headers)),
        fate,
        reason: catch.reason().map(|reason| reason.name().to_owned()),
        steps: steps.steps,
    }
}

const fn step_of(fate: PacketFate) -> &'static str {
    match fate {
        PacketFate::Sent => "send",
        PacketFate::Answered => "answer",
        PacketFate::Kernel => "kernel",
        PacketFate::HandedOff => "hand off",
        PacketFate::Waits => "wait",
        PacketFate::Dropped => "drop",
    }
}

struct Steps<'a> {
    names: &'a Names,
    catch: &'a Catch,
    steps: Vec<TraceStep>,
}

impl Steps<'_> {
    fn add(&mut self, step: &str, text: impl Into<String>) {
        self.steps.push(TraceStep { step: step.to_owned(), text: text.into() });
    }

    fn came(&mut self) {
        let Catch { came, port, received, .. } = *self.catch;
        let port = match self.names.ports.get(usize::from(port.0)) {
            Some((name, device)) => format!("{name} ({device})"),
            None => self.names.port(port),
        };
        let length = received.map(|kept| kept.length).unwrap_or_default();
        let text = match came {
            Came::Line => format!("by {port}, {length} bytes"),
            Came::Handed(home) => {
                format!("from another worker; worker {home} had it from {port}, {length} bytes")
            }
            Came::Parked(ms) => {
                format!("by {port} {ms} ms ago; its datagram's first fragment has come")
            }
            Came::Kernel => format!("from the kernel, by the twin of {port}"),
            Came::Held => "it had waited for its next hop's MAC address".to_owned(),
        };
        self.add("receive", text);
        if let Some(view) = self.catch.view {
            self.add("parse", described(&view.headers));
        }
    }

    /// Whose it is.
    fn owned(&mut self) {
        let Some(view) = self.catch.view else { return };
        let plan = self.names.latest().plan;
        let Headers { tuple, fragment, icmp, .. } = view.headers;
        let text = if let Some(service) = view.service.and_then(|id| plan.service(id)) {
            let (name, ports) = (&service.name, service.ports);
            format!("service {name}: {} {} port {ports}", service.protocol.name(), service.vip)
        } else if let Some((pool, owner)) = view.pool {
            let name = plan.pools.get(pool).map_or("", |pool| &pool.name);
            match owner {
                Some(worker) => {
                    format!(
                        "local address of pool {name}; port {} is worker {worker}'s",
                        tuple.dport
                    )
                }
                None => format!("local address of pool {name}, but none of its ports"),
            }
        } else if fragment.is_some() {
            "fragment: the first of its datagram decides".to_owned()
        } else if icmp.is_some() && tuple.sport == 0 && tuple.dport == 0 {
            "ICMP: the packet that it quotes, if any, decides".to_owned()
        } else if view.session.is_some() {
            "known by its session".to_owned()
        } else {
            "neither a service nor a local address".to_owned()
        };
        self.add("match", text);
    }

    fn session(&mut self) {
        let Catch { opened, ended, session, .. } = *self.catch;
        let Some(view) = self.catch.view else { return };
        let plan = self.names.latest().plan;
        let before = view.session;
        if self.catch.verdict.is_some() && view.headers.fragment.is_none() {
            self.add("session", before.map_or_else(|| "none".to_owned(), |s| seen(&plan, &s)));
        }
        if let Some(now) = session.filter(|_| opened) {
            self.add("schedule", scheduled(&plan, &now, view.remembered.is_some()));
            let local = now
                .session
                .local
                .map_or_else(String::new, |local| format!(", local {}", SocketAddr::from(local)));
            let (state, expires) = (now.session.state.name(), now.session.expires_ms / 1000);
            self.add("open", format!("new session: {state}, {expires} s{local}"));
        } else if let (Some(before), Some(now)) = (before, session)
            && before.session.state != now.session.state
        {
            let (from, to) = (before.session.state.name(), now.session.state.name());
            self.add("state", format!("{from} → {to}"));
        }
        if ended > 0 {
            self.add("session", format!("{ended} ended or timed out"));
        }
    }

    /// What it was made and where it goes.
    fn left(&mut self) {
        let Catch { sent_headers, sent_to, sent_by, session, gateway, .. } = *self.catch;
        let answered = matches!(self.catch.verdict, Some(Verdict::Answer(..)));
        if let Some(sent) = sent_headers {
            let mode = session.map(|seen| seen.session.mode);
            let becomes = described(&sent);
            let text = match mode {
                _ if answered => format!("becomes the answer {becomes}"),
                _ if gateway => format!("routed for its sender: {becomes}"),
                Some(Mode::Dr) => "dr: as it is, to the real server's MAC address".to_owned(),
                Some(mode) if mode.is_tunnel() => format!("{}: goes inside {becomes}", mode.name()),
                Some(mode) => format!("{}: becomes {becomes}", mode.name()),
                None => format!("leaves as {becomes}"),
            };
            self.add("translate", text);
        }
        if let (Some(port), Some((mac, vlan))) = (sent_by, sent_to) {
            let next = self.names.neighbour(port, (mac, vlan));
            let next = next.map_or_else(|| "unknown".to_owned(), |next| next.to_string());
            let tag = if vlan == 0 { String::new() } else { format!(", VLAN {vlan}") };
            let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
            self.add("next hop", format!("{next} at {mac}{tag}"));
        }
    }
}

/// Which real server a new session has, and by whose choice.
fn scheduled(plan: &Plan, seen: &SeenSession, remembered: bool) -> String {
    let real = SocketAddr::from(seen.session.real);
    if seen.session.mode == Mode::Snat {
        return format!("source NAT towards {real}");
    }
    let service = plan.service(seen.session.service);
    let scheduler = service.map_or("scheduler", |service| service.scheduler.name());
    match remembered {
        true => format!("persistence remembers {real}"),
        false => format!("{scheduler} chose {real}"),
    }
}

/// A session that was found.
fn seen(plan: &Plan, seen: &SeenSession) -> String {
    let SeenSession { direction, session, timed_out } = seen;
    let service = plan.service(session.service).map_or("", |service| &service.name);
    let (client, real) = (SocketAddr::from(session.client), SocketAddr::from(session.real));
    let (state, mode) = (session.state.name(), session.mode.name());
    let way = match direction {
        Direction::Inbound => "inbound",
        Direction::Outbound => "outbound",
    };
    let over = if *timed_out { "; it has timed out and is none" } else { "" };
    format!("{way} of {service}: client {client}, real server {real} ({mode}), {state}{over}")
}

/// What became of a packet, and how that is said.
fn fate(names: &Names, catch: &Catch) -> (PacketFate, String) {
    if let Some(reason) = catch.lost {
        return (PacketFate::Dropped, format!("{}: {}", reason.name(), reason.text()));
    }
    let by = |port: PortId| format!("by {}", names.port(port));
    let length = catch.sent.map_or(0, |kept| kept.length);
    match catch.verdict {
        Some(Verdict::Drop(reason)) => {
            (PacketFate::Dropped, format!("{}: {}", reason.name(), reason.text()))
        }
        Some(Verdict::Answer(port, reason)) => {
            let text =
                format!("{}, {length} bytes: {}: {}", by(port), reason.name(), reason.text());
            (PacketFate::Answered, text)
        }
        Some(Verdict::Kernel(reason)) if !catch.gateway => {
            (PacketFate::Kernel, format!("{}: {}", reason.name(), reason.text()))
        }
        Some(Verdict::HandOff(worker)) => (
            PacketFate::HandedOff,
            format!("to worker {worker}, which has or would have its session"),
        ),
        Some(Verdict::Wait) => {
            let next = catch.waits.map_or_else(String::new, |(_, next)| next.to_string());
            (PacketFate::Waits, format!("for the MAC address of {next}"))
        }
        Some(Verdict::Park(_)) => {
            (PacketFate::Waits, "for the first fragment of its datagram".to_owned())
        }
        Some(Verdict::Fragment(port, mtu)) => {
            (PacketFate::Sent, format!("{}, in pieces of at most {mtu} bytes", by(port)))
        }
        _ => {
            let port = catch.sent_by.unwrap_or(catch.port);
            (PacketFate::Sent, format!("{}, {length} bytes", by(port)))
        }
    }
}

/// What a capture says of a packet.
pub fn comment(names: &Names, catch: &Catch) -> String {
    let plan = names.latest().plan;
    let (fate, mut text) = fate(names, catch);
    let reason = catch.reason().map_or("", |reason| reason.name());
    text = match (fate, catch.came) {
        (PacketFate::Dropped, _) => format!("dropped: {reason}"),
        (PacketFate::Kernel, _) => format!("left to the kernel: {reason}"),
        (PacketFate::Answered, _) => format!("answered in place of being forwarded: {reason}"),
        (_, Came::Kernel) => "the kernel's own".to_owned(),
        (PacketFate::Waits, _) => format!("waits {text}"),
        (PacketFate::Sent, _) => format!("forwarded {text}"),
        (PacketFate::HandedOff, _) => format!("handed {text}"),
    };
    let before = catch.view.and_then(|view| view.session);
    if let Some(SeenSession { session, .. }) = catch.session.or(before) {
        let name = plan.service(session.service).map_or("", |service| &service.name);
        let (mode, real) = (session.mode.name(), SocketAddr::from(session.real));
        let state = if catch.opened { "new session" } else { session.state.name() };
        text.push_str(&format!("; {name}, {mode}, real server {real}, {state}"));
    } else if let Some(id) = catch.view.and_then(|view| view.service) {
        let name = plan.service(id).map_or("", |service| &service.name);
        text.push_str(&format!("; {name}"));
    }
    text.push_str(&format!("; worker {}", catch.worker));
    text
}

/// A packet in a few words.
fn packet(headers: &Headers) -> String {
    let Tuple { src, dst, sport, dport, protocol } = headers.tuple;
    let end = |address: IpAddr, port: u16| match (headers.icmp, sport, dport) {
        (None, 0, 0) | (Some(_), _, _) => address.to_string(),
        _ => SocketAddr::new(address, port).to_string(),
    };
    let name = match protocol {
        1 => "icmp".to_owned(),
        4 | 41 => "ip in ip".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmpv6".to_owned(),
        132 => "sctp".to_owned(),
        other => format!("protocol {other}"),
    };
    format!("{name} {} → {}", end(src, sport), end(dst, dport))
}

/// A packet's headers.
fn described(headers: &Headers) -> String {
    let mut text = packet(headers);
    if let Some(flags) = headers.flags {
        let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let set = names.iter().enumerate().filter(|(bit, _)| flags >> bit & 1 == 1);
        let set: Vec<_> = set.map(|(_, name)| *name).collect();
        text.push_str(&format!(
            ", {}",
            if set.is_empty() { "no flags".into() } else { set.join(" ") }
        ));
    }
    if let Some((kind, code)) = headers.icmp {
        text.push_str(&format!(", type {kind} code {code}"));
    }
    if let Some(offset) = headers.fragment {
        text.push_str(&format!(", fragment at {offset}"));
    }
    text.push_str(&format!(", TTL {}, {} bytes", headers.ttl, headers.length));
    text
}
