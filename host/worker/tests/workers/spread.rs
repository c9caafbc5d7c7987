//! A flow that several workers process: it leaves in order, whole, and counted.

use crate::memory::{
    BACK, CLIENT, FRONT, Kit, LOCAL, MemFrame, REAL, VIP, addresses, spec, udp, udp_with,
};
use etherparse::{PacketBuilder, TcpHeader};
use proptest::prelude::*;
use sluice_director::counters::Direction;
use sluice_director::path::{FlowName, NotSpreadable};
use sluice_director::spec::{NetworkId, Protocol, Spec};
use sluice_director::{Frame, Reason};
use sluice_worker::spread::{Ended, Refused, SpreadOrder, SpreadRequest};
use sluice_worker::{Event, Message};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const PORT: u16 = 4000;
const MOUSE: u16 = 4001;

const fn name(protocol: u8, service: u16) -> FlowName {
    let client = std::net::IpAddr::V4(std::net::Ipv4Addr::from_octets(CLIENT));
    let vip = std::net::IpAddr::V4(std::net::Ipv4Addr::from_octets(VIP));
    let direction = Direction::Inbound;
    FlowName { protocol, client: (client, PORT), virtual_: (vip, service), direction }
}

const DNS: FlowName = name(17, 53);
const WEB: FlowName = name(6, 80);

const fn order(flow: FlowName) -> SpreadOrder {
    SpreadOrder { network: NetworkId::DEFAULT, flow, workers: 0, pinned: true }
}

/// A datagram of a client's port with a number.
fn numbered(client_port: u16, number: u32, length: usize) -> MemFrame {
    let data = [&number.to_be_bytes()[..], &vec![0x5a; length]].concat();
    udp_with((CLIENT, client_port), (VIP, 53), &data)
}

/// Opens the flows of two client ports at worker 0, answered, and spreads the first.
fn opened(workers: u16) -> Kit {
    let mut kit = Kit::new(workers, &[workers, workers], true);
    for port in [PORT, MOUSE] {
        kit.put(0, FRONT, udp((CLIENT, port), (VIP, 53)));
        kit.turn(0);
        let (local, _) = addresses(&kit.sent(0, BACK)[0]);
        kit.put(0, BACK, udp((REAL, 53), local));
        kit.turn(0);
        assert_eq!(kit.sent(0, FRONT).len(), 1);
    }
    assert_eq!(kit.workers[0].spread(kit.now, &order(DNS)), Ok(()));
    kit
}

/// Local ports and numbers of what has left by the back.
fn left(kit: &mut Kit) -> Vec<(u16, u32)> {
    let number = |frame: &MemFrame| u32::from_be_bytes(frame.bytes()[42..46].try_into().unwrap());
    kit.sent(0, BACK).iter().map(|frame| (addresses(frame).0.1, number(frame))).collect()
}

fn inbound(kit: &Kit) -> (u64, u64) {
    let real = &kit.workers[0].path().counters().reals[0];
    (real.packets[0], real.bytes[0])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whenever which worker has its turn, and whatever comes between, the flow leaves in order,
    /// nothing of it is lost, and every packet and byte is counted once.
    #[test]
    fn order_holds_whoever_is_slow(
        workers in 2u16..=5,
        steps in proptest::collection::vec((0u16..8, 0usize..90, any::<bool>()), 1..120),
    ) {
        let mut kit = opened(workers);
        let (mut sent, mut bytes) = ([0u32; 2], 0);
        let before = inbound(&kit);
        let mut came = Vec::new();
        for (who, count, mixed) in steps {
            // Half of the turns are the owner's.
            let who = if who < 4 { 0 } else { (who - 3) % workers };
            if who == 0 {
                let under_way = sent[0] as usize - came.iter().filter(|(p, _)| *p == 1024).count();
                for at in 0..count.min(150usize.saturating_sub(under_way)) {
                    let mouse = mixed && at % 3 == 1;
                    let (port, length) = (if mouse { MOUSE } else { PORT }, at % 50);
                    kit.put(0, FRONT, numbered(port, sent[usize::from(mouse)], length));
                    sent[usize::from(mouse)] += 1;
                    bytes += 20 + 8 + 4 + length as u64;
                }
            }
            kit.turn(who);
            came.extend(left(&mut kit));
        }
        for _ in 0..20 {
            (0..workers).for_each(|worker| kit.turn(worker));
            came.extend(left(&mut kit));
        }
        let local = |mouse: usize| 1024 + mouse as u16;
        for (mouse, sent) in sent.into_iter().enumerate() {
            let numbers: Vec<u32> =
                came.iter().filter(|(port, _)| *port == local(mouse)).map(|(_, n)| *n).collect();
            prop_assert_eq!(numbers, (0..sent).collect::<Vec<_>>(), "mouse: {}", mouse);
        }
        let all = u64::from(sent[0] + sent[1]);
        prop_assert_eq!(inbound(&kit), (before.0 + all, before.1 + bytes));
        let [spread] = &kit.workers[0].spreading(kit.now)[..] else { panic!("it is spread") };
        prop_assert_eq!(spread.dealt + spread.own, u64::from(sent[0]));
        prop_assert_eq!((spread.kept, spread.late), (0, 0));
        prop_assert_eq!(spread.helpers.len(), usize::from(workers) - 1);
        prop_assert_eq!(kit.counted(0, Reason::SpreadLate), 0);
    }
}

/// A helper that stands still holds up the flow, and nothing else; what there is no room for is
/// dropped and counted, and nothing overtakes.
#[test]
fn who_stalls_holds_up_the_flow_alone() {
    let mut kit = opened(3);
    let (mut sent, mut came) = (0, Vec::new());
    for _ in 0..40 {
        (0..64).for_each(|at| kit.put(0, FRONT, numbered(PORT, sent + at, 10)));
        sent += 64;
        kit.put(0, FRONT, numbered(MOUSE, 0, 10));
        kit.turn(0);
        // Worker 2 helps, worker 1 does not.
        kit.turn(2);
        let out = left(&mut kit);
        assert_eq!(out.iter().filter(|(port, _)| *port == 1025).count(), 1, "others go on");
        came.extend(out.into_iter().filter(|(port, _)| *port == 1024).map(|(_, n)| n));
    }
    assert!(came.is_empty(), "the first chunk is worker 1's");
    let late = kit.counted(0, Reason::SpreadLate);
    assert_eq!(kit.workers[0].spreading(kit.now)[0].late, late);
    // All that may be under way: what each helper may have, and the owner itself.
    assert_eq!(u64::from(sent) - late, 32 * (2 * 8 + 8));
    for _ in 0..10 {
        (0..3).for_each(|worker| kit.turn(worker));
        came.extend(left(&mut kit).into_iter().map(|(_, n)| n));
    }
    assert_eq!(came.len() as u64, u64::from(sent) - late);
    assert!(came.is_sorted());
    // It goes on as before.
    kit.put(0, FRONT, numbered(PORT, sent, 10));
    (0..6).for_each(|at| kit.turn(at % 3));
    assert_eq!(left(&mut kit), [(1024, sent)]);
}

/// Frames for the owner's path keep their place.
#[test]
fn exceptions_keep_their_place() {
    let mut kit = opened(2);
    let mut expected = Vec::new();
    for at in 0..100 {
        let mut frame = numbered(PORT, at, 10);
        if at % 7 == 3 {
            // A record route option, of which nothing is used: it needs the general path.
            frame = with_option(&frame);
        }
        kit.put(0, FRONT, frame);
        expected.push(at);
    }
    (0..9).for_each(|at| kit.turn(at % 2));
    let numbers: Vec<u32> = kit
        .sent(0, BACK)
        .iter()
        .map(|frame| {
            let at = 14 + usize::from(frame.bytes()[14] & 0xf) * 4 + 8;
            u32::from_be_bytes(frame.bytes()[at..at + 4].try_into().unwrap())
        })
        .collect();
    assert_eq!(numbers, expected);
    let spread = &kit.workers[0].spreading(kit.now)[0];
    assert_eq!((spread.kept, spread.dealt + spread.own), (14, 86));
}

fn with_option(frame: &MemFrame) -> MemFrame {
    let mut bytes = frame.bytes().to_vec();
    bytes.splice(34..34, [1, 1, 1, 0]);
    bytes[14] = 0x46;
    let total = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    bytes[24..26].fill(0);
    let sum = sluice_wire::checksum::full(&bytes[14..38]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    MemFrame::new(&bytes)
}

/// New routes while chunks are under way: what was dealt leaves first, what comes then goes by the
/// new ones, and the flow stays spread.
#[test]
fn new_routes_reach_the_flow_without_reordering() {
    let mut kit = opened(3);
    (0..90).for_each(|at| kit.put(0, FRONT, numbered(PORT, at, 10)));
    kit.turn(0);
    let mac = [2, 0, 0, 0, 9, 9];
    kit.publish_mac(mac);
    (90..200).for_each(|at| kit.put(0, FRONT, numbered(PORT, at, 10)));
    kit.turn(0);
    assert!(left(&mut kit).is_empty(), "the first chunk is not back");
    (0..9).for_each(|at| kit.turn(at % 3));
    (200..300).for_each(|at| kit.put(0, FRONT, numbered(PORT, at, 10)));
    (0..9).for_each(|at| kit.turn(at % 3));
    let frames = kit.sent(0, BACK);
    let numbers: Vec<u32> = frames
        .iter()
        .map(|frame| u32::from_be_bytes(frame.bytes()[42..46].try_into().unwrap()))
        .collect();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    for (at, frame) in frames.iter().enumerate() {
        assert_eq!(frame.bytes()[..6] == mac, at >= 90, "{at}");
    }
    let spread = &kit.workers[0].spreading(kit.now)[0];
    assert_eq!((spread.dealt, spread.kept), (190, 110), "held while the first were under way");
    // The same again changes nothing.
    kit.publish_mac(mac);
    (300..310).for_each(|at| kit.put(0, FRONT, numbered(PORT, at, 10)));
    (0..6).for_each(|at| kit.turn(at % 3));
    assert_eq!(kit.workers[0].spreading(kit.now)[0].kept, 110);
}

/// When it is no more to be spread, what was dealt leaves before what comes.
#[test]
fn an_operator_gathers_a_flow_in_without_reordering() {
    let mut kit = opened(2);
    (0..70).for_each(|at| kit.put(0, FRONT, numbered(PORT, at, 10)));
    kit.turn(0);
    assert!(kit.workers[0].gather_in(NetworkId::DEFAULT, &DNS));
    assert!(!kit.workers[0].gather_in(NetworkId::DEFAULT, &WEB));
    (70..90).for_each(|at| kit.put(0, FRONT, numbered(PORT, at, 10)));
    kit.turn(0);
    assert_eq!(kit.workers[0].spreading(kit.now).len(), 1, "not before all is through");
    (0..4).for_each(|at| kit.turn(at % 2));
    (90..100).for_each(|at| kit.put(0, FRONT, numbered(PORT, at, 10)));
    kit.turn(0);
    let numbers: Vec<u32> = left(&mut kit).into_iter().map(|(_, n)| n).collect();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    assert!(kit.workers[0].spreading(kit.now).is_empty());
    let ended = Event::SpreadEnded(NetworkId::DEFAULT, DNS, Ended::Asked);
    assert_eq!(kit.events.try_recv(), Ok(ended));
}

fn with_web() -> Spec {
    let mut spec = spec();
    let mut web = spec.services[0].clone();
    (web.name, web.protocol) = ("web".into(), Protocol::Tcp);
    (web.ports, web.reals[0].port) = (sluice_director::spec::Ports::one(80), 80);
    spec.services.push(web);
    spec
}

/// A segment of the client's with this number.
fn segment(sequence: u32, flags: u8, data: usize) -> MemFrame {
    let mut header = TcpHeader::new(PORT, 80, sequence, 64_000);
    header.acknowledgment_number = 500;
    (header.fin, header.syn, header.rst) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    header.ack = flags & 16 != 0;
    let mut bytes = Vec::new();
    let builder = PacketBuilder::ethernet2([4; 6], [6; 6]).ipv4(CLIENT, VIP, 64);
    builder.tcp_header(header).write(&mut bytes, &vec![7; data]).unwrap();
    MemFrame::new(&bytes)
}

/// A stream over many units of sequence numbers, then a FIN or a reset: all in order, the session
/// where it is without spreading, and the flow spread no more.
#[test]
fn an_end_is_the_owners_and_ends_the_spreading() {
    for (end, is_over) in [(0x11, false), (0x04, true)] {
        let mut kit = Kit::new(3, &[3, 3], true);
        kit.reload(&with_web(), |_| true);
        for frame in [segment(99, 2, 0), segment(100, 16, 0)] {
            kit.put(0, FRONT, frame);
            kit.turn(0);
        }
        assert_eq!(kit.sent(0, BACK).len(), 2);
        assert_eq!(kit.workers[0].spread(kit.now, &order(WEB)), Ok(()));
        let (mut number, mut expected) = (100, Vec::new());
        for _ in 0..20 {
            for _ in 0..50 {
                kit.put(0, FRONT, segment(number, 16, 1400));
                expected.push(number);
                number += 1400;
            }
            (0..3).for_each(|worker| kit.turn(worker));
        }
        kit.put(0, FRONT, segment(number, end, 0));
        expected.push(number);
        let behind: Vec<u32> = (0..5).map(|at| number + 1 + at).collect();
        behind.iter().for_each(|number| kit.put(0, FRONT, segment(*number, 16, 0)));
        (0..9).for_each(|at| kit.turn(at % 3));
        let frames = kit.sent(0, BACK);
        let numbers: Vec<u32> = frames
            .iter()
            .map(|frame| u32::from_be_bytes(frame.bytes()[38..42].try_into().unwrap()))
            .collect();
        if !is_over {
            expected.extend(&behind);
        }
        assert_eq!(numbers, expected);
        let counters = kit.workers[0].path().counters();
        assert_eq!((counters.closed, counters.ignored_ends), (u64::from(is_over), 0));
        assert_eq!(counters.of(Reason::NoSession), if is_over { 5 } else { 0 });
        assert!(kit.workers[0].spreading(kit.now).is_empty());
        let why = if is_over { NotSpreadable::NoSession } else { NotSpreadable::State };
        let ended = Event::SpreadEnded(NetworkId::DEFAULT, WEB, Ended::Flow(why));
        assert_eq!(kit.events.try_recv(), Ok(ended));
    }
}

/// A reset that fits no number of the connection does not end it, nor the spreading.
#[test]
fn blind_resets_do_not_stop_the_spreading() {
    let mut kit = Kit::new(2, &[2, 2], true);
    kit.reload(&with_web(), |_| true);
    for frame in [segment(99, 2, 0), segment(100, 16, 0)] {
        kit.put(0, FRONT, frame);
        kit.turn(0);
    }
    assert_eq!(kit.workers[0].spread(kit.now, &order(WEB)), Ok(()));
    for round in 0..10 {
        kit.put(0, FRONT, segment(1 << 30, 4, 0));
        (0..20).for_each(|at| kit.put(0, FRONT, segment(100 + round * 20 + at, 16, 1)));
        (0..4).for_each(|at| kit.turn(at % 2));
        // What is behind the reset in its own burst is the owner's, and then it goes on.
        (0..20).for_each(|at| kit.put(0, FRONT, segment(100 + round * 20 + at, 16, 1)));
        (0..4).for_each(|at| kit.turn(at % 2));
    }
    let spread = &kit.workers[0].spreading(kit.now)[0];
    assert_eq!((spread.kept, spread.dealt), (210, 200));
    assert_eq!(kit.workers[0].path().counters().ignored_ends, 10);
}

#[test]
fn what_cannot_be_spread_is_refused() {
    let mut alone = Kit::new(1, &[1, 1], true);
    assert_eq!(alone.workers[0].spread(alone.now, &order(DNS)), Err(Refused::OneWorker));
    let mut kit = opened(2);
    let none = Err(Refused::Flow(NotSpreadable::NoSession));
    assert_eq!(kit.workers[0].spread(kit.now, &order(WEB)), none);
    assert_eq!(kit.workers[1].spread(kit.now, &order(DNS)), none, "another worker's");
    assert_eq!(kit.workers[0].spread(kit.now, &order(DNS)), Err(Refused::Already));
}

/// The end of a session that has no packets is noticed, too.
#[test]
fn a_flow_that_falls_silent_is_forgotten() {
    let mut kit = opened(2);
    kit.now.0 += 3_600_000;
    (0..4).for_each(|at| kit.turn(at % 2));
    assert!(kit.workers[0].spreading(kit.now).is_empty());
    let ended = Ended::Flow(NotSpreadable::NoSession);
    assert_eq!(kit.events.try_recv(), Ok(Event::SpreadEnded(NetworkId::DEFAULT, DNS, ended)));
}

/// A burst that was searched for misdirected packets and dealt as a whole says nothing of the next.
#[test]
fn strays_behind_a_dealt_burst_find_their_owner() {
    let mut kit = opened(2);
    let back = FlowName { direction: Direction::Outbound, ..DNS };
    assert_eq!(kit.workers[0].spread(kit.now, &order(back)), Ok(()));
    kit.put(1, FRONT, udp((CLIENT, 5000), (VIP, 53)));
    kit.turn(1);
    let (other, _) = addresses(&kit.sent(1, BACK)[0]);
    let own = (LOCAL, 1024);
    // Another worker's, so that the next burst is searched; then one that is dealt as a whole.
    for frames in [vec![other, own], vec![own; 8], vec![other; 3]] {
        frames.iter().for_each(|to| kit.put(0, BACK, udp((REAL, 53), *to)));
        (0..6).for_each(|at| kit.turn(at % 2));
    }
    assert_eq!(kit.sent(0, FRONT).len(), 9);
    assert_eq!(kit.sent(1, FRONT).len(), 4);
}

/// On threads of their own that sleep and wake each other.
#[test]
fn threads_keep_the_order() {
    let mut kit = opened(3);
    let (front, back) = (kit.queue(0, FRONT), kit.queue(0, BACK));
    let running: Vec<_> = (0..3).map(|_| kit.run(0)).collect();
    let (mut sent, mut came, deadline) =
        (0u32, Vec::new(), Instant::now() + Duration::from_secs(60));
    while came.len() < 20_000 {
        assert!(Instant::now() < deadline, "{} of {sent} came", came.len());
        let under_way = sent as usize - came.len();
        for _ in 0..(200usize.saturating_sub(under_way)).min(20_000 - sent as usize) {
            front.put(numbered(PORT, sent, 10));
            sent += 1;
        }
        came.extend(
            back.take_sent()
                .iter()
                .map(|frame| u32::from_be_bytes(frame.bytes()[42..46].try_into().unwrap())),
        );
    }
    assert_eq!(came, (0..20_000).collect::<Vec<_>>());
    let (reply, answer) = channel();
    assert!(running[0].inbox.send(Message::Spread(SpreadRequest::List(reply))));
    let (_, spreading) = answer.recv_timeout(Duration::from_secs(5)).expect("an answer");
    assert!(spreading[0].dealt > 0 && spreading[0].late == 0, "{spreading:?}");
    for worker in running {
        assert!(worker.inbox.send(Message::Stop));
        worker.thread.join().unwrap();
    }
}
