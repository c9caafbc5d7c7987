//! Sends each UDP datagram for one endpoint back where it came from: the smallest use of a port,
//! and what the integration tests run.
//!
//! `echo --device DEVICE --udp ADDRESS:PORT [--queues N] [--twin NAME] [--huge-pages off|required]
//! [--busy] [--frames N]`
//!
//! DEVICE is `af_xdp:IF`, `dpdk_af_xdp:IF`, `af_packet:IF`, `tap:NAME` or `dpdk:DEVARGS`. With
//! `af_xdp` the kernel keeps everything else; with `--twin` everything else goes to a TAP interface
//! and back. When the interface vanishes, the port is closed, and opened again as soon as there is
//! one of that name.
//!
//! Standard output: `ready …` for each opening, `gone` for each loss, `stats …` for each line of
//! `stats` on standard input. Ends on `quit`, the end of the input, SIGTERM or SIGINT.

use std::error::Error;
use std::io::{self, BufRead};
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use sluice_director::frame::Frame;
use sluice_dpdk::{
    Burst, Device, Eal, EalConfig, HugePages, Port, PortConfig, PortState, QueuePair, WorkerThread,
    XdpDriver,
};
use sluice_steer::{EndpointMatch, Matches, Steer};

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_env_filter(filter)
        .with_ansi(false)
        .init();
    let options = Options::read(std::env::args().skip(1))?;
    let eal = Eal::init(&EalConfig {
        huge_pages: options.huge_pages,
        frames: options.frames,
        ..EalConfig::default()
    })?;
    let _thread = WorkerThread::register(&eal)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut echo = Echo {
        options,
        twin: None,
        commands: commands(),
        stop,
        counts: Counts::default(),
        look_at: Instant::now(),
    };
    while let Some(end) = echo.session(&eal)? {
        if end == End::Stop {
            break;
        }
    }
    echo.counts.free_frames = eal.frames().available();
    println!("{}", echo.counts);
    Ok(())
}

/// What the command line says.
struct Options {
    device: Device,
    udp: SocketAddrV4,
    queues: u16,
    twin: Option<String>,
    huge_pages: HugePages,
    busy: bool,
    frames: u32,
    mtu: Option<u16>,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = Self {
            device: Device::Dpdk { devargs: "net_null0".to_owned() },
            udp: "192.0.2.1:7".parse()?,
            queues: 1,
            twin: None,
            huge_pages: HugePages::Auto,
            busy: false,
            frames: 32 * 1024,
            mtu: None,
        };
        while let Some(name) = arguments.next() {
            if name == "--busy" {
                options.busy = true;
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--device" => options.device = device(&value)?,
                "--udp" => options.udp = value.parse()?,
                "--queues" => options.queues = value.parse()?,
                "--twin" => options.twin = Some(value),
                "--mtu" => options.mtu = Some(value.parse()?),
                "--frames" => options.frames = value.parse()?,
                "--huge-pages" if value == "off" => options.huge_pages = HugePages::Off,
                "--huge-pages" if value == "required" => options.huge_pages = HugePages::Required,
                _ => return Err(format!("not understood: {name} {value}").into()),
            }
        }
        Ok(options)
    }
}

fn device(text: &str) -> Result<Device, Failure> {
    let (kind, rest) = text.split_once(':').ok_or("DEVICE is KIND:REST")?;
    let rest = rest.to_owned();
    Ok(match kind {
        "af_xdp" => Device::AfXdp { interface: rest, driver: XdpDriver::OWN },
        "dpdk_af_xdp" => Device::AfXdp { interface: rest, driver: XdpDriver::Dpdk },
        "af_packet" => Device::AfPacket { interface: rest },
        "tap" => Device::Tap { name: rest },
        "dpdk" => Device::Dpdk { devargs: rest },
        _ => return Err(format!("no such kind of device: {kind}").into()),
    })
}

/// The lines of the standard input, from a thread of their own.
fn commands() -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    receive
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Stop,
    Gone,
}

/// What happened, over all openings.
#[derive(Default)]
struct Counts {
    rx: u64,
    echoed: u64,
    to_twin: u64,
    from_twin: u64,
    unsent: u64,
    polls: u64,
    wakes: u64,
    openings: u64,
    free_frames: u32,
    /// One bit for each queue that frames came from.
    queues: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "stats rx={} echoed={} to_twin={} from_twin={} unsent={} polls={} wakes={} \
             openings={} free_frames={} queues_used={}",
            self.rx,
            self.echoed,
            self.to_twin,
            self.from_twin,
            self.unsent,
            self.polls,
            self.wakes,
            self.openings,
            self.free_frames,
            self.queues.count_ones()
        )
    }
}

struct Echo {
    options: Options,
    twin: Option<(Port, Vec<QueuePair>)>,
    commands: Receiver<String>,
    stop: Arc<AtomicBool>,
    counts: Counts,
    look_at: Instant,
}

impl Echo {
    /// Opens the port and serves it until it is lost or the end comes. `None`: not opened.
    fn session(&mut self, eal: &Eal) -> Result<Option<End>, Failure> {
        let mut config = PortConfig::new("echo", self.options.device.clone());
        config.mtu = self.options.mtu;
        config.queues = self.options.queues;
        let (port, mut queues) = match Port::open(eal, &config) {
            Ok(open) => open,
            Err(sluice_dpdk::Error::NoInterface { .. }) if self.counts.openings > 0 => {
                std::thread::sleep(Duration::from_millis(20));
                return Ok(Some(if self.asked_to_stop(eal) { End::Stop } else { End::Gone }));
            }
            Err(error) => return Err(error.into()),
        };
        self.counts.openings += 1;
        if let (None, Some(name)) = (&self.twin, &self.options.twin) {
            let mut twin = PortConfig::new("twin", Device::Tap { name: name.clone() });
            twin.unfinished = matches!(config.device, Device::AfPacket { .. });
            twin.mac = Some(port.mac());
            self.twin = Some(Port::open(eal, &twin)?);
        }
        let steer = self.steer(&port)?;
        let mac: Vec<String> = port.mac().iter().map(|byte| format!("{byte:02x}")).collect();
        println!(
            "ready driver={} mac={} mtu={} wake_fds={} huge_pages={}",
            port.driver(),
            mac.join(":"),
            port.mtu(),
            port.wake_fds().len(),
            eal.huge_pages()
        );
        let end = self.serve(eal, &port, &mut queues);
        if let (End::Stop, Some(steer)) = (end, &steer) {
            println!("steer {:?}", steer.counters()?);
        }
        println!("port {:?}", port.stats());
        drop(queues);
        port.close().map_err(|_| "a queue is still held")?;
        if end == End::Gone {
            println!("gone");
        }
        Ok(Some(end))
    }

    fn steer(&self, port: &Port) -> Result<Option<Steer>, Failure> {
        let (Device::AfXdp { .. }, Some((_, index))) = (&self.options.device, port.interface())
        else {
            return Ok(None);
        };
        let mut steer = Steer::for_interface(index)?;
        let address = (*self.options.udp.ip()).into();
        let service = EndpointMatch::port(17, address, self.options.udp.port());
        steer.set(&Matches { services: vec![service], ..Matches::default() })?;
        Ok(Some(steer))
    }

    fn serve(&mut self, eal: &Eal, port: &Port, queues: &mut [QueuePair]) -> End {
        let mut frames = Burst::new();
        loop {
            let mut busy = false;
            for pair in queues.iter_mut() {
                busy |= self.turn(pair, &mut frames);
            }
            busy |= self.forward_twin(queues, &mut frames);
            if busy && self.look_at > Instant::now() {
                continue;
            }
            self.look_at = Instant::now() + Duration::from_millis(50);
            if self.asked_to_stop(eal) {
                return End::Stop;
            }
            if port.state() == PortState::Gone {
                return End::Gone;
            }
            if !self.options.busy {
                self.sleep(queues);
            }
        }
    }

    /// One burst of a queue. Says whether there was one.
    fn turn(&mut self, pair: &mut QueuePair, frames: &mut Burst) -> bool {
        if pair.rx.rx(frames) == 0 {
            return false;
        }
        self.counts.rx += frames.len() as u64;
        self.counts.queues |= 1 << pair.rx.index();
        let mut others = Burst::new();
        let mut echoes = Burst::new();
        for mut frame in frames.drain(..) {
            if turn_back(frame.bytes_mut(), self.options.udp) {
                echoes.push(frame);
            } else {
                others.push(frame);
            }
        }
        self.counts.echoed += pair.tx.tx(&mut echoes) as u64;
        self.counts.unsent += echoes.len() as u64;
        if let Some((_, twin)) = &mut self.twin {
            self.counts.to_twin += twin[0].tx.tx(&mut others) as u64;
        }
        true
    }

    fn forward_twin(&mut self, queues: &mut [QueuePair], frames: &mut Burst) -> bool {
        let Some((_, twin)) = &mut self.twin else { return false };
        if twin[0].rx.rx(frames) == 0 {
            return false;
        }
        self.counts.from_twin += queues[0].tx.tx(frames) as u64;
        self.counts.unsent += frames.len() as u64;
        frames.clear();
        true
    }

    fn asked_to_stop(&mut self, eal: &Eal) -> bool {
        self.counts.free_frames = eal.frames().available();
        match self.commands.try_recv() {
            Ok(line) if line == "quit" => return true,
            Ok(_) => println!("{}", self.counts),
            Err(TryRecvError::Disconnected) => return true,
            Err(TryRecvError::Empty) => {}
        }
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps until frames wait, 100 ms at most.
    fn sleep(&mut self, queues: &mut [QueuePair]) {
        let twin = self.twin.iter_mut().flat_map(|(_, queues)| queues.iter_mut());
        let mut ends: Vec<&mut QueuePair> = queues.iter_mut().chain(twin).collect();
        let fds = ends.iter().filter_map(|pair| Some(pair.rx.wake_fd()?.as_raw_fd())).collect();
        self.counts.polls += 1;
        let (readable, failed) = poll(fds, Duration::from_millis(100));
        self.counts.wakes += u64::from(readable);
        if failed {
            for pair in &mut ends {
                pair.rx.take_wake_error();
            }
        }
    }
}

/// Whether a descriptor became readable, and whether one reports an error.
fn poll(fds: Vec<RawFd>, timeout: Duration) -> (bool, bool) {
    let mut fds: Vec<libc::pollfd> =
        fds.into_iter().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: as many entries as are named, and the descriptors are checked by the kernel.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout.as_millis() as i32) };
    let any = |events: i16| fds.iter().any(|fd| fd.revents & events != 0);
    (any(libc::POLLIN), any(libc::POLLERR | libc::POLLNVAL))
}

/// Exchanges source and destination of an untagged IPv4 UDP frame to the endpoint. `false`, and
/// nothing changed, for any other frame. No checksum changes by an exchange.
fn turn_back(frame: &mut [u8], to: SocketAddrV4) -> bool {
    let is_udp = frame.len() >= 42
        && frame[12..14] == [8, 0]
        && frame[14] == 0x45
        && frame[23] == 17
        && frame[30..34] == to.ip().octets()
        && frame[36..38] == to.port().to_be_bytes();
    if is_udp {
        for at in 0..6 {
            frame.swap(at, at + 6);
        }
        for at in 26..30 {
            frame.swap(at, at + 4);
        }
        for at in 34..36 {
            frame.swap(at, at + 2);
        }
    }
    is_udp
}
