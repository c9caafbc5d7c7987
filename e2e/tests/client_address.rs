//! How real servers learn their client's address: HAProxy and nginx as receivers of the PROXY
//! protocol, tshark for the TCP option, a little receiver of our own for datagrams.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use sluice_e2e::capture::{Capture, judge};
use sluice_e2e::error::expect;
use sluice_e2e::family::{endpoint, url};
use sluice_e2e::load::{download_sha256, upload_sha256};
use sluice_e2e::web::{self, ECHO_PORT, SINK_PORT, TOLD_PORT, make_blob_of};
use sluice_e2e::{Bed, Driver, Family, LabError, Mode, process};

use crate::dual_stack::{on_dual, reals, service};
use crate::fixture::{Fixture, PYTHON, SOON, Setup, here};

/// HAProxy listens here; nginx at [`TOLD_PORT`].
const HAPROXY_PORT: u16 = 8082;

fn services(bed: &Bed, outer: Family, inner: Family, how: &str) -> String {
    let vip = bed.vip_of(outer);
    [("nginx", 80, TOLD_PORT), ("haproxy", 81, HAPROXY_PORT)]
        .map(|(name, port, real_port)| {
            service(name, "tcp", vip, Mode::Fnat, inner)
                .set("port", port)
                .set("client_address", how)
                .reals(reals(inner, 1).map(|real| real.set("port", real_port)))
                .to_string()
        })
        .concat()
}

/// HAProxy answers GET with whom it was told of, and passes a PUT on to the sink.
fn start_haproxy(fixture: &mut Fixture) -> Result<(), LabError> {
    let real = fixture.bed.reals[0].clone();
    let file = fixture.bed.lab.dir().join("haproxy.cfg");
    let text = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 20s\n  timeout server 20s\n\
         frontend told\n  bind :::{HAPROXY_PORT} v4v6 accept-proxy\n\
         \x20 use_backend sink if {{ method PUT }}\n\
         \x20 http-request return status 200 content-type text/plain \
         lf-string \"%[src] %[src_port] %[dst] %[dst_port]\" if !{{ method PUT }}\n\
         backend sink\n  server sink 127.0.0.1:{SINK_PORT}\n"
    );
    std::fs::write(&file, text).map_err(LabError::file(file.display().to_string()))?;
    fixture.bed.peers.push(web::start_sink(&real, "sink")?);
    let haproxy = real.start("haproxy", "haproxy", &["-db", "-f", &file.to_string_lossy()])?;
    fixture.bed.peers.push(haproxy);
    sluice_e2e::wait_until("haproxy to listen", SOON, || {
        let shown = real.run("ss", &["-ltnH", &format!("sport = :{HAPROXY_PORT}")])?;
        Ok((!shown.stdout.is_empty()).then_some(()))
    })
}

macro_rules! proxied {
    ($($test:ident: $how:literal, $outer:ident, $inner:ident, $workers:literal;)+) => {
        $(
            #[test]
            fn $test() {
                let (outer, inner) = (Family::$outer, Family::$inner);
                let services = |bed: &Bed| services(bed, outer, inner, $how);
                let setup = Setup::new(Driver::AfXdp, $workers);
                on_dual(here!($test), setup, Mode::Fnat, services, |fixture| told(fixture, outer));
            }
        )+
    };
}

proxied! {
    proxy_v1_ipv4: "proxy_v1", V4, V4, 1;
    proxy_v1_ipv6: "proxy_v1", V6, V6, 1;
    proxy_v2_ipv4: "proxy_v2", V4, V4, 1;
    proxy_v2_ipv6: "proxy_v2", V6, V6, 1;
    proxy_v2_ipv4_two_workers: "proxy_v2", V4, V4, 2;
    proxy_v1_of_ipv6_clients_at_ipv4_servers: "proxy_v1", V6, V4, 1;
    proxy_v2_of_ipv4_clients_at_ipv6_servers: "proxy_v2", V4, V6, 1;
}

macro_rules! proxied_super_frames {
    ($($test:ident: $how:literal, $outer:ident, $inner:ident;)+) => {
        $(
            /// The client's segments come unfinished and many at a time.
            #[test]
            fn $test() {
                let (outer, inner) = (Family::$outer, Family::$inner);
                let services = |bed: &Bed| services(bed, outer, inner, $how);
                let setup = Setup::new(Driver::AfPacket, 1);
                on_dual(here!($test), setup, Mode::Fnat, services, |fixture| {
                    fixture.bed.client.offloading_wire("eth0")?;
                    told(fixture, outer)
                });
            }
        )+
    };
}

proxied_super_frames! {
    proxy_v1_of_super_frames: "proxy_v1", V4, V4;
    proxy_v2_of_super_frames_of_ipv6_at_ipv4_servers: "proxy_v2", V6, V4;
}

/// What a program at the real server says of its client is what curl says of itself; and the
/// stream behind the header is whole in both directions.
fn told(fixture: &mut Fixture, outer: Family) -> Result<(), LabError> {
    start_haproxy(fixture)?;
    let capture = Capture::start(&fixture.bed.reals[0], "eth0", "told")?;
    let vip = fixture.bed.vip_of(outer);
    for (port, also) in [(80, String::new()), (81, format!(" {vip} 81"))] {
        for _ in 0..3 {
            let args = ["-sS", "--fail", "--max-time", "5", "-w", " = %{local_ip} %{local_port}"];
            let url = url(vip, port);
            let ran = fixture.bed.client.run("curl", &[&args[..], &[&url]].concat())?.ok()?;
            let (told, own) = ran.stdout.split_once(" = ").unwrap_or_default();
            let right =
                told == format!("{own}{also}") && own.contains(fixture.bed.client_of(outer));
            expect(right, || format!("port {port}: told {told:?}, client {own:?}"))?;
        }
    }
    let verdict = judge(&capture.stop()?)?;
    expect(verdict.bad == 0 && verdict.good_tcp > 20, || format!("{verdict:?}"))?;
    let sum = make_blob_of(&fixture.bed.reals[0], 5_000_000)?;
    let got = download_sha256(&fixture.bed.client, &format!("{}/blob", url(vip, 80)), "")?;
    expect(got == sum, || format!("sent {sum}, got {got}"))?;
    let blob = fixture.bed.lab.dir().join("blob").display().to_string();
    let put = upload_sha256(&fixture.bed.client, &format!("{}/", url(vip, 81)), &blob)?;
    expect(put == sum, || format!("put {sum}, got {put}"))
}

macro_rules! by_option {
    ($($test:ident: $outer:ident, $inner:ident;)+) => {
        $(
            #[test]
            fn $test() {
                let (outer, inner) = (Family::$outer, Family::$inner);
                let services = |bed: &Bed| {
                    service("web", "tcp", bed.vip_of(outer), Mode::Fnat, inner)
                        .set("port", 80)
                        .set("client_address", "toa")
                        .reals(reals(inner, 1))
                        .to_string()
                };
                let (name, setup) = (here!($test), Setup::usual());
                on_dual(name, setup, Mode::Fnat, services, |fixture| option(fixture, outer));
            }
        )+
    };
}

/// The same of a client whose segments come unfinished and many at a time.
#[test]
fn toa_of_super_frames() {
    let services = |bed: &Bed| {
        service("web", "tcp", bed.vip_of(Family::V4), Mode::Fnat, Family::V4)
            .set("port", 80)
            .set("client_address", "toa")
            .reals(reals(Family::V4, 1))
            .to_string()
    };
    let setup = Setup::new(Driver::AfPacket, 1);
    on_dual(here!(toa_of_super_frames), setup, Mode::Fnat, services, |fixture| {
        fixture.bed.client.offloading_wire("eth0")?;
        option(fixture, Family::V4)
    });
}

by_option! {
    toa_ipv4: V4, V4;
    toa_ipv6: V6, V6;
    toa_of_ipv6_clients_at_ipv4_servers: V6, V4;
}

/// The acknowledgement that completes the handshake, which is where `toa` looks, has option 254
/// with the client's port and address at the real server; and the kernel there, which does not know
/// the option, is not disturbed.
fn option(fixture: &mut Fixture, outer: Family) -> Result<(), LabError> {
    let capture = Capture::start(&fixture.bed.reals[0], "eth0", "toa")?;
    let url = url(fixture.bed.vip_of(outer), 80);
    let args = ["-sS", "--fail", "--max-time", "5", "-o", "/dev/null", "-w"];
    let args = [&args[..], &["%{local_ip} %{local_port}", &url]].concat();
    let ran = fixture.bed.client.run("curl", &args)?.ok()?;
    let (address, port) = ran.stdout.split_once(' ').unwrap_or_default();
    let port: u16 = port.parse().unwrap_or_default();
    let wanted = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => format!("fe08{port:04x}{:08x}", address.to_bits()),
        Ok(IpAddr::V6(address)) => format!("fe14{port:04x}{:032x}", address.to_bits()),
        Err(_) => return Err(LabError::Wrong(format!("curl says it is {:?}", ran.stdout))),
    };
    let file = capture.stop()?;
    let verdict = judge(&file)?;
    expect(verdict.bad == 0, || format!("{verdict:?}"))?;
    let mut tshark = Command::new("timeout");
    tshark.args(["60", "tshark", "-n", "-r"]).arg(&file).args([
        "-T",
        "fields",
        "-e",
        "tcp.options",
    ]);
    tshark.args(["-Y", "tcp.dstport == 80 && tcp.flags == 0x10 && tcp.seq == 1 && tcp.ack == 1"]);
    let options = process::run(&mut tshark)?.ok()?.stdout;
    expect(options.contains(&wanted), || format!("no {wanted} in {options}"))?;
    let sum = make_blob_of(&fixture.bed.reals[0], 5_000_000)?;
    let got = download_sha256(&fixture.bed.client, &format!("{url}/blob"), "")?;
    expect(got == sum, || format!("sent {sum}, got {got}"))
}

macro_rules! datagrams {
    ($($test:ident: $outer:ident, $inner:ident;)+) => {
        $(
            #[test]
            fn $test() {
                let (outer, inner) = (Family::$outer, Family::$inner);
                let services = |bed: &Bed| {
                    service("told", "udp", bed.vip_of(outer), Mode::Fnat, inner)
                        .set("port", ECHO_PORT)
                        .set("client_address", "proxy_v2")
                        .reals(reals(inner, 1).map(|real| real.set("port", 9000)))
                        .to_string()
                };
                let name = here!($test);
                on_dual(name, Setup::usual(), Mode::Fnat, services, |fixture| each(fixture, outer));
            }
        )+
    };
}

datagrams! {
    proxy_v2_of_datagrams_ipv4: V4, V4;
    proxy_v2_of_datagrams_ipv6: V6, V6;
    proxy_v2_of_datagrams_of_ipv6_clients_at_ipv4_servers: V6, V4;
}

/// The receiver takes the header off, checks it and answers with `client vip payload`.
fn each(fixture: &mut Fixture, outer: Family) -> Result<(), LabError> {
    let real = fixture.bed.reals[0].clone();
    fixture.bed.peers.push(web::start_script(&real, "proxied", "proxied.py", &["9000"])?);
    let vip = endpoint(fixture.bed.vip_of(outer), ECHO_PORT);
    let client = endpoint(fixture.bed.client_of(outer), 5005);
    let bind: SocketAddr = client.parse().map_err(|_| LabError::Wrong(client.clone()))?;
    let asks = "
import socket, sys
host, port = sys.argv[1], int(sys.argv[2])
one = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(1)
one.bind((sys.argv[3], 5005))
one.connect((host, port))
for size in (0, 1, 1000, 1460, 4000, 20000):
    # What no longer fits with its header is not answered but told of: then it goes in pieces.
    for again in range(4):
        try:
            one.send(b'x' * size)
            print(one.recv(2000).decode())
            break
        except OSError:
            pass
";
    let vip_address = fixture.bed.vip_of(outer);
    let port = ECHO_PORT.to_string();
    let bound = bind.ip().to_string();
    let ran = fixture.bed.client.run(PYTHON, &["-c", asks, vip_address, &port, &bound])?.ok()?;
    // The last three come in fragments, or leave so for the header that they are given.
    let wanted = [0, 1, 1000, 1460, 4000, 20000].map(|size| format!("{client} {vip} {size}"));
    let said: Vec<&str> = ran.stdout.lines().collect();
    expect(said == wanted, || format!("the receiver said {said:?}"))
}
