//! What must hold for each frame and for all counters, seen with `etherparse`'s eyes.
//!
//! What a forwarded packet must have become follows from its session, as an operator sees it, and
//! from the session's mode; what was configured says whether bytes may have been put in.

mod told;

use std::collections::HashSet;
use std::net::IpAddr;

use sluice_director::counters::Counters;
use sluice_director::fib::PortId;
use sluice_director::path::{Path, SessionInfo, Verdict};
use sluice_director::reason::{Fate, Reason};
use sluice_director::session::State;
use sluice_director::spec::{ClientAddress, Mode, Spec};
use sluice_testkit::describe;

use super::Reached;
use super::craft::{GRE, ICMP, ICMPV6, SCTP, TCP, UDP};
use super::director::{Arrival, Outcome};
use super::frame::{Seen, see, see_packet, sum_of};
use super::world::{self, MACS, World, next_mac};

/// One frame, and everything it is judged by.
#[derive(Clone)]
pub struct Case<'a> {
    pub world: &'a World,
    pub spec: &'a Spec,
    pub arrival: Arrival,
    /// The frame as it came.
    pub before: &'a [u8],
    pub outcome: Outcome,
    /// The sessions of each worker before and after it.
    pub known: Vec<Vec<SessionInfo>>,
    pub since: Vec<Vec<SessionInfo>>,
    /// All counters before and after it.
    pub counted: (Counters, Counters),
    /// Whether the configuration has ever changed.
    pub changed: bool,
}

/// How a packet of a session is forwarded: which mode, and what its ends become.
struct Way<'a> {
    session: &'a SessionInfo,
    inbound: bool,
    source: (IpAddr, u16),
    destination: (IpAddr, u16),
}

impl Case<'_> {
    fn sessions(&self) -> impl Iterator<Item = &SessionInfo> {
        self.known.iter().chain(&self.since).flatten()
    }

    fn story(&self, after: &[u8]) -> String {
        let now: Vec<_> = self.sessions().collect();
        let (before, after) = (describe(self.before), describe(after));
        format!("{:?} at {:?}\n{before}\n{after}\n{now:?}", self.outcome, self.arrival)
    }

    /// Whether an address is an outer source of tunnels.
    fn is_tunnels(&self, address: IpAddr) -> bool {
        let net = match address {
            IpAddr::V4(_) => self.spec.tunnel.v4,
            IpAddr::V6(_) => self.spec.tunnel.v6,
        };
        net.is_some_and(|net| net.contains(address))
    }

    /// The ways of a packet with these ends, if any.
    fn ways(&self, was: &Seen) -> Vec<Way<'_>> {
        let ports = was.ports();
        let (source, destination) = ((was.source, ports.0), (was.destination, ports.1));
        let mut ways = Vec::new();
        for s in self.sessions().filter(|s| s.protocol == was.protocol) {
            let local = s.local.unwrap_or(s.client);
            if (s.client, s.virtual_) == (source, destination) {
                let (source, destination) = match s.mode {
                    Mode::Fnat => (local, s.real),
                    Mode::Nat => (source, s.real),
                    Mode::Dr | Mode::Ipip | Mode::Gue | Mode::Gre => (source, destination),
                    Mode::Snat => (local, destination),
                };
                ways.push(Way { session: s, inbound: true, source, destination });
            }
            let answered = matches!(s.mode, Mode::Fnat | Mode::Nat | Mode::Snat);
            if answered && (s.real, local) == (source, destination) {
                let way =
                    Way { session: s, inbound: false, source: s.virtual_, destination: s.client };
                ways.push(way);
            }
        }
        ways
    }

    /// Whether a later fragment's place may have become another: the same, or further back by what
    /// was put into the first, a multiple of eight.
    fn may_lie(&self, was: Option<(u16, bool)>, is: Option<(u16, bool)>) -> bool {
        let (Some((from, more)), Some((to, still))) = (was, is) else { return false };
        let mut services = self.spec.services.iter();
        let told = self.changed || services.any(|s| s.client_address != ClientAddress::Hidden);
        let by = to.wrapping_sub(from);
        more == still && (by == 0 || told && by.is_multiple_of(8) && by <= 112)
    }

    /// Whether real servers of a session learn the client's address by bytes that are put in.
    fn tells_client(&self, session: &SessionInfo) -> bool {
        let (vip, port) = session.virtual_;
        session.mode == Mode::Fnat
            && self.spec.services.iter().any(|service| {
                service.vip == vip
                    && service.ports.contains(port)
                    && service.client_address != ClientAddress::Hidden
            })
    }
}

/// Judges one frame: the case, and as it is now.
pub fn frame(case: &Case<'_>, after: &[u8], reached: &mut Reached) {
    let (verdict, story) = (case.outcome.verdict, || case.story(after));
    let six = see(case.before).is_some_and(|was| was.source.is_ipv6());
    counted(case, after);
    created(case, after);
    if case.outcome.handed > 0 {
        reached.insert(("handed", six));
    }
    let name = match verdict {
        Verdict::Kernel(reason) => {
            assert_eq!(reason.fate(), Fate::Kernel, "{}", reason.name());
            assert_eq!(case.before, after, "what is the kernel's is left as it was");
            "kernel"
        }
        Verdict::Drop(reason) => {
            assert_eq!(reason.fate(), Fate::Dropped, "{}", reason.name());
            reason.name()
        }
        Verdict::Tx(to) => {
            forwarded(case, (to, None), after, reached);
            "sent"
        }
        Verdict::Fragment(to, mtu) => {
            forwarded(case, (to, Some(mtu)), after, reached);
            told::pieces(case, mtu, after);
            "cut"
        }
        Verdict::Answer(to, reason) => {
            assert_eq!(reason.fate(), Fate::Dropped, "{}", story());
            assert_eq!(to, case.arrival.port, "an answer goes back as the packet came");
            told::answered(case, reason, after)
        }
        Verdict::Park(_) => {
            assert_eq!(case.before, after, "what waits for its first is left as it was");
            assert!(see(case.before).is_none_or(|was| was.is_later()), "{}", story());
            "parked"
        }
        // Judged when it is released.
        Verdict::Wait => "waits",
        Verdict::HandOff(_) => panic!("somebody owns it"),
    };
    reached.insert((name, six));
}

/// Judges a frame that was held, once its neighbour's address is known.
pub fn released(case: &Case<'_>, after: &[u8], reached: &mut Reached) {
    match case.outcome.verdict {
        Verdict::Tx(to) => forwarded(case, (to, None), after, reached),
        Verdict::Fragment(to, mtu) => {
            forwarded(case, (to, Some(mtu)), after, reached);
            told::pieces(case, mtu, after);
        }
        Verdict::Drop(Reason::Headroom) => {}
        Verdict::Wait if case.outcome.waiting.is_some_and(|w| !world::is_there(w.next)) => {}
        other => panic!("{other:?} once its neighbour is known: {}", case.story(after)),
    }
}

/// Judges a frame that leaves by a port, in pieces of `cut` bytes if so.
fn forwarded(case: &Case<'_>, leaves: (PortId, Option<u16>), after: &[u8], reached: &mut Reached) {
    let story = || case.story(after);
    // What `etherparse` cannot read (a third tag, say) it cannot judge.
    let Some(was) = see(case.before) else { return };
    let is = see(after).unwrap_or_else(|| panic!("sent, but not readable: {}", story()));
    let (to, cut) = leaves;
    assert_eq!(is.macs.0, MACS[usize::from(to.0)], "the port's own MAC: {}", story());
    assert_eq!(is.vlan, case.world.vlan(to), "{}", story());
    let mtu = usize::from(case.world.mtu(to));
    // No link of IPv6 has so little; an error, of which nobody is told, is sent there all the same.
    let fits = is.packet.len() <= mtu || was.is_error();
    assert!(cut.is_some() || fits, "longer than the MTU: {}", story());
    let inner = inner_of(case, &was, &is);
    if was.sums().is_ok() {
        assert_eq!(is.sums(), Ok(()), "{}", story());
        assert_eq!(inner.as_ref().map_or(Ok(()), Seen::sums), Ok(()), "{}", story());
    }
    if was.is_error() {
        told::relayed(case, &was, (&is, inner.as_ref()), after);
        reached.insert(("icmp_error", was.source.is_ipv6()));
        return;
    }
    if was.is_later() {
        let is = inner.as_ref().unwrap_or(&is);
        assert_eq!((is.ttl, is.class), (was.ttl - 1, was.class), "{}", story());
        assert_eq!(is.upper, was.upper, "{}", story());
        assert!(case.may_lie(was.fragment, is.fragment), "{}", story());
        reached.insert(("fragment", was.source.is_ipv6()));
        return;
    }
    let ways = case.ways(&was);
    let (then, now) = &case.counted;
    if ways.is_empty() && now.created > then.created && now.closed > then.closed {
        return;
    }
    let mut wrong = Vec::new();
    for way in &ways {
        match by_way(case, (&was, &is, inner.as_ref()), way, leaves) {
            Ok(()) => {
                let (mode, six) = (way.session.mode, was.source.is_ipv6());
                let across = is.source.is_ipv6() != six;
                reached.insert((if across { "across" } else { mode.name() }, six));
                if !way.inbound {
                    reached.insert((if across { "across back" } else { back(mode) }, six));
                }
                return;
            }
            Err(why) => wrong.push(why),
        }
    }
    panic!("not as any session says: {wrong:?} {}", story());
}

const fn back(mode: Mode) -> &'static str {
    match mode {
        Mode::Fnat => "fnat back",
        Mode::Nat => "nat back",
        Mode::Snat => "snat back",
        Mode::Dr | Mode::Ipip | Mode::Gue | Mode::Gre => "",
    }
}

/// What a tunnel's packet has inside, if it has become one on the way.
fn inner_of(case: &Case<'_>, was: &Seen, is: &Seen) -> Option<Seen> {
    if is.source == was.source || !case.is_tunnels(is.source) {
        return None;
    }
    let sum = is.protocol == GRE && is.upper.first()? & 0x80 != 0;
    assert!(!sum || sum_of(&is.upper) == 0xffff, "wrong checksum of GRE: {}", case.story(&[]));
    see_packet(is.upper.get(shim_of(is.protocol, &is.upper)?..)?)
}

/// Bytes between an outer IP header, which calls this protocol what follows, and the packet inside.
fn shim_of(protocol: u8, upper: &[u8]) -> Option<usize> {
    match (protocol, upper.get(..4)?) {
        (4 | 41, _) => Some(0),
        (UDP, &[_, _, 0x17, 0xc0]) => Some(12),
        (GRE, &[flags, ..]) => {
            let options = u32::from(flags & 0x80 != 0) + u32::from(flags & 0x20 != 0);
            Some(4 + 4 * options as usize)
        }
        _ => None,
    }
}

/// Whether a packet has become what its session says.
fn by_way(
    case: &Case<'_>,
    (was, is, inner): (&Seen, &Seen, Option<&Seen>),
    way: &Way<'_>,
    (to, cut): (PortId, Option<u16>),
) -> Result<(), String> {
    let same = |what: &str, ok: bool| if ok { Ok(()) } else { Err(what.to_owned()) };
    let mode = way.session.mode;
    let real = way.session.real.0;
    let next = if mode == Mode::Dr { real } else { is.destination };
    same("next MAC", is.macs.1 == next_mac(to, next))?;
    let inside = if mode.is_tunnel() {
        let inner = inner.ok_or("no tunnel")?;
        same("tunnel's far end", is.destination == real)?;
        same("tunnel's source", case.is_tunnels(is.source))?;
        same("outer header", is.ttl == 64 && is.class >> 2 == was.class >> 2)?;
        let v4 = real.is_ipv4() && cut.is_none() && was.source.is_ipv4();
        same("outer DF", !v4 || is.dont_fragment == was.dont_fragment)?;
        inner
    } else {
        is
    };
    let ports = inside.ports();
    let (source, destination) = ((inside.source, ports.0), (inside.destination, ports.1));
    // What has no ports has them in sessions all the same.
    let bare = !matches!(was.protocol, ICMP | ICMPV6 | TCP | UDP | SCTP);
    let ends = |one: (IpAddr, u16), other: (IpAddr, u16)| {
        if bare { one.0 == other.0 } else { one == other }
    };
    same("source", ends(source, way.source))?;
    same("destination", ends(destination, way.destination))?;
    same("TTL", was.ttl == inside.ttl + 1)?;
    same("class", was.class == inside.class)?;
    let across = was.source.is_ipv6() != inside.source.is_ipv6();
    if !across {
        same("identification", was.id == inside.id)?;
        same("DF", was.dont_fragment == inside.dont_fragment)?;
        same("options", was.options == inside.options)?;
        same("fragment", was.fragment == inside.fragment)?;
    }
    let (before, after) = (was.rest(), inside.rest());
    if case.tells_client(way.session) {
        // What comes before the stream's first byte keeps its number, and loses its data.
        let early = was.protocol == TCP && after.1.is_empty() && before.0[..4] == after.0[..4];
        return same("payload's end", early || after.1.ends_with(before.1));
    }
    same("transport header", before.0 == after.0)?;
    same("payload", before.1 == after.1)
}

/// Judges what was counted for a frame: each reason once, and nothing else.
fn counted(case: &Case<'_>, after: &[u8]) {
    let (then, now) = &case.counted;
    let verdict = case.outcome.verdict;
    let mut reasons = then.reasons;
    match verdict {
        Verdict::Answer(_, why) | Verdict::Kernel(why) | Verdict::Drop(why) => {
            reasons[why as usize] += 1;
        }
        Verdict::Park(_) => {
            let full = Reason::FragmentsFull as usize;
            reasons[full] = now.reasons[full].min(reasons[full] + 1);
        }
        _ => {}
    }
    assert_eq!(reasons, now.reasons, "{}", case.story(after));
    let handed = case.outcome.handed;
    assert_eq!(then.handed_off + handed, now.handed_off, "{}", case.story(after));
    let packets = |all: &Counters| -> u64 { all.reals.iter().flat_map(|r| r.packets).sum() };
    let bytes = |all: &Counters| -> u64 { all.reals.iter().flat_map(|r| r.bytes).sum() };
    let more = (packets(now) - packets(then), bytes(now) - bytes(then));
    match (verdict, see(case.before)) {
        (Verdict::Tx(_) | Verdict::Fragment(..) | Verdict::Wait, Some(was)) => {
            let right = if was.is_error() { (0, 0) } else { (1, was.packet.len() as u64) };
            assert_eq!(more, right, "packets and bytes: {}", case.story(after));
        }
        (Verdict::Kernel(_) | Verdict::Park(_), _) => {
            assert_eq!(more, (0, 0), "{}", case.story(after));
        }
        _ => assert!(more.0 <= 1, "{}", case.story(after)),
    }
}

/// Judges where the session of a frame comes from: it was known (to the worker that decided, or as
/// an answer to any), or the frame created it.
fn created(case: &Case<'_>, after: &[u8]) {
    let (then, now) = &case.counted;
    let created = now.created - then.created;
    assert!(created <= 1, "{}", case.story(after));
    let Some(was) = see(case.before) else { return };
    if was.is_later() || was.is_error() {
        assert_eq!(created, 0, "{}", case.story(after));
        return;
    }
    let old = Case { since: Vec::new(), ..case.clone() };
    // A client may use its port again once one side has closed.
    let goes_on = [State::SynRecv, State::Established, State::Udp, State::Icmp, State::Other];
    let over = |s: &SessionInfo| !goes_on.contains(&s.state);
    let ways = old.ways(&was);
    let sent = matches!(case.outcome.verdict, Verdict::Tx(_) | Verdict::Wait);
    if ways.is_empty() && sent {
        assert_eq!(created, 1, "of no session: {}", case.story(after));
    }
    let alone = case.known.len() == 1 && !case.changed;
    if alone && ways.iter().any(|way| !over(way.session)) {
        assert_eq!(created, 0, "known: {}", case.story(after));
    }
}

/// One worker's counters fit together.
pub fn counters(path: &Path) {
    let counters = path.counters();
    let live = u64::from(path.live_sessions());
    let gone = counters.closed + counters.expired + counters.evicted;
    assert_eq!(counters.created, gone + live, "{counters:?}");
    let room = u64::from(path.session_capacity());
    assert!(live + u64::from(path.templates()) <= room, "{live} of {room}");
    let active: u64 = counters.reals.iter().map(|real| real.active).sum();
    assert_eq!(active, live, "{counters:?}");
    assert_eq!(counters.of(Reason::HandOffLoop), 0);
}

/// No two sessions of a worker share a client's tuple, and none of all an answer's.
pub fn sessions(sessions: &[Vec<SessionInfo>]) {
    let mut outbound = HashSet::new();
    for of_worker in sessions {
        let mut inbound = HashSet::new();
        for s in of_worker {
            let each = s.state == State::OnePacket;
            let fresh = inbound.insert((s.protocol, s.client, s.virtual_));
            assert!(fresh || each, "one client twice: {s:?}");
            let local = match s.mode {
                Mode::Nat => s.client,
                Mode::Fnat | Mode::Snat => s.local.expect("translated sessions have one"),
                Mode::Dr | Mode::Ipip | Mode::Gue | Mode::Gre => continue,
            };
            assert!(outbound.insert((s.protocol, s.real, local)), "one port twice: {s:?}");
        }
    }
}
