//! Two namespaces joined by a veth pair, and the echo program in one of them.
//!
//! ```text
//!   there: peer0 192.0.2.2 ──── here: port0 192.0.2.1
//! ```
//!
//! Everything is gone when the values are dropped, also when a test fails. Needs root, and the
//! example `echo` beside this test's own program: `cargo test` builds both.

#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long anything may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The address of the port's end.
pub const PORT_ADDRESS: &str = "192.0.2.1";
/// The address of the peer's end.
pub const PEER_ADDRESS: &str = "192.0.2.2";

/// Whether the test may run here. Says so when it may not, past the test harness's own capture.
pub fn may_run(name: &str) -> bool {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } == 0 {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{name} needs root");
    let line = format!("skipped: {name}: network namespaces need root\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// Ends a test that may not run here.
#[macro_export]
macro_rules! needs_root {
    () => {
        if !bed::may_run(std::thread::current().name().unwrap_or("a test")) {
            return;
        }
    };
}

/// The namespaces and the wire between them.
pub struct Bed {
    /// The namespace with the interface `port0`.
    pub here: String,
    /// The namespace with the interface `peer0`.
    pub there: String,
    queues: u32,
}

impl Bed {
    /// Makes the namespaces and a wire with that many queues at each end.
    pub fn new(queues: u32) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let id = format!("{}{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let bed = Self { here: format!("sdp-h{id}"), there: format!("sdp-t{id}"), queues };
        for space in [&bed.here, &bed.there] {
            ip(&["netns", "add", space]);
            ip(&["-n", space, "link", "set", "lo", "up"]);
        }
        bed.lay_wire();
        bed
    }

    /// Makes the pair of interfaces, with addresses. The kernel leaves checksums between veth ends
    /// to "hardware", so that offload is switched off.
    pub fn lay_wire(&self) {
        let queues = self.queues.to_string();
        let count = ["numrxqueues", &queues, "numtxqueues", &queues];
        let mut arguments = vec!["link", "add", "port0", "netns", &self.here];
        arguments.extend(count);
        arguments.extend(["type", "veth", "peer", "name", "peer0", "netns", &self.there]);
        arguments.extend(count);
        ip(&arguments);
        for (space, name, address) in
            [(&self.here, "port0", PORT_ADDRESS), (&self.there, "peer0", PEER_ADDRESS)]
        {
            ip(&["-n", space, "addr", "add", &format!("{address}/24"), "dev", name]);
            ip(&["-n", space, "link", "set", name, "up"]);
            succeed(
                Command::new("ip")
                    .args(["netns", "exec", space, "ethtool", "-K", name])
                    .args(["tx", "off"]),
            );
        }
        self.wait_for_link();
    }

    /// Waits until the kernel sends by the port's interface. A veth end that was set up before the
    /// other has its carrier at once, but a kernel thread gives it its transmit queue later: until
    /// then the kernel's answers to ARP requests are dropped.
    pub fn wait_for_link(&self) {
        wait_until("the port's interface is ready", || self.link().contains("state UP"));
    }

    /// Deletes the pair of interfaces.
    pub fn cut_wire(&self) {
        ip(&["-n", &self.here, "link", "del", "port0"]);
    }

    /// Tells the peer the port's Ethernet address, where nobody would answer a request for it.
    pub fn introduce(&self) {
        let link = self.link();
        let address = ethernet_address(&link);
        let to = ["lladdr", &address, "dev", "peer0"];
        ip(&[&["-n", &self.there, "neigh", "replace", PORT_ADDRESS][..], &to].concat());
    }

    /// What `ip link show` says of the port's interface.
    pub fn link(&self) -> String {
        ip(&["-n", &self.here, "-d", "link", "show", "port0"])
    }

    /// A command in the peer's namespace.
    pub fn peer(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.there, program]);
        command
    }

    /// Pings the port's address; how many of `count` were answered, and how many twice.
    pub fn ping(&self, count: u32) -> (u32, u32) {
        let output = self
            .peer("ping")
            .args(["-c", &count.to_string(), "-i", "0.1", "-W", "2", PORT_ADDRESS])
            .output()
            .expect("ping is installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let answers = text.lines().filter(|line| line.contains("bytes from")).count() as u32;
        let twice = text.lines().filter(|line| line.contains("DUP!")).count() as u32;
        (answers - twice, twice)
    }

    /// Sends one datagram to a UDP port and returns what came back: nothing if the port is closed
    /// or nobody answers in time.
    pub fn exchange(&self, port: u16, text: &str) -> String {
        let wait = format!("-w{}", PATIENCE.as_secs());
        let mut child = self
            .peer("nc")
            .args(["-u", &wait, PORT_ADDRESS, &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("netcat-openbsd is installed");
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        // The reply, not the end of the wait, is what is waited for.
        let mut reply = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let read = stdout.read_line(&mut reply);
        let _ = child.kill();
        let _ = child.wait();
        read.map(|_| reply).unwrap_or_default()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for space in [&self.here, &self.there] {
            let _ = Command::new("ip").args(["netns", "del", space]).output();
        }
    }
}

/// The echo program.
pub struct Echo {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Echo {
    /// Starts the program and waits until it is ready.
    pub fn start(bed: &Bed, arguments: &[&str]) -> Self {
        let mut echo = Self::launch(bed, arguments);
        echo.wait_for("ready");
        echo
    }

    /// Starts the program.
    pub fn launch(bed: &Bed, arguments: &[&str]) -> Self {
        Self::launch_under(bed, &[], arguments)
    }

    /// Starts the program by another one, such as `setpriv`.
    pub fn launch_under(bed: &Bed, by: &[&str], arguments: &[&str]) -> Self {
        let program = std::env::current_exe().unwrap();
        let program = program.parent().unwrap().parent().unwrap().join("examples/echo");
        assert!(program.exists(), "missing: cargo build -p sluice-dpdk --example echo");
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluice-echo-{}-{serial}.log", std::process::id());
        let log = std::env::temp_dir().join(name);
        let mut child = Command::new("ip")
            .args(["netns", "exec", &bed.here])
            .args(by)
            .arg(&program)
            .args(["--frames", "16384", "--udp", "192.0.2.1:7"])
            .args(arguments)
            .env("RUST_LOG", "info,sluice_dpdk=debug")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .expect("ip is installed");
        let (send, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, log }
    }

    /// The program's process. `ip netns exec` becomes the program it runs.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How many descriptors the program has open.
    pub fn open_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Waits until no more descriptors are open than were before. What a thread has open for a
    /// moment (a directory, a file of sysfs) is closed again; what was lost stays.
    pub fn wait_descriptors(&self, before: usize) {
        wait_until(&format!("at most {before} descriptors"), || self.open_descriptors() <= before);
    }

    /// What the program has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The next line of output that starts so.
    pub fn wait_for(&mut self, start: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.starts_with(start) => return line,
                Ok(_) => {}
                Err(_) => panic!("no line {start:?} came; the log:\n{}", self.log()),
            }
        }
    }

    /// One of the program's counters.
    pub fn count(&mut self, name: &str) -> u64 {
        self.write("stats");
        let line = self.wait_for("stats");
        let prefix = format!("{name}=");
        let value = line.split(' ').find_map(|word| word.strip_prefix(&prefix)?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {line}"))
    }

    /// Waits until a counter has a value that will do.
    pub fn wait_count(&mut self, name: &str, will_do: impl Fn(u64) -> bool) -> u64 {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.count(name);
            if will_do(value) {
                return value;
            }
            assert!(Instant::now() < end, "{name} stays {value}; the log:\n{}", self.log());
        }
    }

    fn write(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("not ended yet");
        writeln!(stdin, "{line}").unwrap_or_else(|_| panic!("it ended; the log:\n{}", self.log()));
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        succeed(Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]));
    }

    /// Waits for the end; whether the program says that it went well.
    pub fn wait_end(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            assert!(Instant::now() < end, "it does not end; the log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks for the end and waits for it.
    pub fn quit(mut self) {
        self.write("quit");
        assert!(self.wait_end(), "it ended badly; the log:\n{}", self.log());
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.log);
    }
}

/// The Ethernet address in what `ip link show` says.
pub fn ethernet_address(link: &str) -> String {
    let mut words = link.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).map(str::to_owned).expect("an Ethernet address")
}

/// Runs `ip` and returns what it prints.
pub fn ip(arguments: &[&str]) -> String {
    let output = succeed(Command::new("ip").args(arguments));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed (these tests need root): {said}");
    output
}

/// Waits until something holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
