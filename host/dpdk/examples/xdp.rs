//! What an AF_XDP driver costs: our own and DPDK's by turns, in one run. Needs root.
//!
//! `xdp [BURST[,BURST...]] [TURNS] [SIZE]`: frames that come at once (1,8,64), turns (7), bytes of
//! a frame (60).
//!
//! A pair of virtual interfaces in a network namespace of this process's own. A packet socket at
//! one end sends a burst; the port at the other receives it and sends it back, as a director does.
//! Both by turns on one core, so that no frame is lost and nothing but the driver differs. Printed
//! for each driver, as medians of the turns: frames a second of the thread's own processor time
//! (others that run on the core do not count), ticks of the time stamp counter a frame in receiving
//! and in sending (there they do), and frames that never came back.

use std::error::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use sluice_dpdk::{
    Burst, Device, Eal, EalConfig, Port, PortConfig, QueuePair, WorkerThread, XdpDriver, ticks,
};
use sluice_steer::{EndpointMatch, Matches, Steer};

/// How long a turn measures.
const TURN: Duration = Duration::from_millis(500);
/// Polls that may find nothing before frames count as lost.
const PATIENCE: u32 = 100_000;
const VIP: [u8; 4] = [192, 0, 2, 1];

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let bursts = arguments.next().unwrap_or_else(|| "1,8,64".to_owned());
    let turns: usize = arguments.next().map_or(Ok(7), |turns| turns.parse())?;
    let size: usize = arguments.next().map_or(Ok(60), |size| size.parse())?;
    // SAFETY: it concerns this process, which has one thread yet.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    pin(0);
    ip("link add port0 type veth peer name peer0")?;
    for end in ["port0", "peer0"] {
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1");
        ip(&format!("link set {end} up"))?;
    }
    let eal = Eal::init(&EalConfig { frames: 32_768, ..EalConfig::default() })?;
    let _thread = WorkerThread::register(&eal)?;
    let drivers = [("own ", XdpDriver::OWN), ("dpdk", XdpDriver::Dpdk)];
    for burst in bursts.split(',') {
        let burst = burst.parse()?;
        let mut results = [Vec::new(), Vec::new()];
        for _ in 0..turns {
            for ((_, driver), results) in drivers.iter().zip(&mut results) {
                results.push(measure(&eal, *driver, burst, size)?);
            }
        }
        for ((name, _), results) in drivers.iter().zip(&mut results) {
            let [rate, receive, send, lost] = [0, 1, 2, 3].map(|which| {
                results.sort_by(|a, b| a[which].total_cmp(&b[which]));
                results[results.len() / 2][which]
            });
            println!(
                "burst {burst:3}  {size} bytes  {name}  {rate:6.3} M/s  receive {receive:6.1}  \
                 send {send:7.1}  lost {lost}"
            );
        }
    }
    Ok(())
}

fn ip(arguments: &str) -> Result<(), Failed> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    if status.success() { Ok(()) } else { Err(format!("ip {arguments}: {status}").into()) }
}

/// Seconds that the processor spent on this thread.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn pin(core: usize) {
    // SAFETY: all zero bytes are an empty set, and the call reads as many as it is told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Frames of a second in millions, ticks a frame for receiving and sending, frames lost.
fn measure(eal: &Eal, driver: XdpDriver, burst: usize, size: usize) -> Result<[f64; 4], Failed> {
    let device = Device::AfXdp { interface: "port0".to_owned(), driver };
    let config = PortConfig::new("xdp", device);
    // The socket of the turn before leaves its queue a little later: DPDK's driver does not wait.
    let patience = Instant::now() + Duration::from_secs(5);
    let (port, mut queues) = loop {
        match Port::open(eal, &config) {
            Ok(open) => break open,
            Err(error) if Instant::now() > patience => return Err(error.into()),
            Err(_) => std::thread::yield_now(),
        }
    };
    let (_, index) = port.interface().ok_or("it has an interface")?;
    let mut steer = Steer::for_interface(index)?;
    let services = vec![EndpointMatch::port(17, VIP.into(), 7)];
    steer.set(&Matches { services, ..Matches::default() })?;
    let mut queue = queues.pop().ok_or("no queue")?;
    let sender = Generator::new(&frame(port.mac(), size)?, burst)?;
    let deadline = Instant::now() + TURN;
    let started = processor_time();
    let mut totals = [0_u64; 4];
    while Instant::now() < deadline {
        let sent = sender.send()?;
        forward(&mut queue, sent, &mut totals);
    }
    let [count, receive, send, lost] = totals;
    let a_frame = |ticks: u64| ticks as f64 / count.max(1) as f64;
    let rate = count as f64 / (processor_time() - started) / 1e6;
    drop(queue);
    port.close().map_err(|_| "a queue is left")?;
    Ok([rate, a_frame(receive), a_frame(send), lost as f64])
}

/// Sends back as many frames as were sent: their number, and ticks in receiving and in sending.
fn forward(queue: &mut QueuePair, sent: usize, [count, receive, send, lost]: &mut [u64; 4]) {
    let mut frames = Burst::new();
    let (mut left, mut idle) = (sent, 0);
    while left > 0 && idle < PATIENCE {
        let before = ticks();
        let came = queue.rx.rx(&mut frames);
        let between = ticks();
        if came == 0 {
            idle += 1;
            continue;
        }
        queue.tx.tx(&mut frames);
        *send += ticks() - between;
        *receive += between - before;
        *count += (came - frames.len()) as u64;
        *lost += frames.len() as u64;
        left = left.saturating_sub(came);
        frames.clear();
    }
    *lost += left as u64;
}

fn frame(mac: [u8; 6], size: usize) -> Result<Vec<u8>, Failed> {
    let builder =
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], mac).ipv4([192, 0, 2, 2], VIP, 64).udp(9, 7);
    let payload = vec![0; size.checked_sub(42).ok_or("42 bytes are headers")?];
    let mut frame = Vec::new();
    builder.write(&mut frame, &payload)?;
    Ok(frame)
}

/// A packet socket that sends a burst by one call.
struct Generator {
    socket: OwnedFd,
    /// What the messages point to.
    _frame: Box<[u8]>,
    _part: Box<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

impl Generator {
    fn new(frame: &[u8], burst: usize) -> Result<Self, Failed> {
        let frame: Box<[u8]> = frame.into();
        // SAFETY: opens a socket, owned at once; the address has the length given; all zero bytes
        // are an empty message.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(std::io::Error::last_os_error().into());
            }
            let socket = OwnedFd::from_raw_fd(fd);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = libc::if_nametoindex(c"peer0".as_ptr()) as i32;
            let length = size_of_val(&address) as u32;
            if libc::bind(fd, (&raw const address).cast(), length) != 0 {
                return Err(std::io::Error::last_os_error().into());
            }
            let iov_base = frame.as_ptr().cast_mut().cast();
            let mut part = Box::new(libc::iovec { iov_base, iov_len: frame.len() });
            let mut message: libc::mmsghdr = std::mem::zeroed();
            message.msg_hdr.msg_iov = &raw mut *part;
            message.msg_hdr.msg_iovlen = 1;
            Ok(Self { socket, _frame: frame, _part: part, messages: vec![message; burst] })
        }
    }

    fn send(&self) -> Result<usize, Failed> {
        // SAFETY: the messages and what they point to are alive; the kernel writes their lengths
        // only, which nobody reads.
        let sent = unsafe {
            let messages = self.messages.as_ptr().cast_mut();
            libc::sendmmsg(self.socket.as_raw_fd(), messages, self.messages.len() as u32, 0)
        };
        usize::try_from(sent).map_err(|_| std::io::Error::last_os_error().into())
    }
}
