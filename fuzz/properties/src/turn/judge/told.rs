//! What is judged beside plain forwarding: the director's own answers, ICMP errors that are brought
//! to whom they are for, and pieces.

use std::net::IpAddr;

use sluice_director::path::SessionInfo;
use sluice_director::reason::Reason;
use sluice_director::spec::Mode;
use sluice_wire::fragment;

use super::{Case, shim_of};
use crate::turn::craft::{ICMP, ICMPV6, TCP};
use crate::turn::frame::{Seen, ports, see, see_packet};

/// Ends of a packet and its protocol.
type Tuple = ((IpAddr, u16), (IpAddr, u16), u8);

/// Judges the answer that a frame has become, and says what it is.
pub fn answered(case: &Case<'_>, reason: Reason, after: &[u8]) -> &'static str {
    let story = || case.story(after);
    let is = see(after).unwrap_or_else(|| panic!("sent, but not readable: {}", story()));
    assert_eq!(is.sums(), Ok(()), "{}", story());
    let Some(was) = see(case.before) else { return "answered" };
    assert_eq!((is.macs.0, is.macs.1), (was.macs.1, was.macs.0), "{}", story());
    assert_eq!((is.vlan, is.ttl), (was.vlan, 64), "{}", story());
    assert_eq!(is.destination, was.source, "{}", story());
    assert!(!was.is_error() && !was.is_later(), "{}", story());
    if is.protocol == TCP {
        use Reason::{NoReal, NoSessionReset, RealGone, RealsFull, ServiceFull};
        let resets = [NoSessionReset, RealGone, NoReal, RealsFull, ServiceFull];
        assert!(resets.contains(&reason), "{}", story());
        assert_eq!((is.upper.len(), is.upper[13] & 4), (20, 4), "a bare reset: {}", story());
        assert_eq!(was.upper[13] & 4, 0, "a reset answered with a reset: {}", story());
        assert_eq!((is.source, is.ports()), (was.destination, flipped(was.ports())), "{}", story());
        return "reset";
    }
    let (kind, code) = (is.upper[0], is.upper[1]);
    let mtu = u16::from_be_bytes([is.upper[6], is.upper[7]]);
    let big = usize::from(mtu) < was.packet.len();
    let right = match (reason, is.protocol, kind, code) {
        (Reason::TtlExpired, ICMP, 11, 0) | (Reason::TtlExpired, ICMPV6, 3, 0) => was.ttl <= 1,
        (Reason::TooBig, ICMP, 3, 4) => big && was.dont_fragment && mtu >= 68,
        // No less than every link of IPv6 has is told (RFC 8201 4).
        (Reason::TooBig, ICMPV6, 2, 0) => (big || mtu == 1280) && mtu >= 1280,
        (Reason::NoReal | Reason::RealsFull | Reason::ServiceFull, ICMP, 3, 3)
        | (Reason::NoReal | Reason::RealsFull | Reason::ServiceFull, ICMPV6, 1, 4) => {
            is.source == was.destination && was.protocol != TCP
        }
        _ => false,
    };
    assert!(right, "{}", story());
    assert!(is.packet.len() <= if is.protocol == ICMP { 576 } else { 1280 }, "{}", story());
    assert!(was.packet.starts_with(&is.upper[8..]), "it quotes what came: {}", story());
    match reason {
        Reason::TooBig => "too big",
        Reason::TtlExpired => "time exceeded",
        _ => "port unreachable",
    }
}

const fn flipped(ports: (u16, u16)) -> (u16, u16) {
    (ports.1, ports.0)
}

/// Judges an ICMP error that was brought to whom it is for.
pub fn relayed(case: &Case<'_>, was: &Seen, (is, inner): (&Seen, Option<&Seen>), after: &[u8]) {
    let story = || case.story(after);
    assert_eq!(was.sums(), Ok(()), "a broken one is dropped: {}", story());
    let Some(about) = quoted(&was.upper) else { return };
    if let Some(inner) = inner {
        assert_eq!((inner.ttl, &inner.upper), (was.ttl - 1, &was.upper), "{}", story());
        return;
    }
    assert!(is.is_error(), "{}", story());
    let Some(told) = quoted(&is.upper) else { panic!("it quotes nothing: {}", story()) };
    if case.is_tunnels(about.0.0) && about.0.0 != told.0.0 {
        // A tunnel's error becomes that of what was inside: its sender is told.
        let quote = quote_of(&was.upper)
            .and_then(|((.., protocol), upper)| tuple_of(upper.get(shim_of(protocol, upper)?..)?));
        assert!(quote.is_none_or(|quote| quote == told), "{}", story());
        assert_eq!(is.destination, told.0.0, "{}", story());
        return;
    }
    assert_eq!(is.ttl, was.ttl - 1, "{}", story());
    let forms = case.sessions().flat_map(forms).filter(|(sent, _)| *sent == about);
    let mut forms = forms.peekable();
    assert!(forms.peek().is_some(), "about no session: {}", story());
    let right = forms.any(|(_, came)| came == told);
    assert!(right, "it tells of another packet: {}", story());
    let gone_on = told == about;
    assert!(gone_on || is.destination == told.0.0, "told to another: {}", story());
}

/// What packets of a session are as they are sent, and as they came.
fn forms(s: &SessionInfo) -> Vec<(Tuple, Tuple)> {
    let local = s.local.unwrap_or(s.client);
    // An echo of either version is the other's like only by its number.
    let tuple = |from, to| (from, to, s.protocol);
    let (there, back) = (tuple(s.client, s.virtual_), tuple(s.virtual_, s.client));
    match s.mode {
        Mode::Fnat | Mode::Nat => {
            vec![(tuple(local, s.real), there), (back, tuple(s.real, local))]
        }
        Mode::Snat => vec![(tuple(local, s.virtual_), there), (back, tuple(s.virtual_, local))],
        Mode::Dr | Mode::Ipip | Mode::Gue | Mode::Gre => vec![(there, there), (back, back)],
    }
}

/// The ends of the packet that an ICMP error quotes.
fn quoted(message: &[u8]) -> Option<Tuple> {
    quote_of(message).map(|(tuple, _)| tuple)
}

fn quote_of(message: &[u8]) -> Option<(Tuple, &[u8])> {
    let packet = message.get(8..)?;
    Some((tuple_of(packet)?, upper_of(packet)?.1))
}

/// The ends of a packet of which perhaps only the beginning is there.
fn tuple_of(packet: &[u8]) -> Option<Tuple> {
    let (protocol, upper) = upper_of(packet)?;
    let (from, to): (IpAddr, IpAddr) = if packet[0] >> 4 == 6 {
        let at = |at: usize| packet.get(at..).and_then(|bytes| bytes.first_chunk::<16>());
        ((*at(8)?).into(), (*at(24)?).into())
    } else {
        let at = |at: usize| packet.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
        ((*at(12)?).into(), (*at(16)?).into())
    };
    let ports = ports(protocol, upper);
    Some(((from, ports.0), (to, ports.1), protocol))
}

/// The protocol and the transport header of a packet; nothing of later fragments.
fn upper_of(packet: &[u8]) -> Option<(u8, &[u8])> {
    match packet.first()? >> 4 {
        4 => {
            let later = (packet.get(6)? & 0x1f) != 0 || *packet.get(7)? != 0;
            let upper = packet.get(usize::from(packet[0] & 0x0f) * 4..)?;
            (!later).then_some((*packet.get(9)?, upper))
        }
        6 => {
            let (mut next, mut at) = (*packet.get(6)?, 40);
            while matches!(next, 0 | 43 | 44 | 60) {
                let header = packet.get(at..at + 8)?;
                let fragment = next == 44;
                if fragment && (header[2] != 0 || header[3] & 0xf8 != 0) {
                    return None;
                }
                (next, at) =
                    (header[0], at + if fragment { 8 } else { 8 + usize::from(header[1]) * 8 });
            }
            Some((next, packet.get(at..)?))
        }
        _ => None,
    }
}

/// Judges the pieces of a frame that is cut: each is a packet that fits, and together they carry
/// what the frame does.
pub fn pieces(case: &Case<'_>, mtu: u16, after: &[u8]) {
    let story = || case.story(after);
    let Some(whole) = see(after) else { return };
    // What is in pieces already is cut again by where each begins.
    let (start, more) = whole.fragment.unwrap_or((0, false));
    let mut at = usize::from(start);
    let mut data = Vec::new();
    let mut last = true;
    let cut = fragment::cut(&whole.packet, mtu, |header, payload| {
        let piece = [header, payload].concat();
        let seen = see_packet(&piece).unwrap_or_else(|| panic!("a bad piece: {}", story()));
        assert!(piece.len() <= usize::from(mtu), "a piece of {}: {}", piece.len(), story());
        let (offset, more) = seen.fragment.unwrap_or((0, false));
        assert_eq!(usize::from(offset), at, "a piece's place: {}", story());
        assert!(last, "a piece behind the last one: {}", story());
        last = more;
        at += seen.upper.len();
        data.extend(seen.upper);
        true
    });
    assert!(cut.is_ok(), "{cut:?}: {}", story());
    assert_eq!(last, more, "{}", story());
    assert!(data == whole.upper, "pieces carry something else: {}", story());
}
