//! Who takes part, and how each is set up: as its users would, with what its documentation calls
//! usual, on the director's place of the bed. None is tuned beyond that, Sluice neither.

use std::fmt::Write;
use std::path::PathBuf;

use super::proof;
use crate::bed::{Bed, Driver, Mode, REALS};
use crate::director::Director;
use crate::entry::{Real, Service};
use crate::error::{LabError, expect};
use crate::process::Running;

/// Where a router reaches all real servers over equal routes; behind no balancer at all.
const ANYCAST: &str = "203.0.113.80";
const STREAM_MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// A way from the client to the real servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Contender {
    /// The kernel routes over three equal next hops: no balancer, the mark for all others.
    Direct,
    /// The kernel translates destinations, by nftables.
    Nftables,
    /// HAProxy in TCP mode.
    Haproxy,
    /// nginx's stream module.
    Nginx,
    /// Sluice by AF_XDP, Full NAT.
    SluiceFnat,
    /// Sluice by AF_XDP, NAT.
    SluiceNat,
    /// Sluice by AF_XDP, Full NAT, its worker always polling.
    SluiceBusy,
    /// Sluice by AF_XDP with DPDK's driver, Full NAT.
    SluiceDpdk,
    /// Sluice by AF_PACKET, Full NAT.
    SluicePacket,
    /// Sluice by AF_PACKET, NAT.
    SluiceNatPacket,
}

/// A contender that runs.
#[derive(Debug)]
pub enum Stand {
    /// Nothing but the kernel's routes.
    Routes,
    /// A ruleset of nftables.
    Rules,
    /// A proxy.
    Proxy(Running),
    /// The director.
    Director {
        /// The program.
        director: Box<Director>,
        /// The local address of its pool.
        local: String,
    },
}

impl Contender {
    /// All that take part unless the command line says otherwise.
    pub const USUAL: [Self; 8] = [
        Self::Direct,
        Self::Nftables,
        Self::Haproxy,
        Self::Nginx,
        Self::SluiceFnat,
        Self::SluiceNat,
        Self::SluicePacket,
        Self::SluiceNatPacket,
    ];

    /// What it is called on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nftables => "nftables",
            Self::Haproxy => "haproxy",
            Self::Nginx => "nginx",
            Self::SluiceFnat => "sluice-fnat",
            Self::SluiceNat => "sluice-nat",
            Self::SluiceBusy => "sluice-busy",
            Self::SluiceDpdk => "sluice-dpdk",
            Self::SluicePacket => "sluice-packet",
            Self::SluiceNatPacket => "sluice-nat-packet",
        }
    }

    /// The address of the web servers.
    pub fn web(self, bed: &Bed) -> &'static str {
        if self == Self::Direct { ANYCAST } else { bed.vip() }
    }

    /// The address of the iperf3 server: of one real server, all its connections belong together.
    pub fn stream(self, bed: &Bed) -> String {
        if self == Self::Direct { Bed::real_address(0) } else { bed.vip().to_owned() }
    }

    /// How the director's ports are driven.
    fn driver(self) -> Driver {
        match self {
            Self::SluicePacket | Self::SluiceNatPacket => Driver::AfPacket,
            _ => Driver::AfXdp,
        }
    }

    /// Starts it. `turn` is the number of the turn in the whole race, `mtu` that of the wires
    /// where it is not the usual one.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start(self, bed: &mut Bed, turn: usize, mtu: Option<u16>) -> Result<Stand, LabError> {
        match self {
            Self::Direct => Ok(Stand::Routes),
            Self::Nftables => load_rules(bed).map(|()| Stand::Rules),
            Self::Haproxy => start_haproxy(bed).map(Stand::Proxy),
            Self::Nginx => start_nginx(bed).map(Stand::Proxy),
            Self::SluiceFnat
            | Self::SluiceNat
            | Self::SluiceBusy
            | Self::SluiceDpdk
            | Self::SluicePacket
            | Self::SluiceNatPacket => start_director(self, bed, turn, mtu),
        }
    }
}

impl Stand {
    /// Its first process; `None` if it is the kernel alone.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Routes | Self::Rules => None,
            Self::Proxy(running) => Some(running.pid()),
            Self::Director { director, .. } => Some(director.pid()),
        }
    }

    /// Connections that it has counted itself; `None` for those that do not count.
    ///
    /// # Errors
    /// When it does not say.
    pub fn counted(&self, bed: &Bed) -> Result<Option<u64>, LabError> {
        match self {
            Self::Routes | Self::Proxy(_) => Ok(None),
            Self::Rules => proof::rules_counted(bed).map(Some),
            Self::Director { director, .. } => proof::sessions_counted(director).map(Some),
        }
    }

    /// An error, with what the program said last.
    pub fn explain(&self, error: LabError) -> LabError {
        let said = match self {
            Self::Routes | Self::Rules => return error,
            Self::Proxy(running) => running.log_tail(10),
            Self::Director { director, .. } => {
                let drops = director.sluice(&["drops"]).unwrap_or_default();
                format!("{}\n{drops}", director.said(10))
            }
        };
        LabError::Wrong(format!("{error}; it said:\n{said}"))
    }

    /// Ends it and puts the bed back as it was.
    ///
    /// # Errors
    /// When it does not end, or ended badly.
    pub fn stop(&mut self, bed: &mut Bed) -> Result<(), LabError> {
        match self {
            Self::Routes => Ok(()),
            Self::Rules => bed.director.run("nft", &["flush", "ruleset"])?.ok().map(drop),
            Self::Proxy(running) => running.stop().map(drop),
            Self::Director { director, local } => {
                let back = bed.kernel_device("back");
                bed.director.ip(&["address", "delete", local, "dev", &back])?;
                let ended = director.stop()?;
                set_driver(bed, Driver::AfXdp)?;
                expect(ended.success(), || format!("ended with {ended}: {}", director.said(20)))
            }
        }
    }
}

/// One more address that all real servers have and no link has: a router can spread connections to
/// it over all of them by a hash of addresses and ports, translating nothing.
///
/// # Errors
/// When the kernel refuses.
pub fn lay_equal_routes(bed: &Bed) -> Result<(), LabError> {
    let address = format!("{ANYCAST}/32");
    bed.client.route(&address, bed.front_address())?;
    bed.reals.iter().try_for_each(|real| real.address("lo", &address))?;
    bed.director.sysctl("net.ipv4.fib_multipath_hash_policy", "1")?;
    let hops: Vec<String> = (0..REALS).map(Bed::real_address).collect();
    let mut args = vec!["route", "replace", &*address];
    hops.iter().for_each(|hop| args.extend(["nexthop", "via", hop]));
    bed.director.ip(&args).map(drop)
}

fn load_rules(bed: &Bed) -> Result<(), LabError> {
    let all: Vec<String> =
        (0..REALS).map(|index| format!("{index} : {}", Bed::real_address(index))).collect();
    let (vip, one) = (bed.vip(), Bed::real_address(0));
    let text = format!(
        "table ip race {{\n  chain in {{\n    type nat hook prerouting priority dstnat;\n\
         \x20   ip daddr {vip} tcp dport 80 counter dnat to numgen inc mod {REALS} map {{ {} }}\n\
         \x20   ip daddr {vip} tcp dport 5201 counter dnat to {one}\n  }}\n}}\n",
        all.join(", ")
    );
    let file = write(bed, "rules.nft", &text)?;
    bed.director.run("nft", &["-f", &file.to_string_lossy()])?.ok().map(drop)
}

fn start_haproxy(bed: &Bed) -> Result<Running, LabError> {
    let vip = bed.vip();
    let mut text = format!(
        "defaults\n  mode tcp\n  timeout connect 5s\n\
         \x20 timeout client 60s\n  timeout server 60s\n\
         listen web\n  bind {vip}:80\n  balance roundrobin\n"
    );
    // Writing to a string does not fail.
    for index in 0..REALS {
        let _ = writeln!(text, "  server rs{} {}:80", index + 1, Bed::real_address(index));
    }
    let one = Bed::real_address(0);
    let _ = writeln!(text, "listen stream\n  bind {vip}:5201\n  server rs1 {one}:5201");
    let file = write(bed, "haproxy.cfg", &text)?;
    bed.director.start("haproxy", "haproxy", &["-db", "-f", &file.to_string_lossy()])
}

fn start_nginx(bed: &Bed) -> Result<Running, LabError> {
    let (vip, one) = (bed.vip(), Bed::real_address(0));
    let dir = bed.lab.dir();
    let servers: String =
        (0..REALS).map(|index| format!(" server {}:80;", Bed::real_address(index))).collect();
    let text = format!(
        "load_module {STREAM_MODULE};\ndaemon off;\nuser root;\nworker_processes auto;\n\
         pid {};\nerror_log stderr warn;\nevents {{ worker_connections 8192; }}\n\
         stream {{\n  upstream web {{ zone web 64k;{servers} }}\n\
         \x20 server {{ listen {vip}:80 backlog=4096 reuseport; proxy_pass web; }}\n\
         \x20 server {{ listen {vip}:5201; proxy_pass {one}:5201; }}\n}}\n",
        dir.join("stream.pid").display()
    );
    let file = write(bed, "stream.conf", &text)?;
    let (dir, file) = (dir.to_string_lossy(), file.to_string_lossy());
    bed.director.start("stream", "nginx", &["-e", "stderr", "-p", &dir, "-c", &file])
}

/// Starts the director with a local address that this turn alone has. Real servers keep the ports
/// of closed connections for a minute (TIME_WAIT), and a director that was started again begins
/// with the first local port again: the turns would get into each other's way.
fn start_director(
    contender: Contender,
    bed: &mut Bed,
    turn: usize,
    mtu: Option<u16>,
) -> Result<Stand, LabError> {
    set_driver(bed, contender.driver())?;
    let local = format!("192.0.2.{}", 64 + turn % 128);
    let text = config(contender, bed, &local, mtu);
    let director = Box::new(Director::start(bed, &text)?);
    let local = format!("{local}/32");
    bed.director.address(&bed.kernel_device("back"), &local)?;
    Ok(Stand::Director { director, local })
}

/// The director's configuration, as in `README.md`: what it does not say stays as it is by itself,
/// but that the kernel has its addresses as soon as it ends (`hold_s`). Others need them then.
fn config(contender: Contender, bed: &Bed, local: &str, mtu: Option<u16>) -> String {
    let mode = match contender {
        Contender::SluiceNat | Contender::SluiceNatPacket => Mode::Nat,
        _ => Mode::Fnat,
    };
    let idle = if contender == Contender::SluiceBusy { "busy" } else { "adaptive" };
    let socket = Director::socket_in(bed.lab.dir());
    let mut text = format!(
        "[director]\nhold_s = 0\nidle = \"{idle}\"\ncontrol_socket = \"{}\"\nstate_dir = \"{}\"\n\n\
         [[pool]]\nname = \"lan\"\naddresses = [\"{local}\"]\n\n",
        socket.display(),
        socket.with_file_name("state").display()
    );
    let mtu = mtu.map_or_else(|| "\n".to_owned(), |mtu| format!("mtu = {mtu}\n\n"));
    for port in bed.ports() {
        let device = match bed.driver {
            Driver::AfXdp if contender == Contender::SluiceDpdk => {
                format!("\"af_xdp:{port},driver=dpdk\"")
            }
            Driver::AfXdp => format!("\"af_xdp:{port},driver=own\""),
            Driver::AfPacket => format!("\"af_packet:{port}\"\ntwin = \"{}\"", Bed::twin_of(port)),
        };
        let _ = writeln!(text, "[[port]]\nname = \"{port}\"\ndevice = {device}\n{mtu}");
    }
    for (name, port, reals) in [("web", 80, REALS), ("stream", 5201, 1)] {
        let service = Service::new(name, "tcp", bed.vip()).set("port", port);
        let service = match mode {
            Mode::Fnat => service.set("pool", "lan"),
            _ => service.set("mode", mode.name()),
        };
        let reals = (0..reals).map(|index| Real::at(Bed::real_address(index)));
        let _ = write!(text, "{}", service.reals(reals));
    }
    text
}

/// A port that the director owns has no addresses of its own (its twin has them); one of AF_XDP
/// has, as the kernel's ports have.
fn set_driver(bed: &mut Bed, driver: Driver) -> Result<(), LabError> {
    if bed.driver == driver {
        return Ok(());
    }
    bed.driver = driver;
    for port in bed.ports() {
        match driver {
            Driver::AfPacket => drop(bed.director.ip(&["address", "flush", "dev", port])?),
            Driver::AfXdp => {
                for address in bed.addresses_of(port) {
                    bed.director.address(port, address)?;
                }
            }
        }
    }
    // The routes over the real servers went with the addresses.
    if driver == Driver::AfXdp { lay_equal_routes(bed) } else { Ok(()) }
}

fn write(bed: &Bed, name: &str, text: &str) -> Result<PathBuf, LabError> {
    let file = bed.lab.dir().join(name);
    std::fs::write(&file, text).map_err(LabError::file(file.display().to_string()))?;
    Ok(file)
}
