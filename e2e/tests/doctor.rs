//! `sluice doctor` on a bed: nothing is wrong with a good one; what is broken is found, and the
//! commands that it prints mend it. The kernel itself judges: the commands are run as they are.

use serde_json::Value;
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::recipe::Recipe;
use sluice_e2e::{Bed, Driver, LabError, wait_until};

use crate::fixture::{Fixture, PYTHON, SOON, Setup, here, on};

/// What the doctor says in the director's namespace, and its exit code.
fn doctor(fixture: &Fixture, more: &[&str]) -> Result<(Vec<Value>, i32), LabError> {
    let sluice = program("sluice")?;
    let socket = fixture.director.socket().to_string_lossy().into_owned();
    let args = [&["--socket", &*socket, "doctor", "--json"], more].concat();
    let ran = fixture.bed.director.run(&sluice.to_string_lossy(), &args)?;
    let findings = serde_json::from_str(&ran.stdout).map_err(|_| LabError::Unreadable {
        what: "`sluice doctor --json`".to_owned(),
        text: format!("{}{}", ran.stdout, ran.stderr),
    })?;
    Ok((findings, ran.status.code().unwrap_or(-1)))
}

fn found<'v>(findings: &'v [Value], id: &str) -> Option<&'v Value> {
    let bad = |it: &&Value| it["mark"] == "warn" || it["mark"] == "fail";
    findings.iter().filter(bad).find(|finding| finding["id"] == id)
}

/// Something is broken and found; its commands are run; it is found no more.
fn is_found_and_mended(
    fixture: &Fixture,
    id: &str,
    mark: &str,
    break_it: impl Fn(&Fixture) -> Result<(), LabError>,
) -> Result<(), LabError> {
    let (before, _) = doctor(fixture, &[])?;
    expect(found(&before, id).is_none(), || format!("{id} was there before: {before:#?}"))?;
    break_it(fixture)?;
    let (broken, code) = doctor(fixture, &[])?;
    let finding = found(&broken, id);
    let Some(finding) = finding.filter(|it| it["mark"] == mark) else {
        return Err(LabError::Wrong(format!("no {mark} of {id}: {broken:#?}")));
    };
    let least = if mark == "fail" { 2 } else { 1 };
    expect(code >= least, || format!("exit code {code}"))?;
    let commands: Vec<&str> =
        finding["fix"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    expect(!commands.is_empty(), || format!("no fix: {finding}"))?;
    for command in commands {
        fixture.bed.director.run("sh", &["-c", command])?.ok()?;
    }
    let (after, _) = doctor(fixture, &[])?;
    expect(found(&after, id).is_none(), || format!("{id} was not mended: {after:#?}"))
}

/// Nothing fails; the machine itself may give warnings (its clock, its huge pages).
#[test]
fn a_good_bed_gives_no_fail() {
    for driver in [Driver::AfXdp, Driver::AfPacket] {
        on(here!(a_good_bed_gives_no_fail), Setup::new(driver, 1), |fixture| {
            fixture.answers(3)?;
            // The director looks at its links once in a while: they may have come up since.
            let mut last = Vec::new();
            let well = wait_until("nothing to fail", SOON, || {
                let (findings, code) = doctor(fixture, &[])?;
                let fails = findings.iter().any(|finding| finding["mark"] == "fail");
                last.clone_from(&findings);
                Ok((!fails && code < 2).then_some(findings))
            });
            let findings = well.map_err(|error| LabError::Wrong(format!("{error}: {last:#?}")))?;
            for id in ["config", "director", "port", "addresses", "reals"] {
                let well = |it: &Value| it["id"] == id && it["mark"] == "ok";
                expect(findings.iter().any(well), || format!("no {id} in {findings:#?}"))?;
            }
            Ok(())
        });
    }
}

#[test]
fn what_is_broken_is_found_and_mended_by_its_commands() {
    on(here!(what_is_broken_is_found_and_mended_by_its_commands), Setup::usual(), |fixture| {
        let vip = fixture.bed.vip();
        is_found_and_mended(fixture, "rp_filter", "warn", |fixture| {
            fixture.bed.director.sysctl("net.ipv4.conf.back.rp_filter", "1")
        })?;
        is_found_and_mended(fixture, "vip_absent", "fail", |fixture| {
            let at = format!("{vip}/32");
            fixture.bed.director.ip(&["address", "del", &at, "dev", "front"]).map(drop)
        })?;
        is_found_and_mended(fixture, "pool_absent", "fail", |fixture| {
            let at = ["address", "del", "192.0.2.10/32", "dev", "back"];
            fixture.bed.director.ip(&at).map(drop)
        })?;
        is_found_and_mended(fixture, "mtu", "warn", |fixture| {
            fixture.bed.director.ip(&["link", "set", "back", "mtu", "1280"]).map(drop)
        })?;
        is_found_and_mended(fixture, "vip_twice", "warn", |fixture| {
            fixture.bed.director.address("back", &format!("{vip}/32"))
        })?;
        is_found_and_mended(fixture, "port_down", "fail", |fixture| {
            fixture.bed.director.ip(&["link", "set", "front", "down"]).map(drop)
        })?;
        fixture.wait_for_answer(SOON)
    });
}

/// A real server that is gone is found by asking for it.
#[test]
fn a_silent_real_server_is_found() {
    on(here!(a_silent_real_server_is_found), Setup::usual(), |fixture| {
        fixture.bed.reals[2].ip(&["link", "set", "eth0", "down"])?;
        fixture.bed.director.ip(&["neigh", "flush", "dev", "back"])?;
        let (findings, code) = doctor(fixture, &[])?;
        let silent = found(&findings, "real_silent").map(|it| it["text"].to_string());
        let address = Bed::real_address(2);
        let told = silent.as_deref().is_some_and(|text| text.contains(&address));
        expect(told && code == 2, || format!("exit code {code}: {findings:#?}"))?;
        fixture.bed.reals[2].ip(&["link", "set", "eth0", "up"])?;
        sluice_e2e::wait_until("the doctor to be content", SOON, || {
            let (after, _) = doctor(fixture, &[])?;
            Ok(found(&after, "real_silent").is_none().then_some(()))
        })
    });
}

/// Another machine answers for the virtual address. It takes no command here to mend that, so the
/// test does what the words say.
#[test]
fn somebody_elses_virtual_address_is_found() {
    on(here!(somebody_elses_virtual_address_is_found), Setup::usual(), |fixture| {
        let vip = format!("{}/32", fixture.bed.vip());
        let (before, _) = doctor(fixture, &[])?;
        expect(found(&before, "duplicate").is_none(), || format!("{before:#?}"))?;
        fixture.bed.client.address("eth0", &vip)?;
        let (findings, code) = doctor(fixture, &[])?;
        let duplicate = found(&findings, "duplicate").map(|it| it["text"].to_string());
        let told = duplicate.as_deref().is_some_and(|text| text.contains("02:00:00:00:00:48"));
        expect(told && code == 2, || format!("exit code {code}: {findings:#?}"))?;
        fixture.bed.client.ip(&["address", "del", &vip, "dev", "eth0"])?;
        let (after, _) = doctor(fixture, &[])?;
        expect(found(&after, "duplicate").is_none(), || format!("{after:#?}"))
    });
}

/// Tunnels need room: 1500 bytes from clients and an outer header do not fit through 1500.
#[test]
fn tunnels_without_room_are_found_before_there_is_a_director() {
    on(
        here!(tunnels_without_room_are_found_before_there_is_a_director),
        Setup::usual(),
        |fixture| {
            let file = fixture.director.config().with_file_name("ipip.toml");
            let text =
                Recipe::default().text(&fixture.bed).replace("mode = \"fnat\"", "mode = \"ipip\"");
            let text = text.replace("\npool = \"lan\"\n", "\n");
            let text = text + "\n[ipip]\nsource_v4 = \"192.0.2.1\"\n";
            std::fs::write(&file, text).map_err(LabError::file("writing ipip.toml"))?;
            fixture.director.stop()?;
            let file = file.to_string_lossy().into_owned();
            let (findings, code) = doctor(fixture, &["--config", &file])?;
            let fix = found(&findings, "mtu").map(|it| it["fix"].to_string());
            let right = fix.as_deref().is_some_and(|fix| fix.contains("ip link set back mtu 1520"));
            expect(right && code >= 1, || format!("exit code {code}: {findings:#?}"))?;
            expect(found(&findings, "director").is_some(), || {
                "a dead director is well".to_owned()
            })?;
            fixture.bed.director.ip(&["link", "set", "back", "mtu", "1520"])?;
            let (after, _) = doctor(fixture, &["--config", &file])?;
            expect(found(&after, "mtu").is_none(), || format!("{after:#?}"))
        },
    );
}

/// `ip link` gives a VXLAN device without `dev` the largest MTU, and what carries it has no more.
#[test]
fn a_vxlan_device_larger_than_what_carries_it_is_found() {
    const NAME: &str = here!(a_vxlan_device_larger_than_what_carries_it_is_found);
    on(NAME, Setup::usual(), |fixture| {
        let director = &fixture.bed.director;
        let make = "ip link add vxblue type vxlan id 7 local 192.0.2.1 dstport 4789 && \
                    ip link set vxblue up";
        director.run("sh", &["-c", make])?.ok()?;
        let text = Recipe::default().text(&fixture.bed)
            + "\n[[network]]\nname = \"blue\"\ntable = 7\n\
               \n[[port]]\nname = \"tunnel\"\ndevice = \"vxlan:vxblue\"\nnetwork = \"blue\"\n";
        let file = fixture.director.config().with_file_name("vxlan.toml");
        std::fs::write(&file, text).map_err(LabError::file("writing vxlan.toml"))?;
        let file = file.to_string_lossy().into_owned();
        let (findings, code) = doctor(fixture, &["--config", &file])?;
        let fix = "ip link set vxblue mtu 1450";
        let right = found(&findings, "vxlan_mtu").is_some_and(|it| it["fix"][0] == fix);
        expect(right && code >= 1, || format!("exit code {code}: {findings:#?}"))?;
        director.run("sh", &["-c", fix])?.ok()?;
        let (after, _) = doctor(fixture, &["--config", &file])?;
        expect(found(&after, "vxlan_mtu").is_none(), || format!("{after:#?}"))
    });
}

/// A person without privilege gets answers, too, and is told what could not be seen.
#[test]
fn nobody_is_told_what_could_not_be_looked_at() {
    on(here!(nobody_is_told_what_could_not_be_looked_at), Setup::usual(), |fixture| {
        let sluice = program("sluice")?.to_string_lossy().into_owned();
        // Where an unprivileged user may run it from.
        let copy = fixture.director.config().with_file_name("sluice");
        std::fs::copy(&sluice, &copy).map_err(LabError::file("copying sluice"))?;
        let open = ["-R", "a+rX", &fixture.bed.lab.dir().to_string_lossy()].map(str::to_owned);
        fixture.bed.director.run("chmod", &open.each_ref().map(String::as_str))?.ok()?;
        let file = fixture.director.config().to_string_lossy().into_owned();
        let copy = copy.to_string_lossy().into_owned();
        let script = "import os,sys; os.setgid(65534); os.setuid(65534); \
                      os.execv(sys.argv[1], sys.argv[1:])";
        let args = ["-c", script, &copy, "doctor", "--config", &file];
        let ran = fixture.bed.director.run(PYTHON, &args)?;
        let said = format!("{}{}", ran.stdout, ran.stderr);
        let told = ran.stdout.contains("was not asked: that needs root");
        expect(told && ran.status.code().is_some_and(|code| code < 2), || said)
    });
}

/// `sluice top` asks a real director; its rates are those of real traffic.
#[test]
fn top_shows_traffic_that_there_is() {
    on(here!(top_shows_traffic_that_there_is), Setup::usual(), |fixture| {
        let mut held = fixture.hold(&fixture.server(sluice_e2e::web::LINES_PORT), 4)?;
        let text = fixture.director.sluice(&["top", "--batch", "2", "--interval", "1"])?;
        held.wait(SOON)?;
        let looks: Vec<&str> = text.split("sluiced ").skip(1).collect();
        expect(looks.len() == 2, || text.clone())?;
        let line = looks[1].lines().find(|line| line.starts_with("lines "));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        // SERVICE tcp ADDRESS UP SESSIONS NEW/S PPS…
        let active = words.get(4).is_some_and(|active| *active == "1");
        let packets = words.get(6).and_then(|pps| pps.parse::<f64>().ok());
        expect(active && packets.is_some_and(|pps| pps > 0.0), || text.clone())
    });
}
