//! Has a new process of the director take over, and waits for what comes of it.

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_api::model::{Ha, HaUpgrade, HaUpgradeState};

use crate::Socket;
use crate::cli::ha::Upgrade;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// The director gives a new process less time than this.
const LONGEST: Duration = Duration::from_secs(45);

pub fn run(asked: &Upgrade, socket: &Socket) -> Result<ExitCode, Box<dyn Error>> {
    let client = socket.client(&asked.asking);
    let until = Instant::now() + LONGEST;
    let mut ha = client.upgrade(asked.stand_in)?;
    let upgrade = loop {
        match outcome(&ha) {
            Some(upgrade) => break upgrade.clone(),
            None if Instant::now() >= until => return Err("the upgrade does not end".into()),
            None => std::thread::sleep(PAUSE),
        }
        // While one process ends and the other begins a request may fall between.
        ha = match client.ha() {
            Err(error) if Instant::now() >= until => return Err(error.into()),
            Err(_) => continue,
            Ok(ha) => ha,
        };
    };
    let version = client.status().ok().map(|status| status.version);
    let (holds, line) = told(&upgrade, version.as_deref());
    super::tell((holds, &line), object(&upgrade, version, holds, &line), asked.asking.json)
}

/// What came of the last upgrade, once it is over.
fn outcome(ha: &Ha) -> Option<&HaUpgrade> {
    ha.upgrade.as_ref().filter(|upgrade| upgrade.state != HaUpgradeState::Running)
}

fn told(upgrade: &HaUpgrade, version: Option<&str>) -> (bool, String) {
    let HaUpgrade { state, pid, from_pid, from_version, gap_ms, told, reopened, why, .. } = upgrade;
    if *state != HaUpgradeState::Done {
        let why = why.as_deref().unwrap_or("the new process did not come up");
        return (false, format!("not upgraded, the running process goes on: {why}"));
    }
    let version = version.unwrap_or("?");
    let mut line = format!(
        "process {pid} (version {version}) has taken over from {from_pid} ({from_version})"
    );
    if let Some(gap_ms) = gap_ms {
        line += &format!(", {gap_ms:.1} ms without forwarding");
    }
    if let Some(told) = told {
        line += &crate::show::by_addresses(told);
    }
    if !reopened.is_empty() {
        line += &format!("; opened again, which takes longer: {}", reopened.join(", "));
    }
    (true, line)
}

fn object(upgrade: &HaUpgrade, version: Option<String>, holds: bool, line: &str) -> Value {
    json!({
        "upgraded": holds,
        "why": line,
        "pid": if holds { upgrade.pid } else { upgrade.from_pid },
        "version": version,
        "from_pid": upgrade.from_pid,
        "from_version": upgrade.from_version,
        "gap_ms": upgrade.gap_ms,
        "told": upgrade.told,
        "reopened": upgrade.reopened,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::model::HaUpgradeTold;

    #[test]
    fn what_came_of_it_is_told() {
        let done = HaUpgrade {
            state: HaUpgradeState::Done,
            at_unix_s: 0,
            pid: 12,
            from_pid: 11,
            from_version: "0.1.0".to_owned(),
            gap_ms: Some(3.21),
            told: None,
            reopened: Vec::new(),
            why: None,
        };
        let expected = "process 12 (version 0.2.0) has taken over from 11 (0.1.0), 3.2 ms without \
                        forwarding";
        assert_eq!(told(&done, Some("0.2.0")), (true, expected.to_owned()));
        let by_addresses = HaUpgradeTold {
            why: "its sessions have layout 7, not 1".to_owned(),
            sessions: 1200,
            changed: 3,
            took_ms: 8.04,
        };
        let (holds, line) = told(&HaUpgrade { told: Some(by_addresses), ..done.clone() }, None);
        let expected = "; 1,200 sessions by addresses, 8.0 ms (its sessions have layout 7, not 1)";
        assert!(holds && line.ends_with(expected), "{line}");
        let reopened = HaUpgrade { reopened: vec!["wan".to_owned()], ..done.clone() };
        let (holds, line) = told(&reopened, None);
        assert!(holds && line.ends_with("; opened again, which takes longer: wan"), "{line}");
        let why = Some("no room".to_owned());
        let failed = HaUpgrade { state: HaUpgradeState::Failed, why, ..done };
        let (holds, line) = told(&failed, None);
        assert!(!holds && line.ends_with("goes on: no room"), "{line}");
        let running = HaUpgrade { state: HaUpgradeState::Running, ..failed };
        assert!(outcome(&Ha { upgrade: Some(running), ..Ha::default() }).is_none());
    }
}
