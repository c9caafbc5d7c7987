//! One flow over several workers: in order and whole, shown by the API, begun and ended while it
//! runs.

mod modes;
mod oversubscribed;

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use sluice_e2e::error::expect;
use sluice_e2e::family::url;
use sluice_e2e::web::{ECHO_PORT, TOLD_PORT, make_blob_of};
use sluice_e2e::{Bed, Director, Driver, Family, LabError, Mode, Running, wait_until};

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

/// Waits until both directions of the client's session were seen in a second.
fn wait_until_seen(fixture: &Fixture) -> Result<(), LabError> {
    wait_until("the session to be seen", SOON, || {
        let said = read(&fixture.director.sluice(&["elephants", "--json"])?)?;
        let mut all = said["elephants"].as_array().into_iter().flatten();
        let is_seen = |elephant: &Value| {
            let packets = |way: &str| elephant[way]["packets_per_s"].as_u64().unwrap_or(0);
            let client = elephant["session"]["client"].as_str().unwrap_or_default();
            client.ends_with(&format!(":{PORT}"))
                && packets("inbound") > 0
                && packets("outbound") > 0
        };
        Ok(all.any(is_seen).then_some(()))
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

/// Numbered datagrams of the client to the echo service, and back.
struct Numbers(Running);

impl Numbers {
    /// Sends until it is told to end: how long the rest of a test takes is the machine's business.
    fn start(fixture: &Fixture) -> Result<Self, LabError> {
        let script = format!("{}/peers/numbered.py", env!("CARGO_MANIFEST_DIR"));
        let (vip, echo) = (fixture.bed.vip(), ECHO_PORT.to_string());
        let args = [&*script, PORT, vip, &echo, "600"];
        let mut running = fixture.bed.client.start("numbers", "python3", &args)?;
        running.wait_for_words("open", SOON)?;
        Ok(Self(running))
    }

    /// No more are sent; all came back, in order. Gives what it says.
    fn all_came(mut self) -> Result<Value, LabError> {
        self.0.signal(Signal::TERM);
        self.0.wait(SOON)?;
        let log = self.0.log();
        let said = read(log.lines().last().unwrap_or_default())?;
        let right = said["behind"] == 0 && said["sent"] == said["came"] && said["sent"] != 0;
        expect(right, || log)?;
        Ok(said)
    }
}

/// Both directions are pinned, unpinned and pinned again while datagrams flow.
fn datagrams(fixture: &mut Fixture) -> Result<(), LabError> {
    let numbers = Numbers::start(fixture)?;
    wait_until_seen(fixture)?;
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
        gains(fixture)?;
        pin(fixture, "unpin", "udp", ECHO_PORT, "inbound")?;
        pin(fixture, "unpin", "udp", ECHO_PORT, "outbound")?;
        wait_until_none(fixture)?;
    }
    pin(fixture, "pin", "udp", ECHO_PORT, "inbound")?;
    wait_until_dealt(fixture, 1, 200)?;
    numbers.all_came()?;
    let told = events(fixture)?;
    let (began, ended) = ("is spread by worker", "is not spread any more: as requested");
    for (words, times) in [(began, 5), (ended, 4)] {
        let count = told.iter().filter(|reason| reason.contains(words)).count();
        expect(count == times, || format!("{words}: {count} of {told:?}"))?;
    }
    Ok(())
}

/// Each of two flows tells its rate of before and of now, and how busy its owner was and is.
fn gains(fixture: &Fixture) -> Result<(), LabError> {
    let flows = wait_until("the rates of before and now", SOON, || {
        let is_known = |flow: &Value| flow["before"].is_object() && flow["now"].is_object();
        Ok(Some(spread(fixture)?).filter(|all| all.len() == 2 && all.iter().all(is_known)))
    })?;
    for flow in &flows {
        for load in [&flow["before"], &flow["now"]] {
            let of = |name: &str| load[name].as_f64().unwrap_or(-1.0);
            let (packets, bytes) = (of("packets_per_s"), of("bytes_per_s"));
            // Each of the datagrams is 232 bytes of IPv4, and the owner does something.
            let right = packets > 0.0
                && (bytes / packets - 232.0).abs() < 1.0
                && (0.0..=1.0).contains(&of("owner_busy_share"));
            expect(right, || flow.to_string())?;
        }
        let busy = |flow: &Value| flow["now"]["owner_busy_share"].as_f64().unwrap_or(0.0) > 0.0;
        expect(busy(flow), || flow.to_string())?;
    }
    let text = fixture.director.sluice(&["elephants"])?;
    let heads = ["PACKETS/S BEFORE", "BITS/S NOW", "OWNER BUSY NOW"];
    expect(heads.iter().all(|head| text.contains(head)), || text.clone())
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
    let numbers = Numbers::start(fixture)?;
    pin(fixture, "pin", "udp", ECHO_PORT, "inbound")?;
    pin(fixture, "pin", "udp", ECHO_PORT, "outbound")?;
    let flows = wait_until("a redirect by hardware", SOON, || {
        let by_nic = |flow: &Value| flow["redirect"] == "hardware";
        Ok(Some(spread(fixture)?).filter(|all| all.len() == 2 && all.iter().all(by_nic)))
    })?;
    let owner = serde_json::json!([flows[0]["worker"]]);
    let client = fixture.bed.client_address();
    let inbound = format!("udp from {client}:{PORT} to {}", fixture.server(ECHO_PORT));
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
    numbers.all_came().map(drop)
}

/// Datagrams, and then none, while their session goes on.
fn by_policy(fixture: &mut Fixture) -> Result<(), LabError> {
    let numbers = Numbers::start(fixture)?;
    // One of the two directions: `max_flows`.
    wait_until_dealt(fixture, 1, 500)?;
    let all = spread(fixture)?;
    let by_policy = all.len() == 1 && all[0]["pinned"] == false && all[0]["late"] == 0;
    expect(by_policy, || format!("{all:?}"))?;
    numbers.all_came()?;
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
    let before = Moment::of(fixture)?;
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
    Moment::of(fixture)?.since(&before).is_in_order()?;
    let ended = events(fixture)?.into_iter().filter(|reason| reason.contains("has ended")).count();
    expect(ended == 2, || format!("{ended} flows ended with the session"))
}

/// Both directions of a download are spread while it runs. The file arrives whole, nobody sees a
/// packet out of order, and the real server knows the client on the same connection.
fn proxied(fixture: &mut Fixture) -> Result<(), LabError> {
    let before = Moment::of(fixture)?;
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
    Moment::of(fixture)?.since(&before).is_in_order()
}

/// What the kernels at both ends of streams have counted: the client's and a real server's.
#[derive(Debug)]
struct Moment([u64; COUNTED.len()]);

/// Segments seen out of order by what was acknowledged; segments that were kept since others before
/// them were missing, each answered by a duplicate acknowledgement; doubled segments that the other
/// end told of; segments sent again.
const COUNTED: [&str; 4] =
    ["TcpExtTCPSACKReorder", "TcpExtTCPOFOQueue", "TcpExtTCPDSACKRecv", "TcpRetransSegs"];

impl Moment {
    fn of(fixture: &Fixture) -> Result<Self, LabError> {
        let mut sums = [0; COUNTED.len()];
        for space in [&fixture.bed.client, &fixture.bed.reals[0]] {
            let text = space.run("nstat", &["-asz"])?.ok()?.stdout;
            for (sum, name) in sums.iter_mut().zip(COUNTED) {
                let words = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
                let count = words
                    .filter(|words| words.first() == Some(&name))
                    .find_map(|words| words.get(1).and_then(|count| count.parse::<u64>().ok()));
                let missing = || LabError::Unreadable { what: name.to_owned(), text: text.clone() };
                *sum += count.ok_or_else(missing)?;
            }
        }
        Ok(Self(sums))
    }

    fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] - before.0[at]))
    }

    /// Nothing came out of order. What is lost makes the segments behind it wait, too, so those are
    /// a fault only if nothing had to be sent again; what only the sender believed lost (a probe of
    /// its for the last segment) comes twice and makes nobody wait.
    fn is_in_order(&self) -> Result<(), LabError> {
        let Self([reordered, waited, doubled, again]) = *self;
        let right = reordered == 0 && (waited == 0 || again > doubled);
        expect(right, || format!("{COUNTED:?}: {:?}", self.0))
    }
}
