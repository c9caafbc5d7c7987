//! What a memif driver costs: our own and DPDK's by turns, in one run.
//!
//! `memif [SIZE[,SIZE...]] [TURNS] [LOG2]`: sizes of frames in bytes (60), turns (7), logarithm of
//! the rings' descriptors (11).
//!
//! Two threads, each with a core (0 and 1): one lends and fills buffers as a client as fast as the
//! other takes them, which sends every frame back as a server, as a director does. Printed for each
//! pair of drivers, server's and client's, as medians of the turns: frames a second, and ticks of
//! the time stamp counter that the server spent a frame in receiving and in sending. Last comes
//! what such rings take without any driver (`bare.rs`).
//! With `ONE_CORE` in the environment both ends of a pair take turns on one core.

mod bare;

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_director::frame::Frame;
use sluice_dpdk::{
    Burst, Device, Eal, EalConfig, Memif, MemifRole, Port, PortConfig, QueuePair, WorkerThread,
    ticks,
};

/// How long a turn measures.
const TURN: Duration = Duration::from_millis(300);

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let sizes = arguments.next().unwrap_or_else(|| "60".to_owned());
    let turns: usize = arguments.next().map_or(Ok(7), |turns| turns.parse())?;
    let log2 = arguments.next().map_or(Ok(11), |log2| log2.parse())?;
    let eal = Eal::init(&EalConfig { frames: 32_768, ..EalConfig::default() })?;
    for size in sizes.split(',') {
        let size = size.parse()?;
        let mut results = vec![Vec::new(); 5];
        for turn in 0..turns {
            for (pair, results) in results.iter_mut().enumerate() {
                let own = (pair & 1 == 0, pair & 2 == 0);
                results.push(match pair {
                    4 => bare::measure(size, log2),
                    _ => measure(&eal, own, (size, log2), turn * 4 + pair)?,
                });
            }
        }
        for (pair, results) in results.iter_mut().enumerate() {
            let name = |own| match (pair, own) {
                (4, _) => "none",
                (_, true) => "own ",
                (_, false) => "dpdk",
            };
            let [frames, receive, send] = [0, 1, 2].map(|which| {
                results.sort_by(|a, b| a[which].total_cmp(&b[which]));
                results[results.len() / 2][which]
            });
            println!(
                "{size:5} bytes  server {}  client {}  {frames:6.2} M/s  receive {receive:6.1}  \
                 send {send:6.1}",
                name(pair & 1 == 0),
                name(pair & 2 == 0)
            );
        }
    }
    Ok(())
}

fn open(
    eal: &Eal,
    own: bool,
    role: MemifRole,
    (at, log2): (usize, u8),
) -> Result<(Port, QueuePair), Failed> {
    let name = format!("/tmp/sluice-memif-{}-{at}.sock", std::process::id());
    let device = if own {
        Device::Memif(Memif { ring: 1 << log2, ..Memif::new(name, 0, role) })
    } else {
        let driver = format!("net_memif{}{at}", if role == MemifRole::Server { "s" } else { "c" });
        let rest = format!("id=0,socket={name},socket-abstract=no,rsize={log2}");
        Device::Dpdk { devargs: format!("{driver},role={role},{rest}") }
    };
    let (port, mut queues) = Port::open(eal, &PortConfig::new("memif", device))?;
    Ok((port, queues.pop().ok_or("no queue")?))
}

/// Millions of frames a second that came back, ticks a frame for receiving and for sending.
fn measure(
    eal: &Eal,
    (own_server, own_client): (bool, bool),
    (size, log2): (usize, u8),
    at: usize,
) -> Result<[f64; 3], Failed> {
    let (server, at_server) = open(eal, own_server, MemifRole::Server, (at, log2))?;
    let (client, at_client) = open(eal, own_client, MemifRole::Client, (at, log2))?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while !(server.link_up() && client.link_up()) {
        if Instant::now() > deadline {
            return Err("they never met".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if std::env::var_os("ONE_CORE").is_some() {
        return by_turns(eal, at_server, at_client, size);
    }
    let over = AtomicBool::new(false);
    let (back, spent) = std::thread::scope(|scope| {
        let client = scope.spawn(|| generate(eal, at_client, size, &over));
        let server = scope.spawn(|| send_back(eal, at_server, &over));
        (client.join(), server.join())
    });
    let panicked = |_| "a thread panicked";
    let ((count, seconds), spent) = (back.map_err(panicked)??, spent.map_err(panicked)??);
    Ok([count as f64 / seconds / 1e6, spent[0], spent[1]])
}

/// Both ends on one core, a burst at a time: what the driver itself costs, without cache lines that
/// travel between cores.
fn by_turns(
    eal: &Eal,
    mut server: QueuePair,
    mut client: QueuePair,
    size: usize,
) -> Result<[f64; 3], Failed> {
    let _thread = WorkerThread::register(eal)?;
    let (mut out, mut burst) = (Burst::new(), Burst::new());
    let (mut receive, mut send, mut count, start) = (0, 0, 0_u64, Instant::now());
    while start.elapsed() < TURN {
        let room = out.remaining_capacity();
        let from = out.len();
        eal.frames().alloc_burst(&mut out, room);
        out[from..].iter_mut().for_each(|frame| assert!(frame.set_len(size)));
        client.tx.tx(&mut out);
        let before = ticks();
        count += server.rx.rx(&mut burst) as u64;
        let between = ticks();
        server.tx.tx(&mut burst);
        send += ticks() - between;
        receive += between - before;
        burst.clear();
        client.rx.rx(&mut burst);
        burst.clear();
    }
    let a_frame = |ticks| ticks as f64 / count.max(1) as f64;
    let rate = count as f64 / start.elapsed().as_secs_f64() / 1e6;
    Ok([rate, a_frame(receive), a_frame(send)])
}

fn pin(core: usize) {
    // SAFETY: all zero bytes are an empty set, and the call reads as many as it is told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Sends as fast as it can and takes what comes back.
fn generate(
    eal: &Eal,
    mut queue: QueuePair,
    size: usize,
    over: &AtomicBool,
) -> Result<(u64, f64), Failed> {
    pin(1);
    let _thread = WorkerThread::register(eal)?;
    let (mut out, mut back) = (Burst::new(), Burst::new());
    let (mut count, start) = (0, Instant::now());
    while start.elapsed() < TURN {
        let room = out.remaining_capacity();
        let from = out.len();
        eal.frames().alloc_burst(&mut out, room);
        out[from..].iter_mut().for_each(|frame| assert!(frame.set_len(size)));
        queue.tx.tx(&mut out);
        while queue.rx.rx(&mut back) > 0 {
            count += back.len() as u64;
            back.clear();
        }
    }
    over.store(true, Ordering::Relaxed);
    Ok((count, start.elapsed().as_secs_f64()))
}

/// Sends back what comes. Ticks a frame for receiving and for sending.
fn send_back(eal: &Eal, mut queue: QueuePair, over: &AtomicBool) -> Result<[f64; 2], Failed> {
    pin(0);
    let _thread = WorkerThread::register(eal)?;
    let mut burst = Burst::new();
    let (mut receive, mut send, mut count) = (0, 0, 0);
    while !over.load(Ordering::Relaxed) {
        let before = ticks();
        let came = queue.rx.rx(&mut burst);
        let between = ticks();
        queue.tx.tx(&mut burst);
        burst.clear();
        if came > 0 {
            count += came as u64;
            receive += between - before;
            send += ticks() - between;
        }
    }
    Ok([receive, send].map(|ticks| ticks as f64 / count.max(1) as f64))
}
