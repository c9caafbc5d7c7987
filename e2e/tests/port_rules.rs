//! Steering rules of ports, as `sluice ports --rules` has them: where each is, what it counted, and
//! that a NIC's rules follow the configuration.
//!
//! There is no NIC here. DPDK's `net_failsafe` without a device below takes exact rules and keeps
//! them for the device to come; `net_tap` counts nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sluice_e2e::error::expect;
use sluice_e2e::recipe::EXTRA;
use sluice_e2e::{Director, Driver, LabError, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on, on_bed};

/// The rules of a port: all that is said of it.
fn port(fixture: &Fixture, name: &str) -> Result<Value, LabError> {
    let text = fixture.director.sluice(&["ports", "--rules", "--json"])?;
    let said: Value = serde_json::from_str(&text).unwrap_or_default();
    let found = said["ports"].as_array().into_iter().flatten().find(|it| it["port"] == name);
    found.cloned().ok_or_else(|| LabError::Unreadable { what: format!("rules of {name}"), text })
}

/// The rule with these words.
fn rule(port: &Value, matches: &str) -> Option<Value> {
    let mut rules = port["rules"].as_array().into_iter().flatten();
    rules.find(|rule| rule["matches"] == matches).cloned()
}

fn web(fixture: &Fixture) -> String {
    format!("tcp to {}:80", fixture.bed.vip())
}

/// What a rule has counted.
fn count(fixture: &Fixture, name: &str, matches: &str) -> Result<u64, LabError> {
    let port = port(fixture, name)?;
    let counted = rule(&port, matches).and_then(|rule| rule["hits"].as_u64());
    counted.ok_or_else(|| LabError::Machine(format!("no hits of {matches}: {port}")))
}

/// The web service's hits at a port, after real requests; its rule, too.
fn hit(fixture: &Fixture, name: &str, by: &str) -> Result<Value, LabError> {
    fixture.answers(5)?;
    let found = rule(&port(fixture, name)?, &web(fixture));
    let found = found.ok_or_else(|| LabError::Machine("no rule for the service".to_owned()))?;
    // Each connection has at least SYN, ACK, request and FIN.
    let hits = found["hits"].as_u64().unwrap_or(0);
    expect(hits >= 20 && found["hits_by"] == by, || found.to_string())?;
    Ok(found)
}

#[test]
fn rules_of_an_af_xdp_port() {
    on(here!(rules_of_an_af_xdp_port), Setup::usual(), |fixture| {
        let rule_of_web = hit(fixture, "front", "rule")?;
        expect(rule_of_web["backend"] == "xdp", || rule_of_web.to_string())?;
        expect(rule_of_web["reason"].is_null(), || rule_of_web.to_string())?;
        let back = port(fixture, "back")?;
        let local = rule(&back, "tcp to 192.0.2.10:1024-65535");
        expect(local.is_some_and(|it| it["kind"] == "local"), || back.to_string())?;
        let text = fixture.director.sluice(&["ports", "--rules"])?;
        let line = text.lines().find(|line| line.contains(&web(fixture)));
        expect(line.is_some_and(|line| line.contains("xdp")), || text.clone())
    });
}

/// The program counts each packet for the rule that takes it and for no other, answers of real
/// servers for the pool's. A reload that keeps a rule keeps its count.
#[test]
fn an_af_xdp_port_counts_by_rule() {
    on(here!(an_af_xdp_port_counts_by_rule), Setup::usual(), |fixture| {
        let (vip, web) = (fixture.bed.vip().to_owned(), web(fixture));
        let other = format!("tcp to {vip}:{}", sluice_e2e::web::LINES_PORT);
        let (pool, udp) = ("tcp to 192.0.2.10:1024-65535", "udp to 192.0.2.10:1024-65535");
        let hits = |fixture: &Fixture| -> Result<[u64; 4], LabError> {
            let of = |name: &str, matches: &str| count(fixture, name, matches);
            Ok([of("front", &web)?, of("front", &other)?, of("back", pool)?, of("back", udp)?])
        };
        expect(hits(fixture)? == [0; 4], || "counts before any packet".to_owned())?;
        fixture.answers(5)?;
        let [of_web, of_other, of_pool, of_udp] = hits(fixture)?;
        // Of each connection at least SYN, ACK, request and FIN; SYN+ACK, answer and FIN.
        let said = format!("{of_web} {of_other} {of_pool} {of_udp}");
        expect(of_web >= 20 && of_pool >= 15 && (of_other, of_udp) == (0, 0), || said)?;

        fixture.recipe.services.push(EXTRA);
        let text = fixture.recipe.text(&fixture.bed);
        fixture.director.reload(&text)?;
        let new = format!("tcp to {vip}:8080");
        wait_until("the new rule", SOON, || Ok(count(fixture, "front", &new).ok()))?;
        expect(count(fixture, "front", &new)? == 0, || "a new rule has a count".to_owned())?;
        expect(count(fixture, "front", &web)? == of_web, || "a count began anew".to_owned())?;
        sluice_e2e::load::curl(&fixture.bed.client, &format!("http://{vip}:8080/"))?;
        let (of_new, still) = (count(fixture, "front", &new)?, count(fixture, "front", &web)?);
        expect(of_new >= 4 && still == of_web, || format!("{of_new} {still} {of_web}"))
    });
}

#[test]
fn rules_of_an_af_packet_port() {
    let setup = Setup::new(Driver::AfPacket, 1);
    on(here!(rules_of_an_af_packet_port), setup, |fixture| {
        let rule_of_web = hit(fixture, "front", "service")?;
        expect(rule_of_web["backend"] == "software", || rule_of_web.to_string())?;
        let reason = rule_of_web["reason"].as_str().unwrap_or_default();
        expect(reason.contains("packet has no flow rules"), || reason.to_owned())
    });
}

/// Three more ports that are DPDK's, beside those of the bed.
const NICS: &str = "
[[port]]
name = \"nic\"
device = \"dpdk:net_failsafe0,mac=02:00:00:00:00:01,exec(true)\"
queues = 1

[[port]]
name = \"tap\"
device = \"dpdk:net_tap0,iface=sluiceflow0\"
queues = 1

[[port]]
name = \"off\"
device = \"dpdk:net_null0\"
queues = 1
flow_rules = false
";

/// Waits until a port's rules are as they should be.
fn until(fixture: &Fixture, what: &str, done: impl Fn(&Value) -> bool) -> Result<Value, LabError> {
    wait_until(what, SOON, || Ok(Some(port(fixture, "nic")?).filter(|port| done(port))))
}

fn backend(port: &Value, matches: &str) -> Option<String> {
    rule(port, matches)?["backend"].as_str().map(str::to_owned)
}

#[test]
fn rules_of_a_dpdk_port_follow_the_configuration() {
    on_bed(
        here!(rules_of_a_dpdk_port_follow_the_configuration),
        Setup::usual(),
        |bed, recipe| {
            let text = format!("{}{NICS}", recipe.text(bed));
            Ok((Director::start(bed, &text)?, recipe))
        },
        |fixture| {
            let (vip, web) = (fixture.bed.vip().to_owned(), web(fixture));
            let first = until(fixture, "rules to be made", |port| port["in_hardware"] == 5)?;
            let made = rule(&first, &web).unwrap_or_default();
            expect(made["backend"] == "rte_flow", || first.to_string())?;
            expect(made["queues"] == serde_json::json!([0]), || made.to_string())?;
            // What the driver is not asked for says why, and is looked up in software.
            let local = rule(&first, "udp to 192.0.2.10:1024-65535").unwrap_or_default();
            let reason = local["reason"].as_str().unwrap_or_default();
            expect(reason.contains("single ports"), || local.to_string())?;
            // With one queue, and no counter, a rule would do nothing.
            let tap = port(fixture, "tap")?;
            let of_tap = rule(&tap, &web).unwrap_or_default();
            let said = of_tap["reason"].as_str().unwrap_or_default();
            expect(said.starts_with("not needed: one queue"), || tap.to_string())?;
            let off = port(fixture, "off")?;
            let of_off = rule(&off, &web).unwrap_or_default();
            let said = of_off["reason"].as_str().unwrap_or_default();
            expect(said.contains("flow_rules"), || off.to_string())?;

            let text = fixture.recipe.text(&fixture.bed);
            let text = text.replace("port = 80\nmode", "port = 81\nmode");
            fixture.director.reload(&format!("{text}{NICS}"))?;
            let other = format!("tcp to {vip}:81");
            let second = until(fixture, "rules to follow", |port| {
                backend(port, &other).as_deref() == Some("rte_flow")
            })?;
            expect(rule(&second, &web).is_none(), || second.to_string())?;
            expect(second["in_hardware"] == 5 && second["stuck"] == 0, || second.to_string())?;
            let url = format!("http://{vip}:81/");
            sluice_e2e::load::curl(&fixture.bed.client, &url).map(|_| ())
        },
    );
}

/// What each driver is asked for is recorded as dpdk-testpmd takes it: its parser understands each
/// line, and `net_failsafe` without a device below has no objection.
#[test]
fn testpmd_understands_the_recorded_rules() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/rules/recorded");
    let mut all = 0;
    for file in fs::read_dir(recorded).expect("the recorded rules") {
        let path = file.expect("a file").path();
        let text = fs::read_to_string(&path).expect("its text");
        let wanted = text.lines().filter(|line| line.starts_with("flow validate ")).count();
        let mut testpmd = Command::new("timeout");
        testpmd.args(["60", "dpdk-testpmd", "--no-huge", "-m", "128", "--no-pci", "--no-shconf"]);
        testpmd.args(["--lcores", "0@0,1@0", "--vdev=net_failsafe0,exec(true)", "--", "-i"]);
        testpmd.args(["--rxq=2", "--txq=2", "--total-num-mbufs=2048", "--cmdline-file"]);
        let ran = sluice_e2e::process::run(testpmd.arg(&path)).expect("dpdk-testpmd");
        let found = ran.stdout.lines().filter(|line| line.contains("Flow rule validated")).count();
        assert_eq!(found, wanted, "{}: {}{}", path.display(), ran.stdout, ran.stderr);
        all += wanted;
    }
    assert!(all > 10, "only {all} rules are recorded");
}
