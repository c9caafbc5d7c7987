//! A program as a probe: exit code 0 is a pass, and the first line it prints says why.
//!
//! It runs without a shell, in a process group of its own, which is killed as a whole when the
//! probe ends, in whatever way; so is what it started and left behind. A program that others than
//! its owner may write is not run: the director is privileged. It has no descriptors of the
//! director but standard input, output and error.

use super::Tools;
use crate::socket::{Trouble, Way, words};
use crate::spec::Spec;
use rustix::process::{Pid, Signal, kill_process_group};
use sluice_health::Finding;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

/// As much of what it prints is read, in bytes.
const PRINTED: u64 = 4096;

/// A process group that ends with the probe.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Fails when all have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

pub async fn run(
    spec: &Spec,
    command: &[String],
    way: &Way,
    tools: &Tools,
) -> Result<Finding, Trouble> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Trouble::Blind("there is no program to run".to_owned()));
    };
    let owned = std::fs::metadata(program).map_err(|error| blind(program, &error))?;
    let me = rustix::process::geteuid().as_raw();
    if owned.mode() & 0o022 != 0 || (owned.uid() != 0 && owned.uid() != me) {
        let text = format!("{program} was not run: others than its owner may change it");
        return Err(Trouble::Blind(text));
    }
    let _place = tools.scripts.acquire().await;
    (tools.contain)();
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("SLUICE_SERVICE", &*spec.key.service)
        .env("SLUICE_REAL_ADDRESS", spec.key.address.to_string())
        .env("SLUICE_REAL_PORT", spec.key.port.to_string())
        .env("SLUICE_CHECK_ADDRESS", spec.address.to_string())
        .env("SLUICE_CHECK_PORT", spec.port.to_string())
        .envs(network_of(way))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| blind(program, &error))?;
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let group = Group(id.and_then(Pid::from_raw));
    let printed = read(&mut child).await;
    let ended = child.wait().await.map_err(|error| blind(program, &error))?;
    drop(group);
    let line = printed.lines().next().unwrap_or_default().trim();
    let said = if line.is_empty() { String::new() } else { format!(": {line}") };
    Ok(match ended.code() {
        Some(0) => Finding::pass(format!("exit code 0{said}")),
        Some(code) => Finding::fail(format!("exit code {code}{said}")),
        None => Finding::fail(format!("ended by a signal{said}")),
    })
}

/// What a program needs to know to stay within its isolated network.
fn network_of(way: &Way) -> impl Iterator<Item = (&str, &str)> {
    let name = way.network.iter().map(|network| ("SLUICE_NETWORK", &*network.name));
    let device = way.network.as_ref().and(way.interface.as_deref());
    name.chain(device.map(|device| ("SLUICE_DEVICE", device)))
}

fn blind(program: &str, error: &std::io::Error) -> Trouble {
    Trouble::Blind(format!("cannot run {program}: {}", words(error)))
}

/// The first of what it prints. The rest is read and forgotten, so that it can go on printing.
async fn read(child: &mut Child) -> String {
    let Some(stdout) = child.stdout.take() else { return String::new() };
    let mut first = Vec::new();
    let mut start = stdout.take(PRINTED);
    // What cannot be read was not said.
    let _ = start.read_to_end(&mut first).await;
    let _ = tokio::io::copy(&mut start.into_inner(), &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&first).into_owned()
}
