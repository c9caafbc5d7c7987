//! What routers on the way of a tunnel say: the path's MTU is remembered, and the sender of what is
//! inside is told.

use super::icmp::{CLIENT, REAL, ROUTER, Seen, TOO_BIG, VIP};
use super::icmp::{error, field, field_of, framed, packet};
use super::lab::{BACK, CLIENT_MAC, FRONT, MemFrame};
use super::modes::{Field, at, ip, spec};
use super::owners::{settle, workers};
use crate::frame::Frame;
use crate::path::Verdict;
use crate::reason::Reason;
use crate::spec::Mode;

const OVERHEAD: [usize; 2] = [20, 40];
const HEADERS: [usize; 2] = [28, 48];
const SOURCE: [&str; 2] = ["192.0.2.9", "2001:db8:2::9"];

/// Sends a packet of so many bytes with DF into the tunnel. The packet, and the verdict.
fn send(field: &mut Field, vip: usize, length: usize) -> (Vec<u8>, MemFrame, Verdict) {
    let sent = packet(at(CLIENT[vip]), at(VIP[vip]), (64, true), length - HEADERS[vip]);
    let mut frame = framed(&sent);
    let verdict = field.one(FRONT, &mut frame);
    (sent, frame, verdict)
}

/// A packet within a tunnel, a hop later.
fn aged(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
    } else {
        packet[8] -= 1;
        let sum = etherparse::Ipv4Header::from_slice(&packet).unwrap().0.calc_header_checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

const TUNNELS: [(usize, usize); 4] = [(0, 0), (1, 1), (0, 1), (1, 0)];

#[test]
fn a_narrow_path_is_told_and_remembered() {
    for (vip, real) in TUNNELS {
        let mut field = field(Mode::Ipip, (vip, real), [1500; 2]);
        let room = 1500 - OVERHEAD[real];
        let (sent, frame, verdict) = send(&mut field, vip, room);
        assert_eq!(verdict, Verdict::Tx(BACK));
        let (kind, code) = TOO_BIG[real];
        let outer = &frame.bytes()[14..];
        let mut report =
            error(ip(ROUTER[real]), ip(SOURCE[real]), (kind, code, 1400), &outer[..548]);
        let before = field.path.counters().clone();
        assert_eq!(field.one(BACK, &mut report), Verdict::Tx(FRONT), "{vip} over {real}");
        assert_eq!(*field.path.counters(), before);
        let told = (1400 - OVERHEAD[real]) as u32;
        let seen = Seen::read(&report);
        assert_eq!((seen.from, seen.to), (at(VIP[vip]).ip(), at(CLIENT[vip]).ip()));
        assert_eq!((seen.message, seen.ttl), ((TOO_BIG[vip].0, TOO_BIG[vip].1, told), 64));
        assert_eq!(seen.quote, aged(sent)[..548 - OVERHEAD[real]]);
        assert_eq!(report.bytes()[..6], CLIENT_MAC);

        // The next one is answered here, until nobody knows any more.
        let (kind, code) = TOO_BIG[vip];
        let (_, _, verdict) = send(&mut field, vip, told as usize);
        assert_eq!(verdict, Verdict::Tx(BACK));
        let (_, answer, verdict) = send(&mut field, vip, told as usize + 1);
        assert_eq!(verdict, Verdict::Answer(FRONT, Reason::TooBig));
        assert_eq!(Seen::read(&answer).message, (kind, code, told));
        field.now.0 += 600_000;
        assert_eq!(send(&mut field, vip, room).2, Verdict::Tx(BACK));
    }
}

/// A router that quotes as little as it may (RFC 792) still tells the MTU.
#[test]
fn a_short_quote_is_remembered_too() {
    let mut field = field(Mode::Ipip, (0, 0), [1500; 2]);
    let (_, frame, _) = send(&mut field, 0, 1480);
    let report = |mtu: u32, length: usize| {
        let quote = &frame.bytes()[14..14 + length];
        error(ip(ROUTER[0]), ip(SOURCE[0]), (3, 4, mtu), quote)
    };
    assert_eq!(field.one(BACK, &mut report(1300, 28)), Verdict::Drop(Reason::IcmpError));
    assert_eq!(send(&mut field, 0, 1281).2, Verdict::Answer(FRONT, Reason::TooBig));
    assert_eq!(send(&mut field, 0, 1280).2, Verdict::Tx(BACK));
    // It never becomes larger by an error, nor smaller than anybody's least.
    field.one(BACK, &mut report(1400, 28));
    assert_eq!(send(&mut field, 0, 1281).2, Verdict::Answer(FRONT, Reason::TooBig));
    for low in [68, 576, 0, 8] {
        field.one(BACK, &mut report(low, 28));
        assert_eq!(send(&mut field, 0, 1280).2, Verdict::Tx(BACK), "nothing proves it");
    }
    // With proof it is less, and not what no link has.
    field.one(BACK, &mut report(8, 60));
    assert_eq!(send(&mut field, 0, 1280).2, Verdict::Tx(BACK));
    field.one(BACK, &mut report(68, 60));
    assert_eq!(send(&mut field, 0, 556).2, Verdict::Tx(BACK));
    assert_eq!(send(&mut field, 0, 557).2, Verdict::Answer(FRONT, Reason::TooBig));
}

/// Nobody can tell of a packet that the director never sent: nothing is learned, nobody is told.
#[test]
fn a_forged_path_mtu_changes_nothing() {
    for (vip, real) in TUNNELS {
        let mut field = field(Mode::Ipip, (vip, real), [1500; 2]);
        let room = 1500 - OVERHEAD[real];
        let (sent, frame, _) = send(&mut field, vip, room);
        let outer = frame.bytes()[14..].to_vec();
        let upper = outer.len() - sent.len() + HEADERS[vip] - 8;
        let (kind, code) = TOO_BIG[real];
        // Another client port, another client, another service's port.
        for at in [upper + 1, upper - 5 - [0, 16][vip], upper + 3] {
            let mut forged = outer[..548].to_vec();
            forged[at] ^= 1;
            for message in [(kind, code, 1280), (kind, code, 0), (kind, code, 68), (3, 1, 0)] {
                let mut report = error(ip(ROUTER[real]), ip(SOURCE[real]), message, &forged);
                assert_eq!(field.one(BACK, &mut report), Verdict::Drop(Reason::IcmpError));
            }
            assert_eq!(send(&mut field, vip, room).2, Verdict::Tx(BACK), "{vip} over {real}");
        }
    }
}

/// The worker that has the session learns of it, whichever the error comes to.
#[test]
fn an_error_goes_to_the_worker_with_the_session() {
    let field = field(Mode::Ipip, (0, 0), [1500; 2]);
    let mut paths = workers(&field, 3);
    let sent = packet(at(CLIENT[0]), at(VIP[0]), (64, true), 1480 - HEADERS[0]);
    let mut frame = framed(&sent);
    assert_eq!(settle(&field, &mut paths, 2, &mut frame), (2, Verdict::Tx(BACK)));
    let quote = frame.bytes()[14..562].to_vec();
    for first in 0..3 {
        let mut report = error(ip(ROUTER[0]), ip(SOURCE[0]), (3, 4, 1400), &quote);
        assert_eq!(settle(&field, &mut paths, first, &mut report), (2, Verdict::Tx(FRONT)));
        let mut forged = quote.clone();
        forged[41] ^= 1;
        let mut report = error(ip(ROUTER[0]), ip(SOURCE[0]), (3, 4, 1300), &forged);
        let (_, verdict) = settle(&field, &mut paths, first, &mut report);
        assert_eq!(verdict, Verdict::Drop(Reason::IcmpError));
    }
    let sent = packet(at(CLIENT[0]), at(VIP[0]), (64, true), 1380 - HEADERS[0]);
    assert_eq!(settle(&field, &mut paths, 2, &mut framed(&sent)), (2, Verdict::Tx(BACK)));
}

/// What the sender is told is nothing that no link has either.
#[test]
fn what_senders_are_told_is_possible() {
    for (vip, real) in TUNNELS {
        let (kind, code) = TOO_BIG[real];
        for told in [0, 8, 28, 68, 100, 575, 1279] {
            let mut field = field(Mode::Ipip, (vip, real), [1500; 2]);
            let (_, frame, _) = send(&mut field, vip, 1500 - OVERHEAD[real]);
            let quote = &frame.bytes()[14..562];
            let mut report = error(ip(ROUTER[real]), ip(SOURCE[real]), (kind, code, told), quote);
            let verdict = field.one(BACK, &mut report);
            if real == 1 || (1..68).contains(&told) {
                assert_eq!(verdict, Verdict::Drop(Reason::IcmpError), "{told}");
                continue;
            }
            assert_eq!(verdict, Verdict::Tx(FRONT), "{told}");
            let path = if told == 0 { 1492 } else { told.max(576) };
            let wanted = (path - 20).max([0, 1280][vip]);
            assert_eq!(Seen::read(&report).message.2, wanted, "{told}");
        }
    }
}

/// Without DF the outer packet is cut for the path.
#[test]
fn what_may_be_cut_is_cut_for_the_path() {
    let mut field = field(Mode::Ipip, (0, 0), [1500; 2]);
    let (_, frame, _) = send(&mut field, 0, 1480);
    let quote = &frame.bytes()[14..14 + 28];
    field.one(BACK, &mut error(ip(ROUTER[0]), ip(SOURCE[0]), (3, 4, 1300), quote));
    let sent = packet(at(CLIENT[0]), at(VIP[0]), (64, false), 1400);
    assert_eq!(field.one(FRONT, &mut framed(&sent)), Verdict::Fragment(BACK, 1300));
}

/// Anything else that happens to the outer packet is news of the host inside being out of reach.
#[test]
fn other_errors_say_that_the_host_is_unreachable() {
    for (vip, real) in TUNNELS {
        let kinds = [[(3, 0, 0), (3, 1, 0), (11, 0, 0)], [(1, 0, 0), (1, 3, 0), (3, 0, 0)]][real];
        for message in kinds {
            let mut field = field(Mode::Ipip, (vip, real), [1500; 2]);
            let (sent, frame, _) = send(&mut field, vip, 300);
            let mut report =
                error(ip(ROUTER[real]), ip(SOURCE[real]), message, &frame.bytes()[14..]);
            assert_eq!(field.one(BACK, &mut report), Verdict::Tx(FRONT));
            let seen = Seen::read(&report);
            assert_eq!((seen.from, seen.to), (at(VIP[vip]).ip(), at(CLIENT[vip]).ip()));
            assert_eq!(seen.message, [(3, 1, 0), (1, 3, 0)][vip]);
            assert_eq!(seen.quote, aged(sent));
            assert_eq!(send(&mut field, vip, 1400).2, Verdict::Tx(BACK));
        }
    }
}

/// What cannot be about a packet of the director's teaches it nothing.
#[test]
fn nobody_is_believed_who_makes_no_sense() {
    let mut field = field(Mode::Ipip, (0, 0), [1500; 2]);
    let (_, frame, _) = send(&mut field, 0, 600);
    let outer = frame.bytes()[14..].to_vec();
    let dropped = Verdict::Drop(Reason::IcmpError);
    let mut report = |to: &str, mtu: u32, quote: &[u8]| {
        field.one(BACK, &mut error(ip(ROUTER[0]), ip(to), (3, 4, mtu), quote))
    };
    assert_eq!(report(SOURCE[0], 620, &outer), dropped, "it was no larger than that");
    let mut elsewhere = outer.clone();
    elsewhere[19] ^= 1;
    assert_eq!(report(SOURCE[0], 600, &elsewhere), dropped, "there is no real server");
    let mut other = outer.clone();
    other[42] ^= 1;
    assert_eq!(report(SOURCE[0], 619, &other), dropped, "there is no such session");
    let kernel = Verdict::Kernel(Reason::NotOurs);
    assert_eq!(report("192.0.2.8", 600, &outer), kernel, "another's tunnel");
    let mut quench = error(ip(ROUTER[0]), ip(SOURCE[0]), (4, 0, 0), &outer);
    assert_eq!(field.one(BACK, &mut quench), kernel, "of the past (RFC 6633)");
    let mut damaged = error(ip(ROUTER[0]), ip(SOURCE[0]), (3, 4, 600), &outer);
    *damaged.bytes_mut().last_mut().unwrap() ^= 1;
    assert_eq!(field.one(BACK, &mut damaged), Verdict::Drop(Reason::BadL4Checksum));
}

/// They are errors of the director's own, and as limited as the others.
#[test]
fn reports_are_limited() {
    let (vip, real) = (at(VIP[0]).ip().to_string(), at(REAL[0]).ip().to_string());
    let mut spec = spec(Mode::Ipip, &vip, &real, 53);
    spec.icmp_errors_per_s = 2;
    let mut field = field_of(&spec, [1500; 2], (0, 1), [false; 2]);
    let (_, frame, _) = send(&mut field, 0, 600);
    let quote = frame.bytes()[14..].to_vec();
    let mut told = || {
        let mut report = error(ip(ROUTER[0]), ip(SOURCE[0]), (3, 1, 0), &quote);
        field.one(BACK, &mut report) == Verdict::Tx(FRONT)
    };
    assert_eq!((0..5).filter(|_| told()).count(), 2);
}
