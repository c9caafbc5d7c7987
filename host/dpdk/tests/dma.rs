//! Frames over memif whose copies a copy engine does: DPDK's `dma_skeleton`, a thread that copies.

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;
use sluice_dpdk::{
    Burst, Device, DmaCopies, Eal, EalConfig, Error, HugePages, Memif, MemifRole, Port, PortConfig,
    QueuePair,
};

const ENGINE: &str = "dma_skeleton";
/// Bytes from which on the engine copies.
const FROM: u32 = 256;

fn port(role: MemifRole, socket: &str, copies: Option<DmaCopies>) -> PortConfig {
    let memif = Memif { copies, ..Memif::new(format!("@{socket}"), 0, role) };
    let name = if role == MemifRole::Client { "client" } else { "server" };
    PortConfig::new(name, Device::Memif(memif))
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

fn bytes(number: usize) -> Vec<u8> {
    // Short ones among long ones, in an order that is no pattern.
    let length = [60, 1500, 255, 256, 64, 1000, 700][number * 5 % 7];
    (0..length).map(|at| (number * 31 + at * 7) as u8).collect()
}

/// Frames of all sizes from one to the other, as fast as they go, in bursts.
fn carry(eal: &Eal, from: &mut QueuePair, to: &mut QueuePair, count: usize) {
    let (mut sent, mut came) = (0, 0);
    let mut waiting = ArrayVec::<_, 64>::new();
    until("all frames come", || {
        while !waiting.is_full() && sent < count {
            let Some(frame) = eal.frames().copy_of(&bytes(sent)) else { break };
            waiting.push(frame);
            sent += 1;
        }
        from.tx.tx(&mut waiting);
        from.tx.refresh();
        let mut burst = Burst::new();
        to.rx.rx(&mut burst);
        for frame in burst {
            assert_eq!(frame.bytes(), bytes(came), "frame {came}");
            came += 1;
        }
        came == count
    });
    until("nothing is in flight", || {
        from.tx.refresh();
        !from.tx.is_busy()
    });
}

/// One test: the environment layer starts once in a process, and there is one such engine.
#[test]
fn an_engine_copies_long_frames_both_ways_and_all_keep_their_order() {
    let config = EalConfig {
        huge_pages: HugePages::Off,
        frames: 8192,
        memory_mb: Some(96),
        ..EalConfig::default()
    };
    let eal = Eal::init(&config).unwrap();
    let free = eal.frames().available();
    let socket = format!("sluice-dma-{}", std::process::id());
    let copies = DmaCopies { device: ENGINE.into(), from: FROM };

    let unknown = DmaCopies { device: "0000:ff:1f.7".into(), from: FROM };
    let refused = Port::open(&eal, &port(MemifRole::Server, &socket, Some(unknown))).unwrap_err();
    assert!(refused.to_string().contains("0000:ff:1f.7"), "{refused}");
    let ip = Memif {
        ip: true,
        copies: Some(copies.clone()),
        ..Memif::new(format!("@{socket}"), 0, MemifRole::Server)
    };
    let refused = Port::open(&eal, &PortConfig::new("ip", Device::Memif(ip))).unwrap_err();
    assert!(matches!(&refused, Error::Config { problem, .. } if problem.contains("Ethernet")));

    for both in [false, true] {
        let other = both.then(|| copies.clone());
        let (server, mut s) =
            Port::open(&eal, &port(MemifRole::Server, &socket, Some(copies.clone()))).unwrap();
        let (client, mut c) = Port::open(&eal, &port(MemifRole::Client, &socket, other)).unwrap();
        until("the link is up", || server.link_up() && client.link_up());
        carry(&eal, &mut s[0], &mut c[0], 5000);
        carry(&eal, &mut c[0], &mut s[0], 5000);
        let done = server.copies().unwrap();
        // Four of seven are long enough; each is one copy, since buffers hold 2,048 bytes.
        let long = 2 * (0..5000).filter(|number| bytes(*number).len() >= 256).count() as u64;
        assert_eq!((done.offloaded + done.full, done.failed), (long, 0), "{done:?}");
        assert!(done.offloaded > long / 2, "{done:?}");
        assert_eq!(client.copies().is_some(), both);
        assert_eq!(server.stats().rx_frames, 5000);
        assert!(s[0].rx.arm(), "nothing is in flight: a worker may sleep");
        drop((s, c, server, client));
    }
    until("all buffers are back", || eal.frames().available() == free);
}
