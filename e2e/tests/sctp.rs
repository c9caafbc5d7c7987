//! SCTP through the director by every mode that has it: associations of a real stack at both ends,
//! the kernel's or, where that has none, FreeBSD's in user space (usrsctp over raw sockets).
//!
//! Both stacks refuse a packet whose CRC32c is wrong, and tshark computes it once more. They are
//! bound to one address each: an association of several would have ways past the service.

use sluice_e2e::bed::REALS;
use sluice_e2e::capture::{Capture, counts_with};
use sluice_e2e::error::expect;
use sluice_e2e::web::start_script;
use sluice_e2e::{Bed, Family, LabError, Mode, Real, wait_until};

use crate::dual_stack::{on_modes, service};
use crate::fixture::{Fixture, PYTHON, SOON, script};

/// The service's port, and another one for real servers by NAT, which makes a new checksum.
const PORT: u16 = 5060;
const REAL_PORT: u16 = 6050;
/// Associations in turn, and messages of each.
const ASSOCIATIONS: usize = 6;
const MESSAGES: &str = "40";

on_modes! {
    services, associate;
    nat_ipv4: AfXdp, 1, Nat, V4, V4;
    nat_ipv6: AfXdp, 1, Nat, V6, V6;
    dr_ipv4: AfXdp, 1, Dr, V4, V4;
    dr_ipv6: AfXdp, 1, Dr, V6, V6;
    ipip_ipv4: AfXdp, 1, Ipip, V4, V4;
    ipip_ipv6: AfXdp, 1, Ipip, V6, V6;
    ipip_ipv4_in_ipv6: AfXdp, 1, Ipip, V4, V6;
    ipip_ipv6_in_ipv4: AfXdp, 1, Ipip, V6, V4;
    nat_ipv4_two_workers: AfXdp, 2, Nat, V4, V4;
    nat_ipv6_by_packet_sockets: AfPacket, 1, Nat, V6, V6;
}

fn services(bed: &Bed, mode: Mode, outer: Family, inner: Family) -> String {
    let reals = (0..REALS).map(|index| Real::at(Bed::real_of(inner, index)));
    let reals =
        reals.map(|real| if mode == Mode::Nat { real.set("port", REAL_PORT) } else { real });
    service("calls", "sctp", bed.vip_of(outer), mode, inner)
        .set("port", PORT)
        .reals(reals)
        .to_string()
}

/// Neither stack answers from an address of the loopback: the virtual ones go to a bridge without
/// ports, which is as quiet, and answers to the client's network take them as their source.
fn quiet_vip(fixture: &Fixture, family: Family) -> Result<(), LabError> {
    let vip = fixture.bed.vip_of(family);
    let whole = format!("{vip}/{}", family.bits());
    let (net, via) = match family {
        Family::V4 => ("198.51.100.0/24", "192.0.2.48"),
        Family::V6 => ("2001:db8:1::/64", "2001:db8:2::48"),
    };
    for real in &fixture.bed.reals {
        real.ip(&["address", "delete", &whole, "dev", "lo"])?;
        real.ip(&["link", "add", "quiet", "type", "bridge"])?;
        real.ip(&["link", "set", "dev", "quiet", "up"])?;
        real.address("quiet", &whole)?;
        real.ip(&[family.flag(), "route", "replace", net, "via", via, "src", vip])?;
    }
    Ok(())
}

fn associate(fixture: &mut Fixture, mode: Mode, family: Family) -> Result<(), LabError> {
    let vip = fixture.bed.vip_of(family);
    if mode.answers_past() {
        quiet_vip(fixture, family)?;
    }
    for index in 0..REALS {
        let real = fixture.bed.reals[index].clone();
        let (own, port) = match mode.answers_past() {
            true => (vip.to_owned(), PORT),
            false => (Bed::real_of(family, index), REAL_PORT),
        };
        let args = ["echo", &own, &port.to_string()];
        fixture.bed.peers.push(start_script(&real, &format!("sctp{index}"), "sctp.py", &args)?);
    }
    // The first packets of all may find neighbours unresolved, and addresses of a twin not there.
    for _ in 0..REALS {
        wait_until("an association", SOON, || Ok(probe(fixture, mode, family).ok()))?;
    }
    let captures = [(&fixture.bed.client, "client"), (&fixture.bed.reals[0], "real")]
        .map(|(space, name)| Capture::start(space, "eth0", name));
    let [client_side, real_side] = captures;
    let (client_side, real_side) = (client_side?, real_side?);
    let before = counted(fixture)?;
    for _ in 0..ASSOCIATIONS {
        probe(fixture, mode, family)?;
    }
    for (side, file) in [("client", client_side.stop()?), ("real server", real_side.stop()?)] {
        let filters = [
            "sctp.checksum.status == 0",
            "sctp.checksum.status == 1",
            "sctp.chunk_type == 6",
            "sctp.chunk_type == 1",
            "sctp.chunk_type == 14",
        ];
        let [bad, good, aborts, opened, closed] =
            counts_with(&file, &["-o", "sctp.checksum:CRC 32c"], filters)?;
        let right = bad == 0 && good > 80 && aborts == 0 && opened > 0 && closed == opened;
        expect(right, || {
            let ends = format!("{opened} opened, {closed} closed, {aborts} aborted");
            format!("at the {side}: {good} good, {bad} bad, {ends}")
        })?;
    }
    let after = counted(fixture)?;
    let gained: Vec<u64> =
        before.iter().zip(&after).map(|(before, after)| after - before).collect();
    let all = gained.iter().sum::<u64>() == ASSOCIATIONS as u64;
    let shared = fixture.bed.workers > 1 || gained.iter().all(|own| *own == 2);
    expect(all && shared, || format!("sessions of each real server: {gained:?}"))?;
    // An association that was shut down leaves nothing behind.
    wait_until("sessions to end", SOON, || {
        Ok(fixture.sessions(&["--protocol", "sctp"])?.is_empty().then_some(()))
    })
}

/// Sessions that each real server has had.
fn counted(fixture: &Fixture) -> Result<Vec<u64>, LabError> {
    let services = fixture.director.ask("services")?;
    let reals = services["services"][0]["reals"].as_array().cloned().unwrap_or_default();
    let counts: Vec<u64> = reals.iter().filter_map(|one| one["sessions_total"].as_u64()).collect();
    expect(counts.len() == REALS, || services.to_string())?;
    Ok(counts)
}

/// An association whose messages all come back; small ones where an outer header has to fit too.
fn probe(fixture: &Fixture, mode: Mode, family: Family) -> Result<(), LabError> {
    let size = if mode.is_tunnel() { "1200" } else { "6000" };
    let (own, vip) = (fixture.bed.client_of(family), fixture.bed.vip_of(family));
    let (file, port) = (script("sctp.py"), PORT.to_string());
    let args = [&*file, "probe", own, vip, &port, MESSAGES, size];
    let said = fixture.bed.client.run(PYTHON, &args)?.ok()?.stdout;
    expect(said.trim() == format!("answered {MESSAGES}"), || said)
}
