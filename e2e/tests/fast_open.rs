//! TCP Fast Open (RFC 7413) in the client's and the real server's kernel: data in a SYN reaches a
//! real server that is told nothing of its client, and comes behind the header where it is told.

use sluice_e2e::error::expect;
use sluice_e2e::family::url;
use sluice_e2e::{Bed, Driver, Family, LabError, Mode, wait_until};

use crate::dual_stack::{on_dual, reals, service};
use crate::fixture::{Fixture, SOON, Setup, here};

/// HAProxy's ports: with and without a PROXY header.
const TOLD_PORT: u16 = 8082;
const PLAIN_PORT: u16 = 8083;

macro_rules! with_fast_open {
    ($($test:ident: $how:literal, $outer:ident, $inner:ident;)+) => {
        $(
            #[test]
            fn $test() {
                let (outer, inner) = (Family::$outer, Family::$inner);
                let services = |bed: &Bed| services(bed, outer, inner, $how);
                let setup = Setup::new(Driver::AfXdp, 1);
                on_dual(here!($test), setup, Mode::Fnat, services, |fixture| told(fixture, outer));
            }
        )+
    };
}

with_fast_open! {
    proxy_v1_ipv4: "proxy_v1", V4, V4;
    proxy_v2_ipv6: "proxy_v2", V6, V6;
    proxy_v2_of_ipv6_clients_at_ipv4_servers: "proxy_v2", V6, V4;
}

fn services(bed: &Bed, outer: Family, inner: Family, how: &str) -> String {
    [("plain", 80, PLAIN_PORT, "hidden"), ("told", 81, TOLD_PORT, how)]
        .map(|(name, port, real_port, how)| {
            service(name, "tcp", bed.vip_of(outer), Mode::Fnat, inner)
                .set("port", port)
                .set("client_address", how)
                .reals(reals(inner, 1).map(|real| real.set("port", real_port)))
                .to_string()
        })
        .concat()
}

/// Both kernels send and take data in a SYN, without a cookie.
fn start_haproxy(fixture: &mut Fixture) -> Result<(), LabError> {
    let real = fixture.bed.reals[0].clone();
    fixture.bed.client.sysctl("net.ipv4.tcp_fastopen", "5")?;
    real.sysctl("net.ipv4.tcp_fastopen", "515")?;
    let file = fixture.bed.lab.dir().join("haproxy.cfg");
    let text = format!(
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 20s\n  timeout server 20s\n\
         frontend all\n  bind :::{TOLD_PORT} v4v6 tfo accept-proxy\n\
         \x20 bind :::{PLAIN_PORT} v4v6 tfo\n\
         \x20 http-request return status 200 content-type text/plain \
         lf-string \"%[src] %[src_port]\"\n"
    );
    std::fs::write(&file, text).map_err(LabError::file(file.display().to_string()))?;
    let haproxy = real.start("haproxy", "haproxy", &["-db", "-f", &file.to_string_lossy()])?;
    fixture.bed.peers.push(haproxy);
    wait_until("haproxy to listen", SOON, || {
        let shown = real.run("ss", &["-ltnH", &format!("sport = :{PLAIN_PORT}")])?;
        Ok((!shown.stdout.is_empty()).then_some(()))
    })
}

/// Connections that the real server's kernel took with data in their SYN.
fn taken(fixture: &Fixture) -> Result<u64, LabError> {
    let shown = fixture.bed.reals[0].run("nstat", &["-asz", "TcpExtTCPFastOpenPassive"])?.ok()?;
    let number = shown.stdout.lines().last().and_then(|line| line.split_whitespace().nth(1));
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| LabError::Wrong(format!("no count in {}", shown.stdout)))
}

fn told(fixture: &mut Fixture, outer: Family) -> Result<(), LabError> {
    start_haproxy(fixture)?;
    let vip = fixture.bed.vip_of(outer);
    let before = taken(fixture)?;
    for (port, is_told) in [(80, false), (81, true)] {
        for _ in 0..5 {
            let args = ["-sS", "--fail", "--max-time", "5", "--tcp-fastopen"];
            let own = ["-w", " = %{local_ip} %{local_port}", &url(vip, port)];
            let ran = fixture.bed.client.run("curl", &[&args[..], &own].concat())?.ok()?;
            let (told, own) = ran.stdout.split_once(" = ").unwrap_or_default();
            let right = (told == own) == is_told && own.contains(fixture.bed.client_of(outer));
            expect(right, || format!("port {port}: told {told:?}, client {own:?}"))?;
        }
        // What is told of the client has to come first, so no data may come in the SYN.
        let now = taken(fixture)?;
        expect(now == before + 5, || format!("port {port}: {before} before, {now} now"))?;
    }
    Ok(())
}
