//! Two synchronised directors with keepalived: connections that say nothing while their director
//! dies, and in `faults` all else that may happen to one.

mod doctor;
mod faults;

use rustix::process::Signal;
use sluice_e2e::bed::pair::{Kind, Pair};
use sluice_e2e::entry::{Real, Service};
use sluice_e2e::error::expect;
use sluice_e2e::family::FAMILIES;
use sluice_e2e::web::{PYTHON, script, start_script};
use sluice_e2e::{Director, LabError, Running, wait_until};

use crate::failover::master;
use crate::fixture::{SOON, here};
use crate::sync::{on_synchronised_with, sessions};

/// Where the silent ones are.
const SILENT_PORT: u16 = 2300;
/// iperf3's own.
const IPERF3_PORT: u16 = 5201;

/// Services of both families that the pair does not have by itself: each has one real server, the
/// first that of IPv4.
fn service(name: &str, port: u16) -> String {
    let of = |(index, family): (usize, sluice_e2e::Family)| {
        Service::new(&format!("{name}{}", family.bits()), "tcp", Pair::vip(family))
            .set("port", port)
            .set("mode", "fnat")
            .set("pool", "lan")
            .real(Real::at(Pair::host(family, 11 + index)))
            .to_string()
    };
    FAMILIES.into_iter().enumerate().map(of).collect()
}

/// The primary's director dies, and its kept sessions with it.
fn die(pair: &mut Pair) -> Result<(), LabError> {
    pair.nodes[0].kill_director()?;
    forget(pair)
}

/// The sessions that outlive the primary's process are gone, as those of a machine are.
fn forget(pair: &Pair) -> Result<(), LabError> {
    match std::fs::remove_dir_all(Director::kept_in(pair.nodes[0].lab.dir())) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LabError::file("removing kept sessions")(error))
        }
        _ => Ok(()),
    }
}

/// The director sees the handshake of each and nothing else until another one has its sessions;
/// then clients speak on half of them, and the servers on all.
#[test]
fn alone_silent_connections_speak_at_the_other_director() {
    const COUNT: &str = "8";
    let name = here!(alone_silent_connections_speak_at_the_other_director);
    let more = |_: &Pair, _| Ok(service("silent", SILENT_PORT));
    on_synchronised_with(Kind::default(), name, more, |pair| {
        let port = SILENT_PORT.to_string();
        let serve = |index: usize| {
            let name = format!("silent-server{}", 1 + index);
            start_script(&pair.reals[index], &name, "silent.py", &["serve", &port])
        };
        let servers = [serve(0)?, serve(1)?];
        let hold = |family| {
            let path = script("silent.py");
            let args = [&path, "hold", Pair::vip(family), &port, COUNT];
            let mut one = pair.client.start(&format!("silent{family}"), PYTHON, &args)?;
            one.wait_for_words("open", SOON).map(|()| one)
        };
        let mut held = FAMILIES.into_iter().map(hold).collect::<Result<Vec<Running>, _>>()?;
        wait_until("the other to know all", SOON, || Ok((sessions(pair, 1)? >= 16).then_some(())))?;
        die(pair)?;
        master(pair, 1)?;
        held.iter().for_each(|one| one.signal(Signal::USR1));
        servers.iter().for_each(|one| one.signal(Signal::USR1));
        for one in &mut held {
            let ended = one.wait(SOON)?;
            expect(ended.success(), || one.log())?;
        }
        Ok(())
    });
}
