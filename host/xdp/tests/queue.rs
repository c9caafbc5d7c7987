//! A queue on one end of a veth pair and the kernel's packet socket at the other: both directions,
//! rings that wrap, memory that runs out, an interface that goes. Needs root.

use std::io::Write;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sluice_steer::{Attached, EndpointMatch, Matches, Steer};
use sluice_xdp::{Heirloom, Landing, Queue, QueueConfig, Receiver, Sender};

const PATIENCE: Duration = Duration::from_secs(10);
const RING: u32 = 256;
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const ETHERTYPE: u16 = 0x0800;

fn may_run() -> bool {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "this test needs root");
    let _ = std::io::stderr().write_all(b"skipped: network interfaces need root\n");
    false
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip is installed");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "ip {}: {said}", arguments.join(" "));
}

/// A wire in a network namespace that only this thread is in.
struct Wire {
    port: u32,
    peer: OwnedFd,
    name: String,
}

impl Wire {
    fn new(mtu: u32) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("xq{}", SERIAL.fetch_add(1, Ordering::Relaxed));
        // SAFETY: it concerns this thread alone, which the test owns.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "a namespace of its own");
        let far = format!("{name}p");
        ip(&["link", "add", &name, "type", "veth", "peer", "name", &far]);
        for end in [&name, &far] {
            ip(&["link", "set", end, "mtu", &mtu.to_string()]);
            // The kernel would talk by itself otherwise.
            let quiet = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
            let _ = std::fs::write(quiet, "1");
            ip(&["link", "set", end, "up"]);
        }
        Self { port: index(&name), peer: packet_socket(index(&far)), name }
    }

    fn open(&self, largest: u32) -> Opened {
        let mut program = Attached::to(self.port, largest > 3000).expect("the program attaches");
        let config = QueueConfig {
            interface: self.port,
            queue: 0,
            ring: RING,
            largest,
            huge_pages: false,
            busy_poll: None,
        };
        let (queue, receiver, sender) = Queue::open(&config).expect("the queue opens");
        program.bind(0, queue.fd()).expect("the socket is bound");
        let mut steer = Steer::for_interface(self.port).expect("the program is there");
        let services = vec![EndpointMatch::port(17, VIP.into(), 7)];
        steer.set(&Matches { services, ..Matches::default() }).expect("there is room");
        Opened { queue, receiver, sender, _program: program, _steer: steer }
    }

    fn write(&self, frame: &[u8]) -> bool {
        // SAFETY: the buffer has the length given.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::send(self.peer.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags)
        };
        sent == frame.len() as isize
    }

    fn read(&self, into: &mut [u8]) -> Option<usize> {
        // SAFETY: the buffer has the length given.
        let came = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::recv(self.peer.as_raw_fd(), into.as_mut_ptr().cast(), into.len(), flags)
        };
        usize::try_from(came).ok()
    }
}

struct Opened {
    queue: Queue,
    receiver: Receiver,
    sender: Sender,
    _program: Attached,
    _steer: Steer,
}

impl Opened {
    fn assert_receiver_complete(&mut self) {
        let (all, free, in_rings) = self.receiver.account();
        assert_eq!((all, free + in_rings), (RING as usize, RING as usize), "receiver");
    }

    /// Every frame is at hand or in a ring.
    fn assert_complete(&mut self) {
        self.assert_receiver_complete();
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.sender.refresh();
            let (all, free, in_rings) = self.sender.account();
            if (all, free + in_rings) == (RING as usize, RING as usize) {
                break;
            }
            assert!(Instant::now() < deadline, "sender: {free} free, {in_rings} in rings");
        }
    }
}

fn index(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a C string.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

fn packet_socket(index: u32) -> OwnedFd {
    // SAFETY: opens a socket, owned at once; the address and the option have the lengths given.
    unsafe {
        let protocol = i32::from(ETHERTYPE.to_be());
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol);
        assert!(fd >= 0, "a packet socket");
        let socket = OwnedFd::from_raw_fd(fd);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ETHERTYPE.to_be();
        address.sll_ifindex = index as i32;
        let length = size_of_val(&address) as u32;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), length), 0);
        for option in [libc::SO_RCVBUFFORCE, libc::SO_SNDBUFFORCE] {
            let room: libc::c_int = 64 << 20;
            libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const room).cast(), 4);
        }
        // What it sends itself is of no interest.
        let (on, ignore): (libc::c_int, libc::c_int) = (1, 23);
        libc::setsockopt(fd, libc::SOL_PACKET, ignore, (&raw const on).cast(), 4);
        socket
    }
}

/// A UDP datagram to the service, with a number in it.
fn frame(number: u64, length: usize) -> Vec<u8> {
    let mut frame = vec![0_u8; length];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    frame[22] = 64;
    frame[23] = 17;
    frame[26..30].copy_from_slice(&[192, 0, 2, 2]);
    frame[30..34].copy_from_slice(&VIP.octets());
    frame[34..36].copy_from_slice(&9_u16.to_be_bytes());
    frame[36..38].copy_from_slice(&7_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&((length - 34) as u16).to_be_bytes());
    frame[42..50].copy_from_slice(&number.to_be_bytes());
    for (at, byte) in frame[50..].iter_mut().enumerate() {
        *byte = (number as usize + at) as u8;
    }
    frame
}

/// Keeps what it is given.
struct Kept {
    room: Vec<u8>,
    frames: Vec<Vec<u8>>,
    /// How many more it has room for.
    left: usize,
}

impl Kept {
    fn new(room: usize) -> Self {
        Self { room: vec![0; room], frames: Vec::new(), left: usize::MAX }
    }
}

impl Landing for Kept {
    fn room(&mut self) -> Option<&mut [u8]> {
        (self.left > 0).then_some(&mut self.room[..])
    }

    fn landed(&mut self, length: usize) -> bool {
        self.left -= 1;
        self.frames.push(self.room[..length].to_vec());
        true
    }
}

/// A million frames there and back through rings of 256: each arrives once, in order, whole; and
/// at the end no frame of the memory is missing.
#[test]
fn frames_go_there_and_back_and_none_of_the_memory_is_lost() {
    if !may_run() {
        return;
    }
    let wire = Wire::new(1500);
    let mut port = wire.open(1522);
    let (mut sent, mut back) = (0_u64, 0_u64);
    let mut buffer = vec![0; 2048];
    let deadline = Instant::now() + Duration::from_secs(180);
    let mut kept = Kept::new(2048);
    let all: u64 = std::env::var("FRAMES").map_or(1_000_000, |text| text.parse().unwrap());
    while back < all {
        // Bursts of all sizes, and lengths of all kinds.
        let burst = 1 + sent % 97;
        for _ in 0..burst {
            if sent < all && wire.write(&frame(sent, 60 + (sent * 31 % 1455) as usize)) {
                sent += 1;
            }
        }
        let came = port.receiver.receive(64, &mut kept);
        assert_eq!(came, kept.frames.len());
        let given = port.sender.send(kept.frames.iter().map(Vec::as_slice));
        assert_eq!(given, came, "the ring has room for all that came");
        kept.frames.clear();
        while let Some(length) = wire.read(&mut buffer) {
            let wanted = frame(back, 60 + (back * 31 % 1455) as usize);
            assert_eq!(buffer[..length], wanted, "frame {back}");
            back += 1;
        }
        assert!(Instant::now() < deadline, "{sent} sent, {back} back: {:?}", port.queue.stats());
    }
    port.assert_complete();
    let stats = port.queue.stats();
    assert_eq!((stats.rx_frames, stats.tx_frames), (all, all));
    assert_eq!((stats.rx_missed, stats.rx_errors, stats.tx_errors), (0, 0, 0));
    assert_eq!(stats.rx_bytes, stats.tx_bytes);
}

/// More than the rings hold: what has no room is counted, and what follows arrives.
#[test]
fn what_has_no_room_is_counted_and_nothing_stays_behind() {
    if !may_run() {
        return;
    }
    let wire = Wire::new(1500);
    let mut port = wire.open(1522);
    let mut wrote = 0;
    while wrote < u64::from(RING) + 100 {
        wrote += u64::from(wire.write(&frame(wrote, 60)));
    }
    let deadline = Instant::now() + PATIENCE;
    while port.queue.stats().rx_missed < 100 {
        assert!(Instant::now() < deadline, "{:?}", port.queue.stats());
    }
    let mut kept = Kept::new(2048);
    kept.left = 10;
    assert_eq!(port.receiver.receive(1000, &mut kept), 10, "as many as there is room for");
    assert_eq!(port.queue.stats().rx_no_buffer, 1);
    kept.left = usize::MAX;
    assert_eq!(port.receiver.receive(1000, &mut kept), RING as usize - 10);
    assert!(kept.frames.iter().zip(0..).all(|(found, number)| *found == frame(number, 60)));
    port.assert_complete();
    assert!(wire.write(&frame(wrote, 60)), "the wire takes it");
    kept.frames.clear();
    while port.receiver.receive(64, &mut kept) == 0 {
        assert!(Instant::now() < deadline, "{:?}", port.queue.stats());
    }
    assert_eq!(kept.frames, [frame(wrote, 60)]);
    // Too many at once, too short, too long.
    let many = vec![frame(0, 1000); 2 * RING as usize];
    let given = port.sender.send(many.iter().map(Vec::as_slice));
    assert_eq!(given, RING as usize, "one ring of them");
    let bad = [&many[0][..13], &[0; 2000][..]];
    assert_eq!(port.sender.send(bad.into_iter()), 2);
    assert_eq!(port.queue.stats().tx_errors, 2);
    port.assert_complete();
}

/// A queue goes on in other hands, again and again, with what came while nobody had it and what
/// the one before had put into the ring; and no frame of the memory is missing.
#[test]
fn a_queue_is_taken_over_while_frames_come() {
    if !may_run() {
        return;
    }
    let wire = Wire::new(1500);
    let Opened { mut queue, receiver, sender, _program, _steer } = wire.open(1522);
    let (mut ends, mut number) = (Some((receiver, sender)), 0);
    let (mut kept, mut buffer) = (Kept::new(2048), vec![0; 2048]);
    let deadline = Instant::now() + PATIENCE;
    for round in 0..50_u64 {
        let (mut receiver, mut sender) = ends.take().expect("the ends");
        // Some frames are read and sent back by the one, some are left in the rings.
        let count = 1 + round * 5 % (u64::from(RING) / 2);
        let write = |from, to| {
            for at in number + from..number + to {
                while !wire.write(&frame(at, 300)) {
                    assert!(Instant::now() < deadline, "frame {at} leaves");
                }
            }
        };
        write(0, count - count / 3);
        receiver.receive((count / 2) as usize, &mut kept);
        sender.send(kept.frames.iter().map(Vec::as_slice));
        assert!(queue.left().is_none(), "it is in use");
        drop((receiver, sender));
        let left = queue.left().expect("nobody uses it");
        write(count - count / 3, count);
        let (opened, fds) = queue.offer();
        let [socket, memory] = fds.map(|fd| fd.try_clone_to_owned().expect("a descriptor"));
        let from = Heirloom::new(opened, socket, memory).expect("its memory");
        let (now, mut receiver, mut sender) = Queue::adopt(from, &left).expect("its rings");
        queue = now;
        let first = kept.frames.len();
        while kept.frames.len() < count as usize {
            receiver.receive(64, &mut kept);
            assert!(Instant::now() < deadline, "{} of {count}", kept.frames.len());
        }
        sender.send(kept.frames[first..].iter().map(Vec::as_slice));
        for (at, found) in kept.frames.drain(..).enumerate() {
            assert_eq!(found, frame(number + at as u64, 300), "round {round}");
        }
        let mut back = 0;
        while back < count {
            sender.refresh();
            if let Some(length) = wire.read(&mut buffer) {
                assert_eq!(buffer[..length], frame(number + back, 300), "round {round}");
                back += 1;
            }
            assert!(Instant::now() < deadline, "{back} of {count} are back");
        }
        number += count;
        ends = Some((receiver, sender));
    }
    let (receiver, sender) = ends.expect("the ends");
    Opened { queue, receiver, sender, _program, _steer }.assert_complete();
}

/// Frames longer than one of the memory's are spread over several, both ways.
#[test]
fn jumbo_frames_are_spread() {
    if !may_run() {
        return;
    }
    let wire = Wire::new(9000);
    let mut port = wire.open(9022);
    assert!(port.queue.kind().spreads);
    let mut buffer = vec![0; 16_384];
    let mut kept = Kept::new(9100);
    let deadline = Instant::now() + PATIENCE;
    for number in 0..5_000_u64 {
        let wanted = frame(number, 60 + (number * 37 % 8950) as usize);
        while !wire.write(&wanted) {
            assert!(Instant::now() < deadline, "frame {number} leaves");
        }
        while port.receiver.receive(64, &mut kept) == 0 {
            assert!(Instant::now() < deadline, "{number} arrives: {:?}", port.queue.stats());
        }
        assert_eq!(kept.frames, [&wanted[..]], "frame {number}");
        assert_eq!(port.sender.send(kept.frames.iter().map(Vec::as_slice)), 1);
        kept.frames.clear();
        let length = loop {
            if let Some(length) = wire.read(&mut buffer) {
                break length;
            }
            assert!(Instant::now() < deadline, "{number} comes back: {:?}", port.queue.stats());
        };
        assert_eq!(buffer[..length], wanted, "frame {number}");
    }
    // One that does not fit where it is to land is dropped; the next one is not.
    kept.room.truncate(4000);
    assert!(wire.write(&frame(1, 8000)) && wire.write(&frame(2, 3000)));
    while port.receiver.receive(64, &mut kept) == 0 {
        assert!(Instant::now() < deadline, "{:?}", port.queue.stats());
    }
    assert_eq!(kept.frames, [frame(2, 3000)]);
    assert_eq!(port.queue.stats().rx_errors, 1);
    port.assert_complete();
}

/// The interface goes while frames fly, and comes back under the same name.
#[test]
fn an_interface_may_go_under_traffic_and_return() {
    if !may_run() {
        return;
    }
    let mut wire = Wire::new(1500);
    for round in 0..3 {
        let mut port = wire.open(1522);
        let mut kept = Kept::new(2048);
        let deadline = Instant::now() + PATIENCE;
        while port.queue.stats().rx_frames < 500 {
            wire.write(&frame(0, 200));
            port.receiver.receive(64, &mut kept);
            port.sender.send(kept.frames.iter().map(Vec::as_slice));
            kept.frames.clear();
            assert!(Instant::now() < deadline, "{:?}", port.queue.stats());
        }
        ip(&["link", "del", &wire.name]);
        // What was on its way may still arrive.
        port.receiver.receive(RING as usize, &mut kept);
        for _ in 0..1000 {
            assert!(!wire.write(&frame(0, 200)), "the other end went with it");
            assert_eq!(port.receiver.receive(64, &mut kept), 0, "round {round}");
            port.sender.send([&frame(1, 200)[..]].into_iter());
        }
        port.assert_receiver_complete();
        drop(port);
        wire = Wire::new(1500);
    }
}

/// poll(2) wakes when a frame came, and only then.
#[test]
fn the_descriptor_is_readable_while_frames_wait() {
    if !may_run() {
        return;
    }
    let wire = Wire::new(1500);
    let mut port = wire.open(1522);
    let readable = |port: &Opened, wait: i32| {
        let fd = port.receiver.wake_fd().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, as many as are said.
        unsafe { libc::poll(&raw mut poll, 1, wait) == 1 }
    };
    assert!(port.receiver.arm() && !readable(&port, 0));
    assert!(wire.write(&frame(1, 60)));
    assert!(readable(&port, 10_000));
    assert!(!port.receiver.arm(), "it would sleep over a frame");
    let mut kept = Kept::new(2048);
    assert_eq!(port.receiver.receive(64, &mut kept), 1);
    assert!(port.receiver.arm() && !readable(&port, 0));
}
