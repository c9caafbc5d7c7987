//! The scenario of Linux's own self-test of IPVS: three machines, each with a wire to both others.
//!
//! ```text
//!  client ── bridge ──┬── director ── 192.0.2.0/24 ── server
//!  198.51.100.2       │   198.51.100.1, 192.0.2.1     192.0.2.2, 198.51.100.3
//!                     └───────────────────────────────── │
//! ```
//!
//! The virtual address is of no network of theirs: it is on the director's loopback, and the client
//! has a route to it. A file of 32 bytes goes by netcat, and must arrive whole.

use std::path::PathBuf;

use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::lab::End;
use sluice_e2e::web::start_script;
use sluice_e2e::{Director, Family, Lab, LabError, Mode, Netns, Real, Service, wait_until};

use crate::fixture::{PREFIX, SOON, here, turn};

const PORT: u16 = 8080;

/// Who has which addresses, in one family.
struct Addresses {
    vip: &'static str,
    client: &'static str,
    gateway: &'static str,
    director: &'static str,
    server: &'static str,
    side: &'static str,
    prefix: u32,
}

const fn addresses(family: Family) -> Addresses {
    match family {
        Family::V4 => Addresses {
            vip: "203.0.113.110",
            client: "198.51.100.2",
            gateway: "198.51.100.1",
            director: "192.0.2.1",
            server: "192.0.2.2",
            side: "198.51.100.3",
            prefix: 24,
        },
        Family::V6 => Addresses {
            vip: "2001:db8:3::110",
            client: "2001:db8:1::2",
            gateway: "2001:db8:1::1",
            director: "2001:db8:2::1",
            server: "2001:db8:2::2",
            side: "2001:db8:1::3",
            prefix: 64,
        },
    }
}

/// The three machines.
struct Trio {
    client: Netns,
    director: Netns,
    server: Netns,
    lab: Lab,
}

fn wired(mode: Mode) -> Result<Trio, LabError> {
    let mut lab = Lab::new(PREFIX)?;
    let (client, director) = (lab.space("client")?, lab.space("director")?);
    let server = lab.space("server")?;
    let end = |space, device| End { space, device, mac: None };
    lab.veth(end(&client, "to-director"), end(&director, "front"), 1)?;
    lab.veth(end(&client, "to-server"), end(&server, "side"), 1)?;
    lab.veth(end(&director, "back"), end(&server, "eth0"), 1)?;
    client.ip(&["link", "add", "br0", "type", "bridge", "stp_state", "0"])?;
    for device in ["to-director", "to-server"] {
        client.ip(&["link", "set", "dev", device, "master", "br0"])?;
    }
    client.ip(&["link", "set", "dev", "br0", "up"])?;
    for space in [&client, &director, &server] {
        let keys = ["all.accept_dad=0", "default.accept_dad=0", "all.disable_ipv6=0"];
        let mut settings = keys.map(|key| format!("net.ipv6.conf.{key}")).to_vec();
        settings.insert(2, "net.ipv6.conf.default.disable_ipv6=0".to_owned());
        settings.push("net.ipv4.conf.all.rp_filter=0".to_owned());
        settings.push("net.ipv4.conf.default.rp_filter=0".to_owned());
        settings.push("net.ipv4.conf.all.arp_ignore=1".to_owned());
        settings.push("net.ipv4.conf.all.arp_announce=2".to_owned());
        space.sysctls(&settings)?;
    }
    let trio = Trio { client, director, server, lab };
    FAMILIES.iter().try_for_each(|family| trio.address(mode, *family))?;
    Ok(trio)
}

impl Trio {
    fn address(&self, mode: Mode, family: Family) -> Result<(), LabError> {
        let Addresses { vip, client, gateway, director, server, side, prefix } = addresses(family);
        let of = |address: &str| format!("{address}/{prefix}");
        let vip = format!("{vip}/{}", family.bits());
        self.client.address("br0", &of(client))?;
        self.director.address("front", &of(gateway))?;
        self.director.address("back", &of(director))?;
        self.director.address("lo", &vip)?;
        self.server.address("eth0", &of(server))?;
        self.client.route(&vip, gateway)?;
        if mode.answers_past() {
            self.server.address("side", &of(side))?;
            return self.server.address("lo", &vip);
        }
        // The answers' only way is through the director.
        self.server.ip(&["link", "set", "dev", "side", "down"])?;
        self.server.route("default", director)
    }

    fn config(&self, mode: Mode) -> String {
        let socket = Director::socket_in(self.lab.dir());
        let state = socket.with_file_name("state");
        let services = FAMILIES.map(|family| {
            let Addresses { vip, server, .. } = addresses(family);
            Service::new(&format!("nc{}", family.bits()), "tcp", vip)
                .set("port", PORT)
                .set("mode", mode.name())
                .real(Real::at(server))
                .to_string()
        });
        format!(
            "[director]\ncores = [1]\ncontrol_socket = {socket:?}\nstate_dir = {state:?}\n\n\
             [ipip]\nsource_v4 = \"192.0.2.1\"\nsource_v6 = \"2001:db8:2::1\"\n\n\
             [[port]]\nname = \"front\"\ndevice = \"af_xdp:front\"\n\n\
             [[port]]\nname = \"back\"\ndevice = \"af_xdp:back\"\n\n{}",
            services.concat()
        )
    }

    /// Sends the file and compares what arrived.
    fn send(&self, family: Family, sent: &PathBuf) -> Result<(), LabError> {
        let got = self.lab.dir().join(format!("got{}", family.bits()));
        let listen = format!("exec nc {} -l {PORT} > {}", family.flag(), got.display());
        let mut server = self.server.start("nc", "sh", &["-c", &listen])?;
        wait_until("nc to listen", SOON, || {
            let shown = self.server.run("ss", &["-ltnH", &format!("sport = :{PORT}")])?;
            Ok((!shown.stdout.is_empty()).then_some(()))
        })?;
        let vip = addresses(family).vip;
        let send = format!("nc {} -N -w 3 {vip} {PORT} < {}", family.flag(), sent.display());
        self.client.run("sh", &["-c", &send])?.ok()?;
        server.wait(SOON)?;
        let read = |file: &PathBuf| std::fs::read(file).map_err(LabError::file("reading a file"));
        let (sent, got) = (read(sent)?, read(&got)?);
        expect(sent == got, || format!("{family}: sent {sent:?}, got {got:?}"))
    }
}

fn run(name: &str, mode: Mode) -> Result<(), LabError> {
    let Some(_turn) = turn(name) else { return Ok(()) };
    let trio = wired(mode)?;
    let mut director = Director::launch_in(&trio.director, &trio.config(mode), &[])?;
    director.wait_ready()?;
    let tunnel = "unpacked";
    let mut peers = Vec::new();
    if mode.is_tunnel() {
        peers.push(start_script(&trio.server, "unpack", "unpack.py", &[tunnel])?);
        trio.server.ip(&["link", "set", "dev", tunnel, "up"])?;
    }
    let sent = trio.lab.dir().join("sent");
    let fill = format!("head -c 32 /dev/urandom > {}", sent.display());
    trio.client.run("sh", &["-c", &fill])?.ok()?;
    let done = FAMILIES.iter().try_for_each(|family| trio.send(*family, &sent));
    done.map_err(|error| LabError::Wrong(format!("{error}\n{}", director.said(20))))
}

#[test]
fn direct_routing() -> Result<(), LabError> {
    run(here!(direct_routing), Mode::Dr)
}

#[test]
fn nat() -> Result<(), LabError> {
    run(here!(nat), Mode::Nat)
}

#[test]
fn tunnel() -> Result<(), LabError> {
    run(here!(tunnel), Mode::Ipip)
}
