//! Both ends of links in one process: that they find each other, carry frames, and survive each
//! other's leaving without a leak.

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use sluice_memif::{
    Address, Addresses, Landing, Link, LinkConfig, Mode, Receiver, Role, SECRET_BYTES, Sender,
};

/// One test at a time counts descriptors and mappings.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn address() -> Address {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    Address::Abstract(format!("sluice-test-{}-{number}", std::process::id()))
}

fn config(socket: &Address, role: Role) -> LinkConfig {
    LinkConfig {
        name: "test".into(),
        socket: socket.clone(),
        id: 0,
        role,
        mode: Mode::Ethernet,
        secret: [0; SECRET_BYTES],
        queues: 1,
        log2: 8,
        buffer_bytes: 2048,
    }
}

#[derive(Default)]
struct Shelf {
    room: Vec<u8>,
    frames: VecDeque<Vec<u8>>,
}

impl Landing for Shelf {
    fn room(&mut self) -> Option<&mut [u8]> {
        self.room.resize(9000, 0);
        Some(&mut self.room)
    }

    fn landed(&mut self, length: usize) -> bool {
        self.frames.push_back(self.room[..length].to_vec());
        true
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn carry(tx: &mut Sender, rx: &mut Receiver, frame: &[u8]) {
    let mut shelf = Shelf::default();
    until("the frame goes", || tx.send([frame].into_iter()) == 1);
    until("the frame comes", || rx.receive(64, &mut shelf) == 1);
    assert_eq!(shelf.frames, [frame]);
}

#[test]
fn both_ends_carry_frames_with_any_numbers_of_queues() {
    let _turn = turn();
    for (at_server, at_client) in [(1, 1), (3, 1), (1, 3), (4, 4)] {
        let socket = address();
        let open =
            |role, queues| Link::open(LinkConfig { queues, ..config(&socket, role) }).unwrap();
        let (client, mut c) = open(Role::Client, at_client);
        let (server, mut s) = open(Role::Server, at_server);
        until("both are up", || client.is_up() && server.is_up());
        assert_eq!(client.peer().as_deref(), Some("test"));
        for length in [1, 60, 2048, 2049, 9000] {
            let frame: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let rings = usize::from(at_server).min(usize::from(at_client));
            // A queue without a ring of its own sends by another's.
            // One without a ring of its own receives of none; one that has two empties both.
            for (index, (_, tx)) in c.iter_mut().enumerate() {
                carry(tx, &mut s[index % usize::from(at_server) % rings].0, &frame);
            }
            for (index, (_, tx)) in s.iter_mut().enumerate() {
                carry(tx, &mut c[index % usize::from(at_client)].0, &frame);
            }
        }
        let stats = client.stats();
        assert_eq!(stats.tx_frames, 5 * u64::from(at_client));
        assert_eq!(stats.rx_frames, 5 * u64::from(at_server));
        assert_eq!((stats.rx_errors, stats.tx_errors, stats.connects), (0, 0, 1));
    }
}

#[test]
fn several_ids_share_a_socket_and_a_secret_is_asked_for() {
    let _turn = turn();
    let socket = address();
    let mut secret = [0; SECRET_BYTES];
    secret[..6].copy_from_slice(b"secret");
    let first = Link::open(config(&socket, Role::Server)).unwrap();
    let second = Link::open(LinkConfig { id: 5, secret, ..config(&socket, Role::Server) }).unwrap();
    let taken = Link::open(config(&socket, Role::Server)).unwrap_err();
    assert!(taken.to_string().contains("is in use"), "{taken}");
    let wrong = Link::open(LinkConfig { id: 5, ..config(&socket, Role::Client) }).unwrap();
    until("it is refused", || wrong.0.trouble().contains("secret"));
    let nobody = Link::open(LinkConfig { id: 6, ..config(&socket, Role::Client) }).unwrap();
    until("it is refused", || nobody.0.trouble().contains("no interface with id 6"));
    assert!(!first.0.is_up() && !second.0.is_up());
    drop((wrong, nobody));
    let right = Link::open(LinkConfig { id: 5, secret, ..config(&socket, Role::Client) }).unwrap();
    until("they meet", || right.0.is_up() && second.0.is_up());
    let late = Link::open(LinkConfig { id: 5, secret, ..config(&socket, Role::Client) }).unwrap();
    until("it is refused", || late.0.trouble().contains("has a client already"));
    assert!(right.0.is_up() && !first.0.is_up());
    drop(right);
    until("the next one comes", || late.0.is_up());
}

#[test]
fn a_sleeping_queue_is_woken_by_frames_and_by_a_peer_that_comes_or_leaves() {
    let _turn = turn();
    for roles in [(Role::Server, Role::Client), (Role::Client, Role::Server)] {
        let socket = address();
        let (_link, mut ends) = Link::open(config(&socket, roles.0)).unwrap();
        let (rx, _) = &mut ends[0];
        let mut shelf = Shelf::default();
        let mut wait = |rx: &mut Receiver| {
            let woken = !rx.arm() || {
                let mut fds = [PollFd::from_borrowed_fd(rx.wake_fd(), PollFlags::IN)];
                let timeout = Timespec { tv_sec: 20, tv_nsec: 0 };
                poll(&mut fds, Some(&timeout)).unwrap() == 1
            };
            rx.disarm();
            woken && rx.receive(64, &mut shelf) < usize::MAX
        };
        let (peer, mut others) = Link::open(config(&socket, roles.1)).unwrap();
        assert!(wait(rx), "somebody comes");
        until("both are up", || peer.is_up());
        for _ in 0..3 {
            let tx = &mut others[0].1;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    until("the frame goes", || tx.send([&[7; 60][..]].into_iter()) == 1);
                    // A sleeper is woken at the next call.
                    tx.send([].into_iter());
                });
                assert!(wait(rx), "a frame comes");
            });
        }
        drop(others);
        drop(peer);
        assert!(wait(rx), "it leaves");
        assert_eq!(shelf.frames.len(), 3);
    }
}

/// Open descriptors and mappings of shared memory.
fn holdings() -> (usize, usize) {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("sluice-memif")).count();
    (fs::read_dir("/proc/self/fd").unwrap().count(), shared)
}

#[test]
fn peers_that_leave_under_traffic_leave_nothing_behind() {
    let _turn = turn();
    for roles in [(Role::Server, Role::Client), (Role::Client, Role::Server)] {
        let socket = address();
        let (link, mut ends) = Link::open(config(&socket, roles.0)).unwrap();
        until("those of other tests are gone", || holdings().1 == 0);
        let before = holdings();
        let (rx, tx) = &mut ends[0];
        let frames = [[1_u8; 60]; 32];
        let mut shelf = Shelf::default();
        for round in 0..15 {
            let peer = Link::open(config(&socket, roles.1)).unwrap();
            std::thread::scope(|scope| {
                let leaver = scope.spawn(move || {
                    let (peer, mut ends) = peer;
                    let (rx, tx) = &mut ends[0];
                    let mut shelf = Shelf::default();
                    let mut rounds = 0;
                    until("traffic flows", || {
                        tx.send(frames.iter().map(|frame| &frame[..]));
                        rounds += rx.receive(64, &mut shelf);
                        rounds > 100
                    });
                    if round % 2 == 0 {
                        drop(peer);
                    }
                });
                while !leaver.is_finished() {
                    tx.send(frames.iter().map(|frame| &frame[..]));
                    rx.receive(64, &mut shelf);
                    shelf.frames.clear();
                }
            });
        }
        until("it is noticed", || !link.is_up());
        until("nothing is left", || {
            // As a worker that sleeps is woken to do.
            rx.receive(64, &mut shelf);
            tx.refresh();
            holdings() == before
        });
        assert_eq!(link.stats().connects, 15);
    }
}

#[test]
fn a_socket_file_is_left_by_nobody_and_taken_from_the_dead_only() {
    let _turn = turn();
    let path = std::env::temp_dir().join(format!("sluice-memif-{}.sock", std::process::id()));
    let socket = Address::Path(path.clone());
    fs::write(&path, "a file").unwrap();
    let error = Link::open(config(&socket, Role::Server)).unwrap_err();
    assert!(error.to_string().contains("no socket"), "{error}");
    fs::remove_file(&path).unwrap();
    // As a server leaves it that was killed.
    let dead = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&dead, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&dead, 1).unwrap();
    let error = Link::open(config(&socket, Role::Server)).unwrap_err();
    assert!(error.to_string().contains("another program listens"), "{error}");
    drop(dead);
    let server = Link::open(config(&socket, Role::Server)).unwrap();
    assert!(path.exists());
    drop(server);
    assert!(!path.exists());
}

#[test]
fn in_ip_mode_packets_lose_their_header_and_get_another() {
    let _turn = turn();
    let socket = address();
    let addresses = |ours, theirs| {
        Mode::Ip(Addresses { ours: [2, 0, 0, 0, 0, ours], theirs: [2, 0, 0, 0, 0, theirs] })
    };
    let open = |role, mode| Link::open(LinkConfig { mode, ..config(&socket, role) }).unwrap();
    let (server, mut s) = open(Role::Server, addresses(1, 2));
    let wrong = open(Role::Client, Mode::Ethernet);
    until("it is refused", || wrong.0.trouble().contains("mode 0 where 1 is wanted"));
    drop(wrong);
    let (client, mut c) = open(Role::Client, addresses(3, 4));
    until("both are up", || client.is_up() && server.is_up());
    for (version, kind) in [(0x45, [8, 0]), (0x60, [0x86, 0xdd])] {
        let frame = |ours: u8, theirs: u8| {
            let mut frame = vec![2, 0, 0, 0, 0, ours, 2, 0, 0, 0, 0, theirs];
            frame.extend(kind);
            frame.extend([version].iter().chain(&[7; 59]));
            frame
        };
        let (sent, strange) = (frame(9, 9), vec![0; 60]);
        let mut shelf = Shelf::default();
        let all = [&sent[..], &strange, &sent];
        until("they go", || c[0].1.send(all.into_iter()) == 3);
        until("they come", || {
            s[0].0.receive(64, &mut shelf);
            shelf.frames.len() >= 2
        });
        assert_eq!(shelf.frames, [frame(1, 2), frame(1, 2)]);
    }
    assert_eq!(client.stats().tx_errors, 2, "what is no packet");

    // The kernel's question is answered by the end that it was sent to.
    let mut question = vec![0xff; 6];
    question.extend([2, 0, 0, 0, 0, 3, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 3]);
    question.extend([192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 9]);
    assert_eq!(c[0].1.send([&question[..]].into_iter()), 1);
    assert!(!c[0].0.arm(), "there is something to receive");
    let mut shelf = Shelf::default();
    assert_eq!(c[0].0.receive(64, &mut shelf), 1);
    assert_eq!(shelf.frames[0][..12], [2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4]);
}
