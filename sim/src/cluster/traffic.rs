//! Clients, real servers and their connections: what is sent, and whether what comes out is right.

use super::director::{Director, Fate};
use super::judge::{Judge, Knowledge};
use super::site::{Service, Site};
use crate::frame::Pool;
use crate::rng::Rng;
use crate::wire::{ACK, Addr, FIN, PSH, Packet, RST, SYN, Seen, Stream, TCP, Tuple, to_ip};
use sluice_director::path::Verdict;
use sluice_director::spec::Mode;

/// Which sides have closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Closed {
    pub client: bool,
    pub server: bool,
}

/// A connection, or an exchange of datagrams, as its ends see it.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub service: usize,
    pub client: (Addr, u16),
    /// The real server, and whom it takes for its client.
    pub real: At,
    pub peer: (Addr, u16),
    pub closed: Closed,
    /// The next sequence numbers of the client and the real server.
    seq: [u32; 2],
    pub knowledge: Knowledge,
    /// Whether there was a connection of the same ends before. A director that does not know this
    /// one may take it for that, with the timeout of its state.
    pub follows: bool,
    /// The director that its last packet passed.
    pub by: usize,
}

/// What became of a packet.
#[derive(Debug)]
pub(super) enum Came {
    /// No director was there to take it.
    Nowhere,
    /// It passed this director.
    Passed(usize),
    /// A director that need not know its session did not forward it, or elsewhere: by a session of
    /// its own with this place.
    Astray(Option<Place>),
}

/// Where a director's session leads: the director, the real server, and whom that takes for its
/// client.
pub(super) type Place = (usize, At, (Addr, u16));

/// What is needed to send a packet.
pub(super) struct Desk<'a> {
    pub site: &'a Site,
    pub judge: &'a Judge,
    pub pool: &'a mut Pool,
    /// The director that takes the packet, if any.
    pub by: Option<(usize, &'a mut Director)>,
    pub now: u64,
}

/// A real server's host and the port there.
type At = (usize, u16);

/// A broken invariant.
type Broken = String;

impl Flow {
    /// One that has not begun.
    pub fn new(service: usize, client: (Addr, u16), seq: u32, rng: &mut Rng) -> Self {
        Self {
            service,
            client,
            real: (usize::MAX, 0),
            peer: (0, 0),
            closed: Closed::default(),
            seq: [seq, rng.next() as u32],
            knowledge: Knowledge::default(),
            follows: false,
            by: usize::MAX,
        }
    }

    pub const fn has_begun(&self) -> bool {
        self.real.0 != usize::MAX
    }

    /// The client's next sequence number.
    pub const fn next_seq(&self) -> u32 {
        self.seq[0]
    }

    pub const fn is_over(&self) -> bool {
        self.closed.client && self.closed.server
    }

    /// Milliseconds without a packet for which its session must last at the least.
    pub fn timeout_ms(&self, site: &Site) -> u64 {
        let timeouts = &site.timeouts;
        let seconds = match (site.services[self.service].protocol, self.closed) {
            (TCP, Closed { client: false, server: false }) => timeouts.tcp_established_s,
            (TCP, Closed { client: true, .. }) => timeouts.tcp_fin_wait_s,
            (TCP, _) => timeouts.tcp_close_wait_s,
            _ => timeouts.udp_s,
        };
        u64::from(seconds) * 1000
    }

    fn packet(&self, service: &Service, inbound: bool, flags: u8, len: u16) -> Packet {
        let tuple = if inbound {
            let (src, sport) = self.client;
            Tuple { src, sport, dst: service.vip, dport: service.port, protocol: service.protocol }
        } else {
            let (dst, dport) = self.peer;
            Tuple { src: 0, sport: self.real.1, dst, dport, protocol: service.protocol }
        };
        let (own, other) = if inbound { (0, 1) } else { (1, 0) };
        Packet {
            tuple,
            ttl: 64,
            seq: self.seq[own],
            ack: if flags & ACK == 0 { 0 } else { self.seq[other] },
            flags,
            window: 64_000,
            checksum: true,
            payload: Stream { token: 7, at: 0, len, headed: false },
            ..Packet::default()
        }
    }

    fn advance(&mut self, side: usize, flags: u8, len: u16) {
        let control = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        self.seq[side] = self.seq[side].wrapping_add(u32::from(len) + control);
    }

    /// The client sends a packet. `changes` says that it changes the session's state.
    pub fn ask(
        &mut self,
        desk: Desk<'_>,
        (flags, len): (u8, u16),
        changes: bool,
    ) -> Result<Came, Broken> {
        let Desk { site, judge, pool, by, now } = desk;
        let Some((number, director)) = by else { return Ok(Came::Nowhere) };
        let service = &site.services[self.service];
        let packet = self.packet(service, true, flags, len);
        let place = (number, self.service);
        let timeout = self.timeout_ms(site);
        let must = self.has_begun() && judge.must_know(&mut self.knowledge, place, timeout, now);
        // Hosts inside are behind.
        let front = !service.is_outward();
        let fate = director.forward(pool, &packet, front, now)?;
        let seen = match fate {
            Fate::Sent { front: out, seen } if out != front => seen,
            Fate::Stopped(Verdict::Kernel(_) | Verdict::Drop(_) | Verdict::Answer(..)) if !must => {
                return Ok(Came::Astray(None));
            }
            other => {
                return Err(format!(
                    "director {number} must know the session of {packet} to {}: {}",
                    self.to(site),
                    told(&other)
                ));
            }
        };
        let (real, peer) = arrives(site, service, &packet, &seen)?;
        self.advance(0, flags, len);
        if !self.has_begun() {
            (self.real, self.peer) = (real, peer);
        } else if (real, peer) != (self.real, self.peer) {
            if must {
                return Err(format!(
                    "director {number} sends {packet} to {} from {}:{}, but it belongs to {}",
                    to_ip(site.hosts[real.0]),
                    to_ip(peer.0),
                    peer.1,
                    self.to(site)
                ));
            }
            return Ok(Came::Astray(Some((number, real, peer))));
        } else if self.follows && !must {
            return Ok(Came::Astray(None));
        }
        judge.passed(&mut self.knowledge, place, changes, now);
        self.by = number;
        Ok(Came::Passed(number))
    }

    /// The real server sends a packet.
    pub fn answer(
        &mut self,
        desk: Desk<'_>,
        (flags, len): (u8, u16),
        changes: bool,
    ) -> Result<Came, Broken> {
        let Desk { site, judge, pool, by, now } = desk;
        let service = &site.services[self.service];
        if !service.answers_come_by() {
            self.advance(1, flags, len);
            return Ok(Came::Passed(self.by));
        }
        let Some((number, director)) = by else { return Ok(Came::Nowhere) };
        let mut packet = self.packet(service, false, flags, len);
        packet.tuple.src = site.hosts[self.real.0];
        let place = (number, self.service);
        let timeout = self.timeout_ms(site);
        let must = judge.must_know(&mut self.knowledge, place, timeout, now);
        let front = service.is_outward();
        let fate = director.forward(pool, &packet, front, now)?;
        let right = Tuple {
            src: service.vip,
            sport: service.port,
            dst: self.client.0,
            dport: self.client.1,
            protocol: service.protocol,
        };
        match fate {
            Fate::Sent { front: out, seen }
                if out != front && seen.packet.tuple == right && (must || !self.follows) => {}
            _ if !must => return Ok(Came::Astray(None)),
            other => {
                return Err(format!(
                    "director {number} must know the session of the answer {packet} to {right}: {}",
                    told(&other)
                ));
            }
        }
        self.advance(1, flags, len);
        judge.passed(&mut self.knowledge, place, changes, now);
        self.by = number;
        Ok(Came::Passed(number))
    }

    /// Whether a director, which must know that the connection is over, still forwards to it.
    pub fn haunts(&self, desk: Desk<'_>) -> Result<bool, Broken> {
        let Some((_, director)) = desk.by else { return Ok(false) };
        let service = &desk.site.services[self.service];
        let packet = self.packet(service, true, ACK, 0);
        let front = !service.is_outward();
        let fate = director.forward(desk.pool, &packet, front, desk.now)?;
        Ok(matches!(fate, Fate::Sent { front: out, .. } if out != front))
    }

    /// Where its packets arrive.
    pub fn to(&self, site: &Site) -> String {
        let (host, port) = self.real;
        let host = site.hosts.get(host).map_or_else(String::new, |host| to_ip(*host).to_string());
        format!("{host} port {port} from {}:{}", to_ip(self.peer.0), self.peer.1)
    }
}

fn told(fate: &Fate) -> String {
    match fate {
        Fate::Sent { front, seen } => {
            format!("it became {} by port {}", seen.packet, u8::from(!front))
        }
        Fate::Stopped(verdict) => format!("{verdict:?}"),
    }
}

/// The real server that a packet of a client arrives at and whom that takes for its client.
fn arrives(
    site: &Site,
    service: &Service,
    packet: &Packet,
    seen: &Seen,
) -> Result<(At, (Addr, u16)), Broken> {
    let tuple = seen.packet.tuple;
    let wrong = || format!("{packet} became {} by {}", seen.packet, service.mode.name());
    let host = site.host_of(seen.to).ok_or_else(wrong)?;
    let (_, port) = *service.reals.iter().find(|(real, _)| *real == host).ok_or_else(wrong)?;
    let port = if port == 0 { service.port } else { port };
    let address = site.hosts[host];
    let addressed = match service.mode {
        Mode::Fnat | Mode::Nat => tuple.dst == address,
        Mode::Snat => tuple.dst == address && site.is_pooled(tuple.src),
        Mode::Dr => tuple.dst == service.vip && seen.outer.is_none(),
        _ => seen.outer.is_some_and(|o| o.dst == address) && tuple.dst == service.vip,
    };
    let source = (tuple.src, tuple.sport);
    let client = (packet.tuple.src, packet.tuple.sport);
    let translated = matches!(service.mode, Mode::Fnat | Mode::Snat);
    let sourced = (source == client) != translated;
    if !addressed || !sourced || tuple.dport != port {
        return Err(wrong());
    }
    Ok(((host, port), source))
}

/// What a client or a real server sends after the handshake.
pub(super) const DATA: u8 = PSH | ACK;
pub(super) const RESET: u8 = RST | ACK;
