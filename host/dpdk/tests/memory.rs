//! Packet buffers and queues on devices that need no privileges: DPDK's software ring, which
//! returns to its receive queue what was sent, and its capture files.
//!
//! The environment layer starts once in a process, so the tests share one; each has devices of its
//! own. They share the pool too: those that count free buffers hold a lock.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;
use sluice_dpdk::{
    BURST, Burst, Device, Eal, EalConfig, Error, HugePages, Mbuf, Memif, MemifRole, Port,
    PortConfig, PortState, QueuePair, WorkerThread,
};

const FRAMES: u32 = 4096;

fn eal() -> (&'static Eal, MutexGuard<'static, ()>) {
    static EAL: OnceLock<Eal> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let config = EalConfig {
        huge_pages: HugePages::Off,
        frames: FRAMES,
        memory_mb: Some(64),
        ..EalConfig::default()
    };
    // On a thread of its own: DPDK's main thread keeps buffers at hand, and a test's thread ends.
    let start = || {
        let init = std::thread::spawn(move || Eal::init(&config).expect("ordinary pages do"));
        init.join().unwrap()
    };
    (EAL.get_or_init(start), turn)
}

fn ring(eal: &Eal, name: &str) -> (Port, QueuePair) {
    let device = Device::Dpdk { devargs: name.to_owned() };
    let (port, mut queues) = Port::open(eal, &PortConfig::new(name, device)).unwrap();
    (port, queues.pop().expect("one queue"))
}

fn frame(eal: &Eal, bytes: &[u8]) -> Mbuf {
    eal.frames().copy_of(bytes).expect("a free buffer that is large enough")
}

#[test]
fn a_frame_grows_and_shrinks_at_both_ends() {
    let (eal, _turn) = eal();
    let mut frame = frame(eal, b"0123456789");
    let (headroom, tailroom) = (frame.headroom(), frame.tailroom());
    assert!(headroom >= 128 && tailroom >= 1536 - 10, "{headroom} and {tailroom}");

    assert!(frame.pull_front(4));
    assert_eq!(frame.bytes(), b"456789");
    assert!(frame.push_front(4));
    assert_eq!(frame.bytes(), b"0123456789", "what was pulled is still there");
    assert!(frame.push_front(headroom));
    assert!(!frame.push_front(1), "no headroom left");
    assert_eq!(frame.bytes().len(), headroom + 10);
    assert!(frame.pull_front(headroom));

    assert!(!frame.pull_front(11), "longer than the frame");
    assert!(!frame.set_len(11 + tailroom), "longer than the buffer");
    assert_eq!(frame.bytes(), b"0123456789", "a refused change changes nothing");
    assert!(frame.set_len(10 + tailroom));
    assert_eq!(frame.tailroom(), 0);
    frame.bytes_mut().fill(7);
    assert!(frame.set_len(0));
    assert!(frame.bytes().is_empty());
    assert!(!frame.pull_front(1));
    assert!(!frame.push_front(usize::MAX) && !frame.set_len(usize::MAX));
    assert!(!frame.pull_front(usize::MAX));
}

#[test]
fn a_dropped_frame_goes_back_to_its_pool_from_any_thread() {
    let (eal, _turn) = eal();
    let pool = eal.frames();
    assert_eq!((pool.capacity(), pool.available()), (FRAMES, FRAMES));
    let held: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(held.len(), FRAMES as usize);
    assert!(pool.alloc().is_none() && pool.copy_of(b"x").is_none());
    let mut burst = Burst::new();
    assert_eq!(pool.alloc_burst(&mut burst, 3), 0, "all or nothing");
    let worker = std::thread::spawn(move || drop(held));
    worker.join().unwrap();
    assert_eq!(pool.available(), FRAMES);
    assert_eq!(pool.alloc_burst(&mut burst, BURST + 1), BURST, "as many as there is room for");
    drop(burst);
    assert!(pool.copy_of(&[0; 4096]).is_none(), "larger than a buffer");
    assert_eq!(pool.available(), FRAMES);
}

#[test]
fn a_worker_that_ends_leaves_its_buffers_to_the_others() {
    let (eal, _turn) = eal();
    let pool = eal.frames();
    let worker = std::thread::spawn(move || {
        let _thread = WorkerThread::register(eal).unwrap();
        // Freed by a registered thread, buffers go to its own cache first.
        let held: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).take(100).collect();
        drop(held);
    });
    worker.join().unwrap();
    let all: Vec<Mbuf> = std::iter::from_fn(|| pool.alloc()).collect();
    assert_eq!(all.len(), FRAMES as usize);
}

#[test]
fn frames_come_back_from_a_ring_in_order_and_whole() {
    let (eal, _turn) = eal();
    let _thread = WorkerThread::register(eal).unwrap();
    let (port, mut queue) = ring(eal, "net_ring_order");
    let mut out: ArrayVec<Mbuf, 48> = (0..48_u8).map(|n| frame(eal, &[n; 60])).collect();
    assert_eq!(queue.tx.tx(&mut out), 48);
    assert!(out.is_empty());

    // Behind what the vector holds already, and no more than it has room for.
    let mut back = ArrayVec::<Mbuf, 40>::new();
    back.push(frame(eal, b"here before"));
    assert_eq!(queue.rx.rx(&mut back), 39);
    assert_eq!(back[0].bytes(), b"here before");
    for (n, frame) in back[1..].iter().enumerate() {
        assert_eq!(frame.bytes(), [n as u8; 60]);
    }
    assert_eq!(queue.rx.rx(&mut back), 0, "the vector is full");
    back.clear();
    assert_eq!(queue.rx.rx(&mut back), 9);
    assert_eq!(queue.rx.rx(&mut back), 0, "the ring is empty");
    assert!(queue.rx.wake_fd().is_none() && port.wake_fds().is_empty());
    assert_eq!(queue.rx.chains_dropped(), 0);
    let stats = port.stats();
    assert_eq!((stats.rx_frames, stats.tx_frames), (48, 48));
}

#[test]
fn what_a_full_queue_does_not_take_stays_in_order() {
    let (eal, _turn) = eal();
    let (port, mut queue) = ring(eal, "net_ring_full");
    let mut number = 0_u16;
    let left = loop {
        let mut out = Burst::new();
        while !out.is_full() {
            out.push(frame(eal, &number.to_be_bytes()));
            number += 1;
        }
        let sent = queue.tx.tx(&mut out);
        if sent < BURST {
            assert_eq!(out.len(), BURST - sent);
            break out;
        }
        assert!(number < 3000, "the ring takes a thousand");
    };
    let first_left = number - left.len() as u16;
    for (n, frame) in left.iter().enumerate() {
        assert_eq!(frame.bytes(), (first_left + n as u16).to_be_bytes());
    }
    drop(left);
    let mut back = Burst::new();
    let mut expected = 0_u16;
    while queue.rx.rx(&mut back) > 0 {
        for frame in back.drain(..) {
            assert_eq!(frame.bytes(), expected.to_be_bytes());
            expected += 1;
        }
    }
    assert_eq!(expected, first_left, "all that were taken came back");
    drop((queue, port));
    assert_eq!(eal.frames().available(), FRAMES);
}

#[test]
fn a_port_is_closed_when_its_last_handle_goes() {
    let (eal, _turn) = eal();
    let (port, queue) = ring(eal, "net_ring_close");
    assert_eq!(port.state(), PortState::Up);
    assert_eq!((port.name(), port.driver(), port.queues()), ("net_ring_close", "net_ring", 1));
    let port = port.close().expect_err("a queue is held");
    let QueuePair { rx, tx } = queue;
    drop(rx);
    let port = port.close().expect_err("half a queue is held");
    drop(tx);
    port.close().expect("nothing is held");
    // The name is free again, and a frame outlives its port.
    let (port, mut queue) = ring(eal, "net_ring_close");
    let mut burst = Burst::new();
    burst.push(frame(eal, b"outlives"));
    assert_eq!(queue.tx.tx(&mut burst), 1);
    assert_eq!(queue.rx.rx(&mut burst), 1);
    drop(port);
    drop(queue);
    assert_eq!(burst[0].bytes(), b"outlives");
}

#[test]
fn mistakes_are_explained() {
    let (eal, _turn) = eal();
    let again = Eal::init(&EalConfig { huge_pages: HugePages::Off, ..EalConfig::default() });
    assert!(matches!(again, Err(Error::AlreadyStarted)), "{again:?}");
    let open = |device: Device, queues: u16| {
        let config = PortConfig { queues, ..PortConfig::new("front", device) };
        Port::open(eal, &config).map(|_| ()).expect_err("refused").to_string()
    };
    let missing = Device::AfPacket { interface: "nowhere0".to_owned() };
    let text = open(missing, 1);
    assert!(
        text == "front: there is no network interface \"nowhere0\" in this network namespace"
            || text.contains("needs CAP_"),
        "{text}"
    );
    let text = open(Device::Dpdk { devargs: "net_null_none".to_owned() }, 0);
    assert_eq!(text, "front: a port needs at least one queue");
    let text = open(Device::Dpdk { devargs: "net_nothing0".to_owned() }, 1);
    assert!(text.starts_with("front: open dpdk:net_nothing0: "), "{text}");
    let text = open(Device::Dpdk { devargs: "net_ring_queues".to_owned() }, 99);
    assert!(text.contains("99 are configured: set queues = "), "{text}");
}

#[test]
fn capture_files_are_read_and_written() {
    let (eal, _turn) = eal();
    let folder = std::env::temp_dir().join(format!("sluice-dpdk-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (input, output) = (folder.join("in.pcap"), folder.join("out.pcap"));
    let mut capture = Vec::new();
    // The file's header: magic, version 2.4, snapshot length 65535, Ethernet.
    capture.extend([0xa1b2_c3d4, 0x0004_0002, 0, 0, 0xffff, 1_u32].map(u32::to_ne_bytes).concat());
    for n in 0..3_u8 {
        capture.extend([u32::from(n), 0, 60, 60].map(u32::to_ne_bytes).concat());
        capture.extend([n; 60]);
    }
    std::fs::write(&input, &capture).unwrap();
    let device = Device::Pcap { rx: input, tx: output.clone() };
    let (port, mut queues) = Port::open(eal, &PortConfig::new("capture", device)).unwrap();
    let mut frames = Burst::new();
    assert_eq!(queues[0].rx.rx(&mut frames), 3);
    assert_eq!(frames[2].bytes(), [2; 60]);
    assert_eq!(queues[0].tx.tx(&mut frames), 3);
    drop(queues);
    port.close().unwrap();
    let written = std::fs::read(&output).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(written.len(), capture.len());
    assert_eq!(&written[written.len() - 60..], [2; 60]);
}

#[test]
fn two_ends_of_a_memif_link_find_each_other() {
    let (eal, _turn) = eal();
    let socket = std::env::temp_dir().join(format!("sluice-memif-{}.sock", std::process::id()));
    let end = |role| {
        let device = Device::Memif(Memif::new(socket.display().to_string(), 7, role));
        let mac = Some([2, 0, 0, 0, 0, role as u8]);
        let config = PortConfig { mac, ..PortConfig::new("memif", device) };
        let (port, mut queues) = Port::open(eal, &config).unwrap();
        assert_eq!(Some(port.mac()), mac);
        (port, queues.pop().expect("one queue"))
    };
    let (server, mut at_server) = end(MemifRole::Server);
    assert_eq!(server.state(), PortState::Down, "nobody is there yet");
    let (client, mut at_client) = end(MemifRole::Client);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !(server.link_up() && client.link_up()) {
        assert!(Instant::now() < deadline, "they never met");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The client lends the server buffers when it polls, so both poll until the frame is through.
    let carry = |from: &mut QueuePair, to: &mut QueuePair, frames: &mut Burst| {
        let mut arrived = Burst::new();
        while arrived.is_empty() {
            assert!(Instant::now() < deadline, "it never arrived");
            from.tx.tx(frames);
            to.rx.rx(&mut arrived);
        }
        *frames = arrived;
    };
    let mut frames = Burst::new();
    frames.push(frame(eal, b"there and back"));
    carry(&mut at_client, &mut at_server, &mut frames);
    assert_eq!(frames[0].bytes(), b"there and back");
    carry(&mut at_server, &mut at_client, &mut frames);
    assert_eq!(frames[0].bytes(), b"there and back");
    drop((frames, at_client, at_server));
    client.close().unwrap();
    server.close().unwrap();
    let _ = std::fs::remove_file(&socket);
}
