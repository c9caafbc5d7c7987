//! FRR's daemons, out of the way of others: with all their files in a folder of the lab, which is
//! the user's that they want to be.

use crate::error::LabError;
use crate::lab::Netns;
use crate::process::{Running, wait_until};
use std::path::PathBuf;
use std::time::Duration;

/// The files of the daemons with this name.
pub(super) fn folder(space: &Netns, name: &str) -> PathBuf {
    space.dir().join(name)
}

/// Starts one of them: its program, configuration and further options. zebra comes first; it is
/// waited for.
pub(super) fn start(
    space: &Netns,
    name: &str,
    (what, text, more): (&str, &str, Vec<&str>),
) -> Result<Running, LabError> {
    let folder = folder(space, name);
    let beside = |what: &str| folder.join(what).display().to_string();
    space.run("install", &["-d", "-o", "frr", "-g", "frr", &folder.display().to_string()])?.ok()?;
    let (zebra, sockets) = (folder.join("zserv.api"), beside("."));
    let (file, pid) = (beside(&format!("{what}.conf")), beside(&format!("{what}.pid")));
    std::fs::write(&file, text).map_err(LabError::file("FRR's configuration"))?;
    let socket = zebra.display().to_string();
    let mut args = vec!["-f", &file, "-i", &pid, "-z", &socket, "--vty_socket", &sockets];
    args.extend(["--log", "stdout", "-P", "0"]);
    args.extend(more);
    let program = format!("/usr/lib/frr/{what}");
    let mut daemon = space.start(&format!("{name}-{what}"), &program, &args)?;
    if what == "zebra" {
        wait_until("zebra to listen", Duration::from_secs(30), || match daemon.ended()? {
            Some(status) => Err(LabError::Wrong(format!("{status}: {}", daemon.log_tail(5)))),
            None => Ok(zebra.exists().then_some(())),
        })?;
    }
    Ok(daemon)
}
