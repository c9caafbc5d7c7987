//! Whose the virtual addresses are: what moves them does so by the kernel, and the director tells.

use serde_json::Value;
use sluice_e2e::error::expect;
use sluice_e2e::{LabError, wait_until};

use crate::fixture::{Fixture, SOON, Setup, here, on};

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
