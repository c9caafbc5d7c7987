//! Network namespaces joined by veth pairs, all of one lab's name, removed together.
//!
//! Labs of one process may live beside each other: nothing that they make is shared. Each has a
//! seat, the lowest number that no other lab of the process has, so that the directors of several
//! labs can be spread over the cores. A program that measures makes one lab at a time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::LabError;
use crate::family::Family;
use crate::process::{self, Ran, Running};
use crate::sweep;

static NUMBER: AtomicU32 = AtomicU32::new(0);
/// The seats that living labs have.
static SEATS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Seconds after which a program run by [`Netns::run`] is stopped.
pub const RUN_LIMIT_S: u32 = 300;

/// A set of namespaces and one directory with a common name. Dropping it removes them all.
#[derive(Debug)]
pub struct Lab {
    name: String,
    dir: PathBuf,
    kept: bool,
    spaces: Vec<Netns>,
    seat: usize,
}

/// One network namespace of a lab; a cheap handle.
#[derive(Debug, Clone)]
pub struct Netns {
    name: String,
    dir: PathBuf,
}

/// One end of a veth pair to be.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// The namespace it goes to.
    pub space: &'a Netns,
    /// Its name there.
    pub device: &'a str,
    /// Its MAC address; chosen by the kernel when absent.
    pub mac: Option<&'a str>,
}

impl Lab {
    /// Makes an empty lab called `PREFIX-PID-N`, after sweeping away what killed processes left of
    /// labs with that prefix.
    ///
    /// # Errors
    /// When not root, or the directory cannot be made.
    pub fn new(prefix: &str) -> Result<Self, LabError> {
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::Machine("network namespaces need root".to_owned()));
        }
        sweep::on_signals()?;
        sweep::residue(prefix);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        sweep::register(&name);
        sweep::unless_stopping(|| std::fs::create_dir_all(&dir))
            .map_err(LabError::file(dir.display().to_string()))?;
        Ok(Self { name, dir, kept: false, spaces: Vec::new(), seat: take_seat() })
    }

    /// The lowest number that no other living lab of this process has: 0 for one that is alone.
    pub fn seat(&self) -> usize {
        self.seat
    }

    /// Its name, which begins the name of all it makes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory: configuration, logs, sockets, captures.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes a namespace, its loopback up and IPv6 quiet (router solicitations would only be noise
    /// in the counters).
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn space(&mut self, short: &str) -> Result<Netns, LabError> {
        let space = Netns { name: format!("{}-{short}", self.name), dir: self.dir.clone() };
        sweep::unless_stopping(|| ip(&["netns", "add", &space.name]))?;
        self.spaces.push(space.clone());
        let settings = [
            "net.ipv6.conf.all.disable_ipv6=1",
            "net.ipv6.conf.default.disable_ipv6=1",
            // A NIC brings all of a connection to one queue. By veth the sender's hash chooses it,
            // which TCP would change whenever it sends something again.
            "net.core.txrehash=0",
            // The kernel answers a peer once a second: a check that has used that up would leave
            // the next one without the error it waits for.
            "net.ipv4.icmp_ratelimit=0",
            "net.ipv6.icmp.ratelimit=0",
        ];
        // By one program: there are a thousand such namespaces in a run.
        space.sysctls(&settings.map(str::to_owned))?;
        space.ip(&["link", "set", "lo", "up"])?;
        Ok(space)
    }

    /// Joins two namespaces by a veth pair with `queues` queues each way, both ends up.
    ///
    /// Transmit checksum offload is switched off at both ends: veth would hand over packets whose
    /// checksum was left to hardware that is not there, which no real network does. Segmentation
    /// and receive coalescing go with it, so that what a capture sees is what a wire would carry.
    ///
    /// # Errors
    /// When `ip` or `ethtool` refuses.
    pub fn veth(&self, one: End<'_>, other: End<'_>, queues: u32) -> Result<(), LabError> {
        let queues = queues.to_string();
        let mut args = vec!["link", "add", one.device, "netns", &one.space.name];
        args.extend(["numrxqueues", &queues, "numtxqueues", &queues]);
        if let Some(mac) = one.mac {
            args.extend(["address", mac]);
        }
        args.extend(["type", "veth", "peer", "name", other.device, "netns", &other.space.name]);
        args.extend(["numrxqueues", &queues, "numtxqueues", &queues]);
        if let Some(mac) = other.mac {
            args.extend(["address", mac]);
        }
        ip(&args)?;
        for end in [one, other] {
            end.space.plain_wire(end.device)?;
            end.space.ip(&["link", "set", "dev", end.device, "up"])?;
        }
        Ok(())
    }

    /// Leaves everything in place when this handle goes, until [`sweep::kept`] removes it.
    ///
    /// # Errors
    /// When the mark cannot be written.
    pub fn keep(&mut self) -> Result<(), LabError> {
        let mark = self.dir.join(sweep::KEPT_MARK);
        std::fs::write(&mark, "").map_err(LabError::file(mark.display().to_string()))?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.kept {
            sweep::remove(&self.name);
        }
        sweep::forget(&self.name);
        seats().retain(|seat| *seat != self.seat);
    }
}

fn seats() -> MutexGuard<'static, Vec<usize>> {
    SEATS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take_seat() -> usize {
    let mut taken = seats();
    let seat = (0..).find(|seat| !taken.contains(seat)).unwrap_or_default();
    taken.push(seat);
    seat
}

/// Runs the machine's `ip` outside of any namespace.
fn ip(args: &[&str]) -> Result<Ran, LabError> {
    process::run(Command::new("ip").args(args))?.ok()
}

impl Netns {
    /// Its full name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The lab's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A command that will run in here.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Runs a program in here to its end, whatever that is, but no longer than [`RUN_LIMIT_S`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<Ran, LabError> {
        let limit = RUN_LIMIT_S.to_string();
        let mut command = self.command("timeout");
        command.args(["-k", "2", &limit, program]).args(args);
        process::run(&mut command)
    }

    /// Starts a program in here that runs on; it logs to `NAME.log` in the lab's directory.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, name: &str, program: &str, args: &[&str]) -> Result<Running, LabError> {
        let mut command = self.command(program);
        command.args(args);
        Running::start(name, &mut command, &self.dir.join(format!("{name}.log")))
    }

    /// Runs `ip` in here.
    ///
    /// # Errors
    /// When it refuses.
    pub fn ip(&self, args: &[&str]) -> Result<Ran, LabError> {
        process::run(Command::new("ip").args(["-n", &self.name]).args(args))?.ok()
    }

    /// Gives a device an address with its prefix length; one of IPv6 at once, without probing
    /// whether somebody else has it.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn address(&self, device: &str, address: &str) -> Result<(), LabError> {
        let mut args = vec!["address", "replace", address, "dev", device];
        if Family::of(address) == Family::V6 {
            args.push("nodad");
        }
        self.ip(&args).map(drop)
    }

    /// Routes `prefix` to a gateway.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn route(&self, prefix: &str, via: &str) -> Result<(), LabError> {
        self.ip(&[Family::of(via).flag(), "route", "replace", prefix, "via", via]).map(drop)
    }

    /// Sets a network sysctl of this namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), LabError> {
        self.run("sysctl", &["-qw", &format!("{key}={value}")])?.ok().map(drop)
    }

    /// Sets several, each as `key=value`, in this order.
    ///
    /// # Errors
    /// When the kernel refuses one.
    pub fn sysctls(&self, settings: &[String]) -> Result<(), LabError> {
        let mut args = vec!["-qw"];
        args.extend(settings.iter().map(String::as_str));
        self.run("sysctl", &args)?.ok().map(drop)
    }

    /// A device's MAC address.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn mac(&self, device: &str) -> Result<String, LabError> {
        let shown = self.ip(&["-j", "link", "show", "dev", device])?;
        let unreadable =
            || LabError::Unreadable { what: "`ip -j link`".to_owned(), text: shown.stdout.clone() };
        let parsed: serde_json::Value =
            serde_json::from_str(&shown.stdout).map_err(|_| unreadable())?;
        parsed[0]["address"].as_str().map(str::to_owned).ok_or_else(unreadable)
    }

    /// Whether the device exists in here.
    pub fn has_device(&self, device: &str) -> bool {
        self.ip(&["link", "show", "dev", device]).is_ok()
    }

    /// Has a veth leave checksums and segmentation to the other end, as a NIC does them in
    /// hardware.
    ///
    /// # Errors
    /// When `ethtool` refuses.
    pub fn offloading_wire(&self, device: &str) -> Result<(), LabError> {
        let args = ["-K", device, "tx", "on", "tso", "on", "gso", "on"];
        self.run("ethtool", &args)?.ok().map(drop)
    }

    /// Switches off what a veth does instead of a wire: checksums, segmentation and coalescing
    /// left to the other end.
    ///
    /// # Errors
    /// When `ethtool` refuses.
    pub fn plain_wire(&self, device: &str) -> Result<(), LabError> {
        let args = ["-K", device, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
        self.run("ethtool", &args)?.ok().map(drop)
    }
}
