//! The bed by itself, without a director: if these fail, the others say nothing. Plain kernel
//! routing carries the traffic, its checksums are right, and everything is removed again.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use sluice_e2e::capture::{Capture, judge};
use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::load::{curl, download_sha256};
use sluice_e2e::web::{ECHO_PORT, make_blob};
use sluice_e2e::{Bed, Driver, Lab, LabError, Shape, sweep, wait_until};

use crate::fixture::{PREFIX, PYTHON, SOON, here, script, turn};

#[test]
fn kernel_routing_carries_the_same_traffic() -> Result<(), LabError> {
    let Some(_turn) = turn(here!(kernel_routing_carries_the_same_traffic)) else { return Ok(()) };
    let mut bed = Bed::new(PREFIX, Shape::TwoArm, Driver::AfXdp, 2)?;
    bed.start_reals()?;
    bed.route_directly()?;
    let client_side = Capture::start(&bed.client, "eth0", "client")?;
    for index in 0..3 {
        let answer = curl(&bed.client, &format!("http://{}/", Bed::real_address(index)))?;
        expect(answer == format!("Real Server {:02}", index + 1), || answer.clone())?;
    }
    let real = Bed::real_address(0);
    let peer = program("sluice-peer")?;
    let echo = format!("{real}:{ECHO_PORT}");
    bed.client.run(&peer.to_string_lossy(), &["udp-probe", &echo, "20", "64"])?.ok()?;
    let zero = script("zero_checksum.py");
    let port = ECHO_PORT.to_string();
    bed.client.run(PYTHON, &[&zero, "probe", &real, &port, "5"])?.ok()?;
    let verdict = judge(&client_side.stop()?)?;
    let right = verdict.bad == 0
        && verdict.good_tcp >= 20
        && verdict.good_udp == 45
        && verdict.zero_udp == 5;
    expect(right, || format!("{verdict:?}"))?;
    let sum = make_blob(&bed.reals[0])?;
    let got = download_sha256(&bed.client, &format!("http://{real}/blob"), "")?;
    expect(got == sum, || format!("sent {sum}, got {got}"))
}

#[test]
fn a_lab_leaves_nothing() -> Result<(), LabError> {
    let Some(_turn) = turn(here!(a_lab_leaves_nothing)) else { return Ok(()) };
    let mut lab = Lab::new(PREFIX)?;
    let space = lab.space("one")?;
    // A process that ignores polite signals, and whose handle is lost.
    let mut stubborn = space.start("stubborn", "sh", &["-c", "trap '' TERM; sleep 600"])?;
    stubborn.leave();
    let name = lab.name().to_owned();
    expect(sweep::traces(&name).len() == 2, || format!("{:?}", sweep::traces(&name)))?;
    drop(lab);
    expect(sweep::traces(&name).is_empty(), || format!("left: {:?}", sweep::traces(&name)))
}

/// Ctrl-C in the middle of a demo removes everything before it ends; after SIGKILL the next lab of
/// that name does.
#[test]
fn an_interrupted_demo_leaves_nothing() -> Result<(), LabError> {
    let Some(_turn) = turn(here!(an_interrupted_demo_leaves_nothing)) else { return Ok(()) };
    for signal in [Signal::INT, Signal::KILL] {
        let mut demo = Command::new(program("sluice-demo")?)
            .args(["--direct-only", "--seconds", "60"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .map_err(LabError::file("starting the demo"))?;
        let name = format!("sl-demo-{}-0", demo.id());
        // Interrupted anywhere between its first namespace and its load.
        wait_until("the demo's namespaces", SOON, || {
            Ok((sweep::traces(&name).len() > 4).then_some(()))
        })?;
        let pid = i32::try_from(demo.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| LabError::Wrong("no process id".to_owned()))?;
        kill_process(pid, signal).map_err(|error| LabError::Wrong(error.to_string()))?;
        let _ = demo.wait();
        if signal == Signal::KILL {
            expect(!sweep::traces(&name).is_empty(), || "nothing to sweep".to_owned())?;
        }
        // An `ip netns add` that outlives its killed parent makes one more after a sweep.
        let left = wait_until("nothing to be left", SOON, || {
            if signal == Signal::KILL {
                sweep::residue("sl-demo");
            }
            Ok(Some(sweep::traces(&name)).filter(Vec::is_empty))
        });
        left.map_err(|_| LabError::Wrong(format!("left: {:?}", sweep::traces(&name))))?;
    }
    Ok(())
}
