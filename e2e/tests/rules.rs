//! What a service's rules mean to real clients: weights, persistence, hashing, port ranges, all
//! protocols, and what becomes of live downloads when a real server is drained, removed or down.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::JoinHandle;

use sluice_e2e::bed::REALS;
use sluice_e2e::capture::{Capture, counts};
use sluice_e2e::error::expect;
use sluice_e2e::family::{FAMILIES, url};
use sluice_e2e::load::{Until, curl, download_sha256, iperf3_tcp};
use sluice_e2e::web::make_blob_of;
use sluice_e2e::{Bed, Family, LabError, Mode, Real, wait_until};

use crate::dual_stack::{IPERF_PORT, bare, on_dual, reals, service};
use crate::fixture::{Fixture, PYTHON, SOON, Setup, here, script};

/// A web service on both families, with keys of its own.
fn web(bed: &Bed, mode: Mode, keys: &[(&str, &str)]) -> String {
    FAMILIES
        .map(|family| {
            let name = format!("web{}", family.bits());
            let service = service(&name, "tcp", bed.vip_of(family), mode, family).set("port", 80);
            let service =
                keys.iter().fold(service, |service, (key, value)| service.set(key, value));
            service.reals(reals(family, REALS)).to_string()
        })
        .concat()
}

/// One answer of the web service to a client address.
fn answer_to(fixture: &Fixture, family: Family, client: &str) -> Result<String, LabError> {
    let url = url(fixture.bed.vip_of(family), 80);
    let args = ["-sS", "--fail", "--max-time", "5", "--interface", client, &url];
    Ok(fixture.bed.client.run("curl", &args)?.ok()?.stdout.trim_end().to_owned())
}

/// Gives the client `count` more addresses of a family and returns them.
fn more_clients(fixture: &Fixture, family: Family, count: usize) -> Result<Vec<String>, LabError> {
    let start = if family == Family::V4 { "198.51.100." } else { "2001:db8:1::" };
    (60..60 + count)
        .map(|last| {
            let address = format!("{start}{last}");
            fixture.bed.client.address("eth0", &format!("{address}/{}", family.bits()))?;
            Ok(address)
        })
        .collect()
}

#[test]
fn weights_of_wrr_are_exact() {
    let services = |bed: &Bed| {
        FAMILIES
            .map(|family| {
                let weighted = reals(family, REALS).zip([3, 2, 1]);
                let name = format!("web{}", family.bits());
                service(&name, "tcp", bed.vip_of(family), Mode::Nat, family)
                    .set("port", 80)
                    .set("scheduler", "wrr")
                    .reals(weighted.map(|(real, weight)| real.set("weight", weight)))
                    .to_string()
            })
            .concat()
    };
    on_dual(here!(weights_of_wrr_are_exact), Setup::usual(), Mode::Nat, services, |fixture| {
        for family in FAMILIES {
            let url = url(fixture.bed.vip_of(family), 80);
            let mut seen = BTreeMap::new();
            for _ in 0..12 {
                *seen.entry(curl(&fixture.bed.client, &url)?).or_insert(0) += 1;
            }
            let counts: Vec<i32> = seen.values().copied().collect();
            expect(counts == [6, 4, 2], || format!("{family}: {seen:?}"))?;
        }
        Ok(())
    });
}

/// Each client address stays with its real server while others go round.
fn stay(fixture: &mut Fixture) -> Result<(), LabError> {
    for family in FAMILIES {
        let clients = more_clients(fixture, family, 6)?;
        let mut met = BTreeSet::new();
        for client in &clients {
            let first = answer_to(fixture, family, client)?;
            for _ in 0..3 {
                let again = answer_to(fixture, family, client)?;
                expect(again == first, || format!("{client}: first {first}, then {again}"))?;
            }
            met.insert(first);
        }
        expect(met.len() >= 2, || format!("six clients all went to {met:?}"))?;
    }
    Ok(())
}

macro_rules! stays {
    ($($test:ident: $workers:literal, $keys:expr;)+) => {
        $(
            #[test]
            fn $test() {
                let services = |bed: &Bed| web(bed, Mode::Fnat, &$keys);
                let setup = Setup::new(sluice_e2e::Driver::AfXdp, $workers);
                on_dual(here!($test), setup, Mode::Fnat, services, stay);
            }
        )+
    };
}

stays! {
    persistence_keeps_clients: 1, [("persistence_s", "60")];
    persistence_keeps_clients_two_workers: 2, [("persistence_s", "60")];
    sh_keeps_clients: 1, [("scheduler", "sh")];
    mh_keeps_clients: 1, [("scheduler", "mh")];
}

/// By prefix the whole network of the clients is one client.
#[test]
fn persistence_by_prefix() {
    let name = here!(persistence_by_prefix);
    let services =
        |bed: &Bed| web(bed, Mode::Nat, &[("persistence_s", "60"), ("persistence_prefix", "24")]);
    on_dual(name, Setup::usual(), Mode::Nat, services, |fixture| {
        for family in FAMILIES {
            let clients = more_clients(fixture, family, 5)?;
            let met: BTreeSet<String> = clients
                .iter()
                .map(|client| answer_to(fixture, family, client))
                .collect::<Result<_, _>>()?;
            expect(met.len() == 1, || format!("{family}: {met:?}"))?;
        }
        Ok(())
    });
}

/// Ports without a service of their own: a range by full NAT, all ports by direct routing; real
/// servers get the port that the client sent to.
#[test]
fn a_range_of_ports() {
    let services = |bed: &Bed| ports(bed, Mode::Fnat, Some("5200-5299"));
    on_dual(here!(a_range_of_ports), Setup::usual(), Mode::Fnat, services, |fixture| {
        ports_serve(fixture, &[])
    });
}

#[test]
fn all_ports_by_direct_routing() {
    let services = |bed: &Bed| ports(bed, Mode::Dr, None);
    on_dual(here!(all_ports_by_direct_routing), Setup::usual(), Mode::Dr, services, |fixture| {
        ports_serve(fixture, &[80])
    });
}

fn ports(bed: &Bed, mode: Mode, range: Option<&str>) -> String {
    FAMILIES
        .map(|family| {
            let name = format!("range{}", family.bits());
            let service = service(&name, "tcp", bed.vip_of(family), mode, family);
            let service =
                range.into_iter().fold(service, |service, range| service.set("port", range));
            service.reals(reals(family, 1)).to_string()
        })
        .concat()
}

fn ports_serve(fixture: &mut Fixture, http: &[u16]) -> Result<(), LabError> {
    for family in FAMILIES {
        let vip = fixture.bed.vip_of(family);
        let tcp = iperf3_tcp(&fixture.bed.client, vip, Until::Megabytes(24), false)?;
        expect(tcp.bytes > 2_000_000, || format!("{family}, port {IPERF_PORT}: {tcp:?}"))?;
        for port in http {
            let answer = curl(&fixture.bed.client, &url(vip, *port))?;
            expect(answer == "Real Server 01", || answer.clone())?;
        }
    }
    Ok(())
}

/// Protocol `any` by direct routing: GRE and ESP reach a real server as they were sent.
#[test]
fn any_protocol_by_direct_routing() {
    let services = |bed: &Bed| {
        FAMILIES
            .map(|family| {
                let name = format!("any{}", family.bits());
                service(&name, "any", bed.vip_of(family), Mode::Dr, family)
                    .reals(reals(family, 1))
                    .to_string()
            })
            .concat()
    };
    on_dual(here!(any_protocol_by_direct_routing), Setup::usual(), Mode::Dr, services, |fixture| {
        for family in FAMILIES {
            // The first packet of all may find neighbours unresolved.
            let vip = fixture.bed.vip_of(family);
            curl(&fixture.bed.client, &url(vip, 80))?;
            let capture = Capture::start(&fixture.bed.reals[0], "eth0", "any")?;
            let send = script("send_any.py");
            fixture
                .bed
                .client
                .run(PYTHON, &[&send, fixture.bed.client_of(family), vip, "5"])?
                .ok()?;
            let file = capture.stop()?;
            // The kernel there knows neither and says so, with a quotation.
            let own = "!icmp && !icmpv6";
            let sent = ["gre", "esp"].map(|protocol| format!("{protocol} && {own}"));
            let [gre, esp] = counts(&file, sent.each_ref().map(|filter| &**filter))?;
            expect(gre == 5 && esp == 5, || format!("{family}: {gre} GRE and {esp} ESP of 5"))?;
        }
        Ok(())
    });
}

/// A download of some seconds from the first real server, which is the only one that has weight.
struct Download {
    sum: String,
    running: JoinHandle<Result<String, LabError>>,
}

/// The web service of one family; the first real server has these keys, or is not there.
fn with_first(bed: &Bed, rules: &[(&str, &str)], first: Option<&[(&str, &str)]>) -> String {
    let family = Family::V4;
    let service = service("web", "tcp", bed.vip_of(family), Mode::Nat, family).set("port", 80);
    let service = rules.iter().fold(service, |service, (key, value)| service.set(key, value));
    let first = first.map(|keys| {
        let real = Real::at(Bed::real_of(family, 0));
        keys.iter().fold(real, |real, (key, value)| real.set(key, value))
    });
    service.reals(first).reals(reals(family, 2).skip(1)).to_string()
}

/// Bytes a second with which the download takes 3 s.
const SHORT: &str = "3M";
/// Bytes a second with which it lasts longer than any deadline here.
const LONG: &str = "300k";

fn change(fixture: &Fixture, services: &str) -> Result<(), LabError> {
    let mut recipe = bare();
    recipe.more += services;
    fixture.director.reload(&recipe.text(&fixture.bed))
}

fn begin_download(fixture: &Fixture, rate: &str) -> Result<Download, LabError> {
    let sum = make_blob_of(&fixture.bed.reals[0], 9_000_000)?;
    // Round robin begins with the first.
    let blob = format!("{}/blob", url(fixture.bed.vip(), 80));
    let (client, rate) = (fixture.bed.client.clone(), rate.to_owned());
    let running = std::thread::spawn(move || download_sha256(&client, &blob, &rate));
    wait_until("the download to run", SOON, || {
        let shown =
            fixture.bed.reals[0].run("ss", &["-tnH", "state", "established", "sport = :80"])?;
        Ok((!shown.stdout.is_empty()).then_some(()))
    })?;
    Ok(Download { sum, running })
}

/// New connections, until none goes to the first real server any more.
fn only_the_second(fixture: &Fixture) -> Result<(), LabError> {
    let url = url(fixture.bed.vip(), 80);
    wait_until("new connections to go elsewhere", SOON, || {
        let asked: Result<Vec<String>, LabError> =
            (0..4).map(|_| curl(&fixture.bed.client, &url)).collect();
        Ok(asked.is_ok_and(|all| all.iter().all(|one| one == "Real Server 02")).then_some(()))
    })
}

fn must_be_whole(download: Download) -> Result<(), LabError> {
    let got = download.running.join().map_err(|_| LabError::Wrong("it panicked".into()))??;
    expect(got == download.sum, || format!("sent {}, got {got}", download.sum))
}

/// The download breaks off. (One that goes on to its end is no reset.)
fn must_break(download: Download) -> Result<(), LabError> {
    wait_until("the download to break", SOON, || Ok(download.running.is_finished().then_some(())))?;
    let ended = download.running.join().map_err(|_| LabError::Wrong("it panicked".into()))?;
    let said = format!("{ended:?}");
    expect(said.contains("curl: (56)"), || format!("not a reset: {said}"))
}

macro_rules! changes {
    ($($test:ident: $rules:expr, $then:expr, $rate:expr, $end:ident;)+) => {
        $(
            #[test]
            fn $test() {
                let before = |bed: &Bed| with_first(bed, &$rules, Some(&[]));
                on_dual(here!($test), Setup::usual(), Mode::Nat, before, |fixture| {
                    let download = begin_download(fixture, $rate)?;
                    change(fixture, &with_first(&fixture.bed, &$rules, $then))?;
                    only_the_second(fixture)?;
                    $end(download)
                });
            }
        )+
    };
}

changes! {
    drained_sessions_live_on: [], Some(&[("weight", "0")]), SHORT, must_be_whole;
    removed_sessions_live_on: [("on_removed", "keep")], None, SHORT, must_be_whole;
    removed_sessions_are_reset: [("on_removed", "reset")], None, LONG, must_break;
    removed_sessions_are_rescheduled: [("on_removed", "reschedule")], None, LONG, must_break;
    down_sessions_live_on: [("on_down", "keep")], Some(&[("down", "true")]), SHORT, must_be_whole;
    down_sessions_are_reset: [("on_down", "reset")], Some(&[("down", "true")]), LONG, must_break;
}
