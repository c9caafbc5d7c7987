//! Tunnels that FRR programs: what its EVPN learns by BGP of the far end reaches the director
//! through the kernel's forwarding entries (`e2e/src/bed/evpn.rs` draws the machines).

use sluice_e2e::bed::evpn::{Evpn, SERVER, SERVER_MAC, VIP};
use sluice_e2e::error::expect;
use sluice_e2e::load::curl;
use sluice_e2e::{Driver, LabError, wait_until};

use crate::fixture::{PREFIX, SOON, here, turn};

const FLOOD: &str = "00:00:00:00:00:00";

fn on(name: &str, driver: Driver, test: impl FnOnce(&mut Evpn) -> Result<(), LabError>) {
    let Some(_turn) = turn(name) else { return };
    let mut bed = Evpn::start(PREFIX, driver).unwrap_or_else(|error| panic!("{name}: {error}"));
    if let Err(error) = test(&mut bed) {
        let ask = |what| bed.director.sluice(&[what]).unwrap_or_default();
        let told = [ask("drops"), ask("ports"), bed.entries().unwrap_or_default()].join("\n");
        let daemons: String = bed.daemons.iter().flatten().map(|it| it.log_tail(10)).collect();
        panic!("{name}: {error}\n{}\n{told}\n--- FRR:\n{daemons}", bed.director.said(20));
    }
}

/// Waits until the kernel has, or has not, an entry of FRR's that sends this address to the other
/// machine.
fn entry(bed: &Evpn, mac: &str, there: bool) -> Result<(), LabError> {
    let what = format!("{mac} to be {}", if there { "told" } else { "withdrawn" });
    wait_until(&what, SOON, || {
        let entries = bed.entries()?;
        let is_its = |line: &str| line.starts_with(mac) && line.contains("dst 192.0.2.2");
        Ok((entries.lines().any(is_its) == there).then_some(()))
    })
}

/// Waits until the client is answered.
fn answered(bed: &Evpn) -> Result<(), LabError> {
    let url = format!("http://{VIP}/");
    let said = wait_until("an answer", SOON, || Ok(curl(&bed.client, &url).ok()))?;
    expect(said.trim() == "Real Server 20", || said)
}

/// Whether the client is answered within a second.
fn is_answered(bed: &Evpn) -> Result<bool, LabError> {
    let url = format!("http://{VIP}/");
    Ok(bed.client.run("curl", &["-sS", "--max-time", "1", &url])?.status.success())
}

/// How many packets the director has sent into the tunnel.
fn sent(bed: &Evpn) -> Result<u64, LabError> {
    let said = bed.director.ask("ports")?;
    let mut all = said["ports"].as_array().into_iter().flatten();
    let port = all.find(|port| port["name"] == "blue-vxlan");
    Ok(port.and_then(|port| port["tx"]["packets"].as_u64()).unwrap_or(0))
}

fn follow(bed: &mut Evpn) -> Result<(), LabError> {
    // Route type 3: where the far end is. Type 2: the server's Ethernet and IP address, once the
    // far machine has heard of it.
    entry(bed, FLOOD, true)?;
    wait_until("the server to be heard", SOON, || {
        let ping = bed.machines[1].run("ping", &["-c1", "-W1", SERVER])?;
        Ok(ping.status.success().then_some(()))
    })?;
    entry(bed, SERVER_MAC, true)?;
    wait_until("the server's neighbour entry of FRR", SOON, || {
        let shown = bed.machines[0].ip(&["neighbour", "show", SERVER, "dev", "brblue"])?.stdout;
        Ok((shown.contains(SERVER_MAC) && shown.contains("extern_learn")).then_some(()))
    })?;
    answered(bed)?;
    let before = sent(bed)?;
    expect(before >= 4, || format!("{before} packets went into the tunnel"))?;
    // The server goes: its address is withdrawn, and nothing is sent there any more.
    bed.plug_server(false)?;
    entry(bed, SERVER_MAC, false)?;
    wait_until("nothing to be sent there", SOON, || {
        let before = sent(bed)?;
        let answered = is_answered(bed)?;
        Ok((!answered && sent(bed)? == before).then_some(()))
    })?;
    bed.plug_server(true)?;
    bed.server.run("ping", &["-c3", "-W1", "10.0.0.2"])?;
    entry(bed, SERVER_MAC, true)?;
    answered(bed)?;
    // The far end's BGP dies: all that it told goes, the flood list as well.
    bed.speak(false)?;
    for mac in [SERVER_MAC, FLOOD] {
        entry(bed, mac, false)?;
    }
    expect(!is_answered(bed)?, || "without a tunnel there was an answer".to_owned())?;
    bed.speak(true)?;
    for mac in [SERVER_MAC, FLOOD] {
        entry(bed, mac, true)?;
    }
    answered(bed)
}

#[test]
fn frr_programs_the_tunnel() {
    on(here!(frr_programs_the_tunnel), Driver::AfPacket, follow);
}

#[test]
fn frr_programs_the_tunnel_by_af_xdp() {
    on(here!(frr_programs_the_tunnel_by_af_xdp), Driver::AfXdp, follow);
}
