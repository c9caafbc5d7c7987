//! Whom a service serves, and how long it bears silence: `deny`, `allow`, `idle_timeout_s`, as the
//! file says them and as DPVS's `ipvsadm` does.

use sluice_e2e::LabError;
use sluice_e2e::director::program;
use sluice_e2e::error::expect;

use crate::fixture::{Fixture, SOON, Setup, here, on};

/// The bed's client, and a second address of its.
const CLIENTS: [&str; 2] = ["198.51.100.48", "198.51.100.49"];
/// curl's exit status when nothing comes.
const SILENCE: i32 = 28;

/// curl's exit status, from one of the client's addresses.
fn asks(fixture: &Fixture, from: &str) -> Result<i32, LabError> {
    let url = fixture.url();
    let args = ["-sS", "--fail", "-o", "/dev/null", "--max-time", "2", "--interface", from, &url];
    Ok(fixture.bed.client.run("curl", &args)?.status.code().unwrap_or(-1))
}

fn are_served(fixture: &Fixture, wanted: [bool; 2], when: &str) -> Result<(), LabError> {
    for (from, served) in CLIENTS.into_iter().zip(wanted) {
        let code = asks(fixture, from)?;
        let fits = code == if served { 0 } else { SILENCE };
        expect(fits, || format!("{when}: {from} is answered by {code}"))?;
    }
    Ok(())
}

fn denied(fixture: &Fixture) -> Result<u64, LabError> {
    let said = fixture.director.ask("drops")?;
    let drops = said["drops"].as_array().into_iter().flatten();
    let own = drops.into_iter().find(|drop| drop["reason"] == "client_denied");
    Ok(own.and_then(|drop| drop["packets"].as_u64()).unwrap_or(0))
}

/// The file with lines more for its service.
fn reload(fixture: &mut Fixture, lines: &str) -> Result<(), LabError> {
    let text = fixture.recipe.text(&fixture.bed);
    let text = text.replacen("port = 80\n", &format!("port = 80\n{lines}"), 1);
    let epoch = fixture.director.ask("status")?["config_epoch"].as_u64().unwrap_or(0);
    fixture.director.reload(&text)?;
    sluice_e2e::wait_until("the file to be read again", SOON, || {
        let now = fixture.director.ask("status")?["config_epoch"].as_u64();
        Ok((now > Some(epoch)).then_some(()))
    })
}

#[test]
fn only_who_may_is_served() {
    on(here!(only_who_may_is_served), Setup::usual(), |fixture| {
        fixture.bed.client.address("eth0", &format!("{}/24", CLIENTS[1]))?;
        are_served(fixture, [true, true], "without lists")?;
        reload(fixture, &format!("deny = [\"{}/32\"]\n", CLIENTS[1]))?;
        are_served(fixture, [true, false], "with one denied")?;
        expect(denied(fixture)? > 0, || "nothing was counted".to_owned())?;
        reload(fixture, &format!("allow = [\"{}/32\"]\n", CLIENTS[1]))?;
        are_served(fixture, [false, true], "with one allowed")?;
        reload(fixture, "deny = [\"198.51.100.48/31\"]\nallow = [\"198.51.100.0/24\"]\n")?;
        are_served(fixture, [false, false], "denied though allowed")?;
        reload(fixture, "# nobody\n")?;
        are_served(fixture, [true, true], "without lists again")
    });
}

#[test]
fn dpvs_words_make_the_same_lists() {
    on(here!(dpvs_words_make_the_same_lists), Setup::usual(), |fixture| {
        fixture.bed.client.address("eth0", &format!("{}/24", CLIENTS[1]))?;
        let sluice = program("sluice")?.to_string_lossy().into_owned();
        let socket = format!("SLUICE_SOCKET={}", fixture.director.socket().display());
        let vip = format!("{}:81", fixture.bed.vip());
        let ipvsadm = |args: &[&str]| {
            let all = [&[&*socket, &*sluice, "ipvsadm"], args].concat();
            fixture.bed.director.run("env", &all)?.ok().map(|ran| ran.stdout)
        };
        ipvsadm(&["-A", "-t", &vip, "-s", "rr", "--conn-timeout", "77"])?;
        ipvsadm(&["-U", "-t", &vip, "-k", CLIENTS[1]])?;
        let listed = ipvsadm(&["-B", "-t", &vip])?;
        expect(listed.contains(CLIENTS[1]), || listed.clone())?;
        let saved = ipvsadm(&["-S", "-n"])?;
        expect(saved.contains("--conn-timeout 77"), || saved.clone())?;
        let shown = fixture.director.sluice(&["config", "show"])?;
        for line in ["idle_timeout_s = 77", "deny = [\"198.51.100.49/32\"]"] {
            expect(shown.contains(line), || format!("no {line}: {shown}"))?;
        }
        ipvsadm(&["-V", "-t", &vip, "-k", CLIENTS[1]])?;
        let shown = fixture.director.sluice(&["config", "show"])?;
        expect(!shown.contains("deny"), || shown.clone())
    });
}
