//! A test bed of network namespaces that have no name: each belongs to a thread and is gone with
//! it, also when the test fails. Needs root and `ip`.
#![allow(dead_code)] // Each test file uses its part.

use std::net::IpAddr;
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;
use sluice_linux::{Changed, Kernel, Mirror};

/// How soon a change must have come through, also on a busy machine: sooner than the kernel asks a
/// second time for a neighbour, which is after a second.
pub const SOON: Duration = Duration::from_millis(900);
/// A bound for what takes the kernel itself a while.
pub const LATER: Duration = Duration::from_secs(10);

/// Runs a test in a network namespace of its own.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        enter_new();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn enter_new() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
        .expect("a network namespace can be made: the test needs root (CAP_SYS_ADMIN)");
    ip("link set lo up");
}

type Job = Box<dyn FnOnce() + Send>;

/// Another host: a thread in a network namespace of its own.
pub struct Host {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// What `ip link … netns` takes for this host's namespace.
    pub id: String,
}

impl Host {
    pub fn new() -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            enter_new();
            tell.send(rustix::thread::gettid()).expect("the test waits for the thread");
            queue.into_iter().for_each(|job| job());
        });
        let id = told.recv().expect("the host's thread starts").as_raw_nonzero().to_string();
        Self { jobs: Some(jobs), thread: Some(thread), id }
    }

    /// Runs something in the host's namespace and waits for it.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let job = move || {
            let _ = tell.send(job());
        };
        self.jobs.as_ref().expect("alive").send(Box::new(job)).expect("the host is alive");
        told.recv().expect("the host's job does not panic")
    }

    /// Runs `ip` on the host.
    pub fn ip(&self, arguments: &str) {
        let arguments = arguments.to_owned();
        self.run(move || ip(&arguments));
    }

    /// Sets a kernel parameter on the host.
    pub fn sysctl(&self, name: &str, value: &str) {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.run(move || sysctl(&name, &value));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs `ip` in the calling thread's namespace.
#[track_caller]
pub fn ip(arguments: &str) {
    if let Err(text) = try_ip(arguments) {
        panic!("ip {arguments}: {text}");
    }
}

/// Runs `bridge` in the calling thread's namespace.
#[track_caller]
pub fn bridge(arguments: &str) {
    if let Err(text) = try_run("bridge", arguments) {
        panic!("bridge {arguments}: {text}");
    }
}

/// Runs `ip`, which may fail.
pub fn try_ip(arguments: &str) -> Result<(), String> {
    try_run("ip", arguments)
}

/// Runs a program, which may fail.
pub fn try_run(program: &str, arguments: &str) -> Result<(), String> {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Runs many `ip` commands at once.
pub fn ip_batch(lines: &str) {
    batch("ip", lines);
}

/// Runs many commands of `ip` or `bridge` at once.
pub fn batch(program: &str, lines: &str) {
    use std::io::Write;
    let mut child = Command::new(program)
        .args(["-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("it reads its batch");
    assert!(child.wait().expect("it ends").success(), "the batch succeeds");
}

/// What `ip -j` says.
pub fn ip_json(arguments: &str) -> Vec<Value> {
    json("ip", arguments)
}

/// What a program says that prints JSON.
pub fn json(program: &str, arguments: &str) -> Vec<Value> {
    let output = Command::new(program).args(arguments.split_whitespace()).output();
    let output = output.expect("the program runs");
    assert!(output.status.success(), "{program} {arguments}");
    if output.stdout.iter().all(u8::is_ascii_whitespace) {
        return Vec::new();
    }
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// Sets a kernel parameter of the calling thread's namespace.
#[track_caller]
pub fn sysctl(name: &str, value: &str) {
    let path = format!("/proc/sys/{name}");
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// Follows the kernel until something is so, and says how long it took and what changed.
#[track_caller]
pub fn until(
    mirror: &mut Mirror,
    within: Duration,
    what: &str,
    mut so: impl FnMut(&Kernel) -> bool,
) -> (Duration, Changed) {
    let start = Instant::now();
    let mut all = Changed::default();
    loop {
        all |= mirror.process().expect("the mirror follows");
        if so(mirror.state()) {
            return (start.elapsed(), all);
        }
        let left = within.saturating_sub(start.elapsed());
        assert!(!left.is_zero(), "not within {within:?}: {what}\n{:#?}", mirror.state());
        wait_readable(mirror, left);
    }
}

/// Waits until the mirror's socket is readable, at most so long.
pub fn wait_readable(mirror: &Mirror, at_most: Duration) -> bool {
    let timeout = rustix::event::Timespec {
        tv_sec: at_most.as_secs().try_into().expect("short"),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(mirror, PollFlags::IN)];
    poll(&mut fds, Some(&timeout)).expect("poll works") > 0
}

/// A veth pair `slx0` here and `slx1` there, both up, with 192.0.2.1/24 and 2001:db8::1/64 here,
/// and .2 and ::2 there.
pub fn pair(there: &Host) {
    ip(&format!("link add slx0 type veth peer name slx1 netns {}", there.id));
    ip("link set slx0 up");
    there.ip("link set slx1 up");
    ip("addr add 192.0.2.1/24 dev slx0");
    ip("addr add 2001:db8::1/64 dev slx0 nodad");
    there.ip("addr add 192.0.2.2/24 dev slx1");
    there.ip("addr add 2001:db8::2/64 dev slx1 nodad");
}

/// The index of a link by name.
#[track_caller]
pub fn index(mirror: &Mirror, name: &str) -> u32 {
    mirror.state().link_by_name(name).unwrap_or_else(|| panic!("there is a link {name}")).index
}

/// An address from its text.
pub fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Links, addresses, routes, forwarding entries and usable neighbours as one comparable text,
/// order included.
fn picture(kernel: &Kernel) -> String {
    let mut lines: Vec<String> = Vec::new();
    lines.extend(kernel.links().map(|link| format!("{link:?}")));
    lines.extend(kernel.addresses().map(|address| format!("{address:?}")));
    lines.extend(kernel.routes().map(|route| format!("{route:?}")));
    lines.extend(kernel.fdb().map(|entry| format!("{entry:?}")));
    let neighbours = kernel.neighbours().filter_map(|n| Some((n.ifindex, n.ip, n.usable_mac()?)));
    lines.extend(neighbours.map(|neighbour| format!("{neighbour:?}")));
    lines.join("\n")
}

/// Asserts that a mirror that followed changes has come to what a fresh one reads.
#[track_caller]
pub fn equals_fresh(mirror: &mut Mirror, when: &str) {
    // Addresses and links settle a little later by themselves (duplicate address detection, link
    // state), so the comparison is repeated until a deadline.
    let deadline = Instant::now() + LATER;
    loop {
        let mut fresh = Mirror::open().expect("the mirror opens");
        fresh.follow_tables(mirror.followed_tables().clone()).expect("the mirror follows");
        mirror.process().expect("the mirror follows");
        let (followed, fresh) = (picture(mirror.state()), picture(fresh.state()));
        if followed == fresh && !mirror.is_stale() {
            return;
        }
        assert!(Instant::now() < deadline, "{when}:\n{}", difference(&followed, &fresh));
        wait_readable(mirror, Duration::from_millis(10));
    }
}

fn difference(followed: &str, fresh: &str) -> String {
    let lacking = |from: &str, of: &str| -> Vec<String> {
        from.lines()
            .filter(|line| !of.lines().any(|other| other == *line))
            .map(str::to_owned)
            .collect()
    };
    let (too_many, missing) = (lacking(followed, fresh), lacking(fresh, followed));
    if too_many.is_empty() && missing.is_empty() {
        return format!("another order: followed\n{followed}\nthe kernel has\n{fresh}");
    }
    format!("only followed: {too_many:#?}\nonly in the kernel: {missing:#?}")
}
