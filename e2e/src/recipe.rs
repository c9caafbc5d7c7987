//! The director's configuration for a bed, in the file format that an operator writes.

use std::fmt::Write;
use std::path::Path;

use crate::bed::{Bed, Driver, REALS};
use crate::director::Director;
use crate::web::{ECHO_PORT, LINES_PORT};

/// A service of a recipe, on the bed's virtual address.
#[derive(Debug, Clone)]
pub struct ServiceLine {
    /// Its name.
    pub name: &'static str,
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// Virtual port.
    pub port: u16,
    /// The real servers' port.
    pub real_port: u16,
    /// How many of the bed's real servers it has.
    pub reals: usize,
}

/// What a test may vary.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// `auto`, `required` or `off`.
    pub huge_pages: &'static str,
    /// `drop` or `reset`.
    pub no_session: &'static str,
    /// Sessions of the whole director.
    pub sessions: u32,
    /// The local pool's ports.
    pub pool_ports: &'static str,
    /// The services.
    pub services: Vec<ServiceLine>,
    /// More of the file: `[ipip]`, further pools, services and rules of source NAT.
    pub more: String,
}

const fn service(
    name: &'static str,
    protocol: &'static str,
    port: u16,
    real_port: u16,
    reals: usize,
) -> ServiceLine {
    ServiceLine { name, protocol, port, real_port, reals }
}

/// The service that a reload adds in tests.
pub const EXTRA: ServiceLine = service("extra", "tcp", 8080, 80, 2);

impl Default for Recipe {
    fn default() -> Self {
        Self {
            huge_pages: "auto",
            no_session: "drop",
            sessions: 100_000,
            pool_ports: "1024-65535",
            services: vec![
                service("web", "tcp", 80, 80, REALS),
                service("echo", "udp", ECHO_PORT, ECHO_PORT, REALS),
                service("lines", "tcp", LINES_PORT, LINES_PORT, 1),
                // iperf3 needs its control connection and its data at the same server.
                service("iperf-tcp", "tcp", 5201, 5201, 1),
                service("iperf-udp", "udp", 5201, 5201, 1),
            ],
            more: String::new(),
        }
    }
}

impl Recipe {
    /// The configuration file's text for this bed.
    pub fn text(&self, bed: &Bed) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, bed);
        text
    }

    fn write(&self, out: &mut String, bed: &Bed) -> std::fmt::Result {
        let socket = Director::socket_in(bed.lab.dir());
        self.write_director(out, &socket, &cores(bed))?;
        for port in bed.ports() {
            write_port(out, port, bed.driver_of(port))?;
        }
        writeln!(out, "[[pool]]\nname = \"lan\"\naddresses = [\"192.0.2.10\"]")?;
        writeln!(out, "ports = \"{}\"\n", self.pool_ports)?;
        for service in &self.services {
            write_service(out, service, bed.vip())?;
        }
        out.write_str(&self.more)
    }

    fn write_director(&self, out: &mut String, socket: &Path, cores: &[usize]) -> std::fmt::Result {
        writeln!(out, "[director]\ncores = {cores:?}\nhuge_pages = \"{}\"", self.huge_pages)?;
        writeln!(out, "log_level = \"info\"\ncontrol_socket = \"{}\"", socket.display())?;
        writeln!(out, "state_dir = \"{}\"\n", socket.with_file_name("state").display())?;
        writeln!(out, "[limits]\nsessions = {}\n", self.sessions)?;
        writeln!(out, "[tcp]\nno_session = \"{}\"\n", self.no_session)
    }
}

/// A core for each worker: the last ones that this process may use, for the first ones tend to
/// have the interrupts. A bed beside another one begins a core earlier.
fn cores(bed: &Bed) -> Vec<usize> {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let count = (bed.workers as usize).min(available);
    let first = available - count + available - bed.lab.seat() % available;
    let mut cores: Vec<usize> = (first..first + count).map(|core| core % available).collect();
    cores.sort_unstable();
    cores
}

fn write_port(out: &mut String, port: &str, driver: Driver) -> std::fmt::Result {
    match driver {
        Driver::AfXdp => {
            writeln!(out, "[[port]]\nname = \"{port}\"\ndevice = \"af_xdp:{port}\"\n")
        }
        Driver::AfPacket => {
            let twin = Bed::twin_of(port);
            writeln!(out, "[[port]]\nname = \"{port}\"\ndevice = \"af_packet:{port}\"")?;
            writeln!(out, "twin = \"{twin}\"\n")
        }
    }
}

fn write_service(out: &mut String, service: &ServiceLine, vip: &str) -> std::fmt::Result {
    let ServiceLine { name, protocol, port, real_port, reals } = service;
    writeln!(out, "[[service]]\nname = \"{name}\"\nprotocol = \"{protocol}\"\nvip = \"{vip}\"")?;
    writeln!(out, "port = {port}\nmode = \"fnat\"\nscheduler = \"rr\"\npool = \"lan\"\n")?;
    for index in 0..*reals {
        let address = Bed::real_address(index);
        writeln!(out, "[[service.real]]\naddress = \"{address}\"\nport = {real_port}\n")?;
    }
    Ok(())
}
