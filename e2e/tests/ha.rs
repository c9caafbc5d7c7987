//! Whose the virtual addresses are: what moves them does so by the kernel, and the director tells.

use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::{Driver, LabError, wait_until};

use crate::fixture::{Fixture, PYTHON, SOON, Setup, here, on, script};

/// Waits until `sluice ha` says this of the role and of who has the address of the bed's service.
fn wait_for(fixture: &Fixture, role: &str, interface: Option<&str>) -> Result<Value, LabError> {
    let (vip, mut last) = (fixture.bed.vip().to_owned(), Value::Null);
    let came = wait_until(&format!("the director to be {role}"), SOON, || {
        last = fixture.director.ask("ha")?;
        let addresses = last["addresses"].as_array().into_iter().flatten();
        let own = addresses.into_iter().find(|it| it["vip"] == vip).cloned().unwrap_or_default();
        let fits = last["role"] == role && own["interface"].as_str() == interface;
        Ok(fits.then_some(own))
    });
    came.map_err(|error| LabError::Wrong(format!("{error}: {last}")))
}

#[test]
fn addresses_that_move_are_told() {
    on(here!(addresses_that_move_are_told), Setup::usual(), |fixture| {
        let device = fixture.bed.kernel_device("front");
        let first = wait_for(fixture, "active", Some(&device))?;
        let moves = |what| {
            let vip = format!("{}/32", fixture.bed.vip());
            fixture.bed.director.ip(&["address", what, &vip, "dev", &device])
        };
        moves("del")?;
        let gone = wait_for(fixture, "standby", None)?;
        let changes = |of: &Value| of["changes"].as_u64();
        expect(changes(&gone) == changes(&first).map(|it| it + 1), || gone.to_string())?;
        let said = fixture.director.sluice(&["ha"])?;
        expect(said.contains(&format!("{}  no", fixture.bed.vip())), || said.clone())?;
        moves("add")?;
        wait_for(fixture, "active", Some(&device))?;
        let told = fixture.director.sluice(&["events", "--kind", "ha"])?;
        for words in
            ["is not this machine's any more", &format!("is this machine's now ({device})")]
        {
            expect(told.contains(words), || format!("no {words:?}: {told}"))?;
        }
        let held = format!("sluice_vip_held{{vip=\"{}\"}} 1", fixture.bed.vip());
        // They are of a sample a second.
        wait_until(&held, SOON, || {
            let page = fixture.director.sluice(&["metrics"])?;
            Ok(page.contains(&held).then_some(()))
        })?;
        fixture.answers(3).map(drop)
    });
}

/// One worker of two hangs, and the rest of the director does not: it is not to be master.
#[test]
fn a_worker_that_hangs_is_not_ready() {
    on(here!(a_worker_that_hangs_is_not_ready), Setup::new(Driver::AfXdp, 2), |fixture| {
        let check = |fixture: &Fixture| {
            let sluice = program("sluice")?;
            let socket = fixture.director.socket().display().to_string();
            let args = ["--socket", &socket, "ha", "check"];
            let begun = Instant::now();
            let ran = fixture.bed.director.run(&sluice.to_string_lossy(), &args)?;
            let said = format!("{}{}", ran.stdout, ran.stderr);
            Ok::<_, LabError>((ran.status.success(), said, begun.elapsed()))
        };
        let ready = |fixture: &Fixture, expected: bool| {
            wait_until(&format!("ready to be {expected}"), SOON, || {
                let (ready, said, _) = check(fixture)?;
                Ok((ready == expected).then_some(said))
            })
        };
        ready(fixture, true)?;
        let tasks = format!("/proc/{}/task", fixture.director.pid());
        let find = "grep -lx worker-1 \"$1\"/*/comm | cut -d/ -f5";
        let found = fixture.bed.director.run("sh", &["-c", find, "sh", &tasks])?.ok()?;
        let args = [&script("hang_thread.py"), found.stdout.trim()];
        let mut hanging = fixture.bed.director.start("hanging", PYTHON, &args)?;
        hanging.wait_for_words("stopped", SOON)?;
        let said = ready(fixture, false)?;
        expect(said.contains("not ready") || said.contains("answer"), || said.clone())?;
        // The program does not hang with it: keepalived starts the next one a second later.
        let (_, _, took) = check(fixture)?;
        expect(took < Duration::from_secs(2), || format!("it took {took:?}"))?;
        hanging.kill()?;
        ready(fixture, true)?;
        fixture.answers(3).map(drop)
    });
}
