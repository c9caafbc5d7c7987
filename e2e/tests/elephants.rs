//! One flow over several workers: in order and whole, shown by the API, begun and ended while it
//! runs.

use std::time::Duration;

use serde_json::Value;
use sluice_e2e::error::expect;
use sluice_e2e::family::url;
use sluice_e2e::web::{ECHO_PORT, TOLD_PORT, make_blob_of};
use sluice_e2e::{Bed, Director, Driver, Family, LabError, Mode, wait_until};

use crate::dual_stack::{on_dual, reals, service};
use crate::fixture::{Fixture, SOON, Setup, here, on, on_bed};

const PORT: &str = "40000";
/// Of the service whose real server learns its client.
const TOLD_VIP_PORT: u16 = 81;

#[test]
fn numbered_datagrams_stay_in_order() {
    let setup = Setup::new(Driver::AfXdp, 2);
    on(here!(numbered_datagrams_stay_in_order), setup, datagrams);
}

#[test]
fn a_stream_is_not_reordered() {
    on(here!(a_stream_is_not_reordered), Setup::new(Driver::AfXdp, 2), stream);
}

/// A download from a real server that learns its client by a PROXY header.
#[test]
fn a_proxied_stream_is_spread_whole() {
    let services = |bed: &Bed| {
        service("told", "tcp", bed.vip(), Mode::Fnat, Family::V4)
            .set("port", TOLD_VIP_PORT)
            .set("client_address", "proxy_v2")
            .reals(reals(Family::V4, 1).map(|real| real.set("port", TOLD_PORT)))
            .to_string()
    };
    let setup = Setup::new(Driver::AfXdp, 2);
    on_dual(here!(a_proxied_stream_is_spread_whole), setup, Mode::Fnat, services, proxied);
}

/// By thresholds: spread after two seconds above, gathered in when it calms down.
#[test]
fn a_flow_above_the_threshold_is_spread_by_itself() {
    let mut setup = Setup::new(Driver::AfXdp, 2);
    setup.recipe.more = "[elephants]\nmode = \"spread\"\npackets_per_s = 500\nmax_flows = 1\n\
                         leave_after_s = 2\n"
        .to_owned();
    on(here!(a_flow_above_the_threshold_is_spread_by_itself), setup, by_policy);
}

/// A NIC with several queues is given a rule for each flow that is spread, until it is spread no
/// more. There is no NIC here: `net_failsafe` keeps rules for the device to come, so what one does
/// with packets is not shown.
#[test]
fn a_nic_gets_a_rule_for_a_spread_flow() {
    const NIC: &str = "\n[[port]]\nname = \"nic\"\nqueues = 2\n\
        device = \"dpdk:net_failsafe0,mac=02:00:00:00:00:01,exec(true)\"\n";
    on_bed(
        here!(a_nic_gets_a_rule_for_a_spread_flow),
        Setup::new(Driver::AfXdp, 2),
        |bed, recipe| {
            let text = format!("{}{NIC}", recipe.text(bed));
            Ok((Director::start(bed, &text)?, recipe))
        },
        redirected,
    );
}

#[test]
fn one_worker_refuses_to_spread() {
    on(here!(one_worker_refuses_to_spread), Setup::usual(), |fixture| {
        let error = pin(fixture, "pin", "udp", ECHO_PORT, "inbound").expect_err("refused");
        expect(error.to_string().contains("no other worker"), || error.to_string())
    });
}

/// Pins or unpins a flow of the client.
fn pin(
    fixture: &Fixture,
    how: &str,
    protocol: &str,
    port: u16,
    direction: &str,
) -> Result<Value, LabError> {
    let client = format!("{}:{PORT}", fixture.bed.client_address());
    let server = fixture.server(port);
    let words = ["elephants", how, protocol, &client, &server, "--direction", direction, "--json"];
    read(&fixture.director.sluice(&words)?)
}

fn read(text: &str) -> Result<Value, LabError> {
    serde_json::from_str(text).map_err(|_| LabError::Unreadable {
        what: "`sluice elephants`".to_owned(),
        text: text.to_owned(),
    })
}

/// The flows that are spread.
fn spread(fixture: &Fixture) -> Result<Vec<Value>, LabError> {
    let said = read(&fixture.director.sluice(&["elephants", "--json"])?)?;
    Ok(said["spread"].as_array().cloned().unwrap_or_default())
}

/// Waits until each of so many flows has so many packets dealt.
fn wait_until_dealt(fixture: &Fixture, flows: usize, packets: u64) -> Result<(), LabError> {
    wait_until("packets to be dealt", SOON, || {
        let all = spread(fixture)?;
        let dealt = |flow: &&Value| flow["dealt"].as_u64().unwrap_or(0) >= packets;
        Ok((all.len() == flows && all.iter().filter(dealt).count() == flows).then_some(()))
    })
}

fn wait_until_none(fixture: &Fixture) -> Result<(), LabError> {
    wait_until("flows to be gathered in", SOON, || Ok(spread(fixture)?.is_empty().then_some(())))
}

fn events(fixture: &Fixture) -> Result<Vec<String>, LabError> {
    let said = read(&fixture.director.sluice(&["events", "--json"])?)?;
    let events = said["events"].as_array().cloned().unwrap_or_default();
    let reason = |event: &Value| event["reason"].as_str().unwrap_or_default().to_owned();
    Ok(events.iter().map(reason).collect())
}

/// Both directions are pinned, unpinned and pinned again while datagrams flow.
fn datagrams(fixture: &mut Fixture) -> Result<(), LabError> {
    let script = format!("{}/peers/numbered.py", env!("CARGO_MANIFEST_DIR"));
    let (vip, echo) = (fixture.bed.vip(), ECHO_PORT.to_string());
    let args = [&*script, PORT, vip, &echo, "8"];
    let mut numbers = fixture.bed.client.start("numbers", "python3", &args)?;
    numbers.wait_for_words("open", SOON)?;
    for packets in [2000, 500] {
        pin(fixture, "pin", "udp", ECHO_PORT, "inbound")?;
        let said = pin(fixture, "pin", "udp", ECHO_PORT, "outbound")?;
        expect(said["spread"].as_array().is_some_and(|all| all.len() == 2), || said.to_string())?;
        wait_until_dealt(fixture, 2, packets)?;
        let all = spread(fixture)?;
        let late = all.iter().any(|flow| flow["late"] != 0 || flow["pinned"] != true);
        expect(!late, || format!("{all:?}"))?;
        // Which queue an AF_XDP port receives a flow by is the kernel's business.
        let software = |flow: &Value| {
            let why = flow["redirect_reason"].as_str().unwrap_or_default();
            flow["redirect"] == "software" && why.contains("AF_XDP")
        };
        expect(all.iter().all(software), || format!("{all:?}"))?;
        pin(fixture, "unpin", "udp", ECHO_PORT, "inbound")?;
        pin(fixture, "unpin", "udp", ECHO_PORT, "outbound")?;
        wait_until_none(fixture)?;
    }
    pin(fixture, "pin", "udp", ECHO_PORT, "inbound")?;
    numbers.wait(Duration::from_secs(40))?;
    let log = numbers.log();
    let line = log.lines().last().unwrap_or_default();
    let said = read(line)?;
    expect(said["behind"] == 0 && said["sent"] == said["came"] && said["sent"] != 0, || log)?;
    let told = events(fixture)?;
    let (began, ended) = ("is spread by worker", "is not spread any more: as requested");
    for (words, times) in [(began, 5), (ended, 4)] {
        let count = told.iter().filter(|reason| reason.contains(words)).count();
        expect(count == times, || format!("{words}: {count} of {told:?}"))?;
    }
    Ok(())
}

/// What the NIC's rules for flows match, and the queues that they name.
fn redirects(fixture: &Fixture) -> Result<Vec<(String, Value)>, LabError> {
    let said = read(&fixture.director.sluice(&["ports", "--rules", "--json"])?)?;
    let ports = said["ports"].as_array().into_iter().flatten();
    let rules = ports.filter(|port| port["port"] == "nic");
    let rules = rules.flat_map(|port| port["rules"].as_array().into_iter().flatten());
    let flows = rules.filter(|rule| rule["kind"] == "elephant" && rule["backend"] == "rte_flow");
    let shown = |rule: &Value| {
        (rule["matches"].as_str().unwrap_or_default().to_owned(), rule["queues"].clone())
    };
    Ok(flows.map(shown).collect())
}

/// Both directions of a session, each by the addresses that its packets arrive with.
fn redirected(fixture: &mut Fixture) -> Result<(), LabError> {
    let script = format!("{}/peers/numbered.py", env!("CARGO_MANIFEST_DIR"));
    let (vip, echo) = (fixture.bed.vip().to_owned(), ECHO_PORT.to_string());
    let args = [&*script, PORT, &vip, &echo, "10"];
    let mut numbers = fixture.bed.client.start("numbers", "python3", &args)?;
    numbers.wait_for_words("open", SOON)?;
    pin(fixture, "pin", "udp", ECHO_PORT, "inbound")?;
    pin(fixture, "pin", "udp", ECHO_PORT, "outbound")?;
    let flows = wait_until("a redirect by hardware", SOON, || {
        let by_nic = |flow: &Value| flow["redirect"] == "hardware";
        Ok(Some(spread(fixture)?).filter(|all| all.len() == 2 && all.iter().all(by_nic)))
    })?;
    let owner = serde_json::json!([flows[0]["worker"]]);
    let client = fixture.bed.client_address();
    let inbound = format!("udp from {client}:{PORT} to {vip}:{echo}");
    let made = redirects(fixture)?;
    let outbound = |matches: &str| {
        matches.starts_with("udp from 192.0.2.1") && matches.contains(" to 192.0.2.10:")
    };
    let is_in = made.iter().any(|(matches, queues)| *matches == inbound && *queues == owner);
    let is_out = made.iter().any(|(matches, queues)| outbound(matches) && *queues == owner);
    expect(made.len() == 2 && is_in && is_out, || format!("{made:?}"))?;
    let text = fixture.director.sluice(&["elephants"])?;
    expect(text.contains("hardware"), || text.clone())?;
    pin(fixture, "unpin", "udp", ECHO_PORT, "outbound")?;
    wait_until("a rule to go", SOON, || {
        Ok((redirects(fixture)? == [(inbound.clone(), owner.clone())]).then_some(()))
    })?;
    pin(fixture, "unpin", "udp", ECHO_PORT, "inbound")?;
    wait_until("the last rule to go", SOON, || Ok(redirects(fixture)?.is_empty().then_some(())))?;
    numbers.wait(Duration::from_secs(40))?;
    let log = numbers.log();
    let said = read(log.lines().last().unwrap_or_default())?;
    expect(said["behind"] == 0 && said["sent"] == said["came"] && said["sent"] != 0, || log)
}

/// Datagrams for some seconds, and then none, while their session goes on.
fn by_policy(fixture: &mut Fixture) -> Result<(), LabError> {
    let script = format!("{}/peers/numbered.py", env!("CARGO_MANIFEST_DIR"));
    let (vip, echo) = (fixture.bed.vip(), ECHO_PORT.to_string());
    let args = [&*script, PORT, vip, &echo, "10"];
    let mut numbers = fixture.bed.client.start("numbers", "python3", &args)?;
    // One of the two directions: `max_flows`.
    wait_until_dealt(fixture, 1, 500)?;
    let all = spread(fixture)?;
    let by_policy = all.len() == 1 && all[0]["pinned"] == false && all[0]["late"] == 0;
    expect(by_policy, || format!("{all:?}"))?;
    numbers.wait(Duration::from_secs(40))?;
    let log = numbers.log();
    let said = read(log.lines().last().unwrap_or_default())?;
    expect(said["behind"] == 0 && said["sent"] == said["came"] && said["sent"] != 0, || log)?;
    wait_until_none(fixture)?;
    // What was dealt stays counted.
    wait_until("the counter to tell", SOON, || {
        let page = fixture.director.sluice(&["metrics"])?;
        let of = |line: &&str| line.starts_with("sluice_worker_spread_packets_total{");
        let counts = page.lines().filter(of).filter_map(|line| line.rsplit_once(' '));
        let sum: f64 = counts.filter_map(|(_, count)| count.parse::<f64>().ok()).sum();
        Ok((sum >= 500.0).then_some(()))
    })?;
    let told = events(fixture)?;
    for words in ["is spread by worker", "is not spread any more"] {
        let count = told.iter().filter(|reason| reason.contains(words)).count();
        expect(count >= 1, || format!("{words}: {told:?}"))?;
    }
    Ok(())
}

/// A download of iperf3's and its acknowledgements, both spread: neither kernel sees a packet out
/// of order.
fn stream(fixture: &mut Fixture) -> Result<(), LabError> {
    let before = reordered(fixture)?;
    let args = ["-c", fixture.bed.vip(), "-t", "6", "--cport", PORT, "-J"];
    let mut iperf3 = fixture.bed.client.start("iperf3", "iperf3", &args)?;
    wait_until("the stream's session", SOON, || {
        let sessions = fixture.sessions(&["--state", "established", "--protocol", "tcp"])?;
        let ours = |session: &&Value| {
            session["client"].as_str().is_some_and(|client| client.ends_with(":40000"))
        };
        Ok(sessions.iter().find(ours).map(|_| ()))
    })?;
    pin(fixture, "pin", "tcp", 5201, "inbound")?;
    pin(fixture, "pin", "tcp", 5201, "outbound")?;
    wait_until_dealt(fixture, 2, 200)?;
    iperf3.wait(Duration::from_secs(40))?;
    // Its FIN ends both.
    wait_until_none(fixture)?;
    let said = read(&iperf3.log())?;
    let bytes = said["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
    expect(bytes > 1_000_000, || format!("{bytes} bytes"))?;
    let after = reordered(fixture)?;
    expect(before == after, || format!("reordered: {before:?}, then {after:?}"))?;
    let ended = events(fixture)?.into_iter().filter(|reason| reason.contains("has ended")).count();
    expect(ended == 2, || format!("{ended} flows ended with the session"))
}

/// Both directions of a download are spread while it runs. The file arrives whole, nobody sees a
/// packet out of order, and the real server knows the client on the same connection.
fn proxied(fixture: &mut Fixture) -> Result<(), LabError> {
    let before = reordered(fixture)?;
    let sum = make_blob_of(&fixture.bed.reals[0], 24_000_000)?;
    let url = url(fixture.bed.vip(), TOLD_VIP_PORT);
    let file = fixture.bed.client.dir().join("told-blob").display().to_string();
    let blob = format!("{url}/blob");
    let mut args = vec!["-sS", "--fail", "--max-time", "60", "--local-port", PORT];
    args.extend(["--limit-rate", "4M", "-o", &file, &blob, "-o", "-", &url]);
    let mut curl = fixture.bed.client.start("curl", "curl", &args)?;
    // Refused as long as the real server has not acknowledged the header.
    wait_until("the flow to be spread", SOON, || {
        Ok(pin(fixture, "pin", "tcp", TOLD_VIP_PORT, "inbound").ok())
    })?;
    pin(fixture, "pin", "tcp", TOLD_VIP_PORT, "outbound")?;
    wait_until_dealt(fixture, 2, 200)?;
    curl.wait(Duration::from_secs(60))?;
    wait_until_none(fixture)?;
    let told = curl.log();
    let own = format!("{} {PORT}", fixture.bed.client_address());
    expect(told.trim() == own, || format!("told {told:?}, the client is {own}"))?;
    let script = "sha256sum < \"$1\"";
    let ran = fixture.bed.client.run("sh", &["-c", script, "sh", &file])?.ok()?;
    expect(ran.stdout.starts_with(&sum), || format!("sent {sum}, got {}", ran.stdout))?;
    let after = reordered(fixture)?;
    expect(before == after, || format!("reordered: {before:?}, then {after:?}"))
}

/// What the kernels at both ends have counted of packets out of order.
fn reordered(fixture: &Fixture) -> Result<Vec<u64>, LabError> {
    const LOOK: &str = "nstat -asz TcpExtTCPSACKReorder | \
        awk '/^Tcp/ { sum += $2 } END { print sum }'";
    let ends = [&fixture.bed.client, &fixture.bed.reals[0]].into_iter();
    let counted = ends.map(|space| {
        let text = space.run("sh", &["-c", LOOK])?.ok()?.stdout;
        text.trim().parse().map_err(|_| LabError::Unreadable { what: "nstat".to_owned(), text })
    });
    counted.collect()
}
