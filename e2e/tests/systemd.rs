//! The service unit under a real systemd: what `systemctl` does to the director, and what
//! connections notice of it.

use std::io::Write;
use std::path::PathBuf;

use sluice_e2e::director::program;
use sluice_e2e::error::expect;
use sluice_e2e::load::{curl, download_sha256};
use sluice_e2e::process::Ran;
use sluice_e2e::web::{make_blob_of, script};
use sluice_e2e::{Bed, LabError, Running, wait_until};

use crate::fixture::{PREFIX, SOON, Setup, here, turn};
use crate::handover::paced;

/// The unit of packages.
const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/sluiced.service");
/// New namespaces of mounts and processes, which end with the first process in them.
const APART: [&str; 5] = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"];

/// A systemd in a bed's director namespace.
struct Systemd<'b> {
    bed: &'b Bed,
    running: Running,
    /// Its first process, whose namespaces others enter.
    first: String,
}

impl<'b> Systemd<'b> {
    fn start(bed: &'b Bed, config: &str) -> Result<Self, LabError> {
        let folder = bed.lab.dir().join("systemd");
        std::fs::create_dir_all(&folder).map_err(LabError::file("making a folder"))?;
        let copy = |from: PathBuf, name: &str| {
            std::fs::copy(from, folder.join(name)).map_err(LabError::file(name.to_owned()))
        };
        for name in ["sluiced", "sluice"] {
            copy(program(name)?, name)?;
        }
        copy(PathBuf::from(UNIT), "sluiced.service")?;
        std::fs::write(folder.join("sluice.toml"), config).map_err(LabError::file("writing"))?;
        let (script, folder) = (script("systemd.sh"), folder.display().to_string());
        let args = [&APART[..], &["sh", &script, &folder, bed.lab.name()]].concat();
        let running = bed.director.start("systemd", "unshare", &args)?;
        let children = format!("/proc/{0}/task/{0}/children", running.pid());
        let first = wait_until("its first process", SOON, || {
            let text = std::fs::read_to_string(&children).unwrap_or_default();
            Ok(text.split_whitespace().next().map(str::to_owned))
        })?;
        let systemd = Self { bed, running, first };
        wait_until("systemd", SOON, || {
            let state = systemd.run(&["systemctl", "--user", "is-system-running"])?;
            Ok((state.stdout.trim() == "running").then_some(()))
        })?;
        Ok(systemd)
    }

    /// Runs a command where the director is.
    fn run(&self, command: &[&str]) -> Result<Ran, LabError> {
        let args = ["--target", &self.first, "--mount", "--pid", "--net", "env"];
        let args = [&args[..], &["XDG_RUNTIME_DIR=/run"], command].concat();
        self.bed.director.run("nsenter", &args)
    }

    fn systemctl(&self, args: &[&str]) -> Result<(), LabError> {
        self.run(&[&["systemctl", "--user"], args].concat())?.ok().map(drop)
    }

    /// A property of the unit.
    fn property(&self, name: &str) -> Result<String, LabError> {
        let show = ["systemctl", "--user", "show", "--value", "--property", name, "sluiced"];
        Ok(self.run(&show)?.ok()?.stdout.trim().to_owned())
    }

    /// Waits until the service runs as another process than this one.
    fn wait_for_another(&self, than: &str) -> Result<String, LabError> {
        wait_until("another process", SOON, || {
            let (state, pid) = (self.property("ActiveState")?, self.property("MainPID")?);
            Ok((state == "active" && pid != than && pid != "0").then_some(pid))
        })
    }

    fn sluice(&self, args: &[&str]) -> Result<String, LabError> {
        let all = [&["/run/bin/sluice", "--socket", "/run/sluice/sluice.sock"], args].concat();
        Ok(self.run(&all)?.ok()?.stdout)
    }
}

impl Drop for Systemd<'_> {
    fn drop(&mut self) {
        let _ = self.running.kill();
        // Its control groups can be removed once its processes have gone.
        let name = self.bed.lab.name();
        let rest = format!(
            "mount -t cgroup2 cgroup2 /mnt && find /mnt/{name} -depth -type d -exec rmdir {{}} +"
        );
        let _ = wait_until("its control groups to go", SOON, || {
            let ran = self.bed.client.run("unshare", &["--mount", "sh", "-c", &rest])?;
            Ok(ran.status.success().then_some(()))
        });
    }
}

/// Whether this machine lets a systemd run in namespaces of its own.
fn is_possible(bed: &Bed) -> Result<bool, LabError> {
    let probe = "test -x /lib/systemd/systemd && mount -t cgroup2 cgroup2 /mnt && \
                 mkdir -p /mnt/sluice-probe && rmdir /mnt/sluice-probe";
    let args = [&APART[..], &["sh", "-c", probe]].concat();
    Ok(bed.director.run("unshare", &args)?.status.success())
}

/// Upgrade, restart, reload and death: the unit follows, and downloads go on over all of them. What
/// datagrams notice of each is shown.
#[test]
fn the_unit_is_upgraded_restarted_and_killed() {
    let name = here!(the_unit_is_upgraded_restarted_and_killed);
    let Some(_turn) = turn(name) else { return };
    let Setup { shape, driver, workers, recipe } = Setup::usual();
    let run = || {
        let mut bed = Bed::new(PREFIX, shape, driver, workers)?;
        bed.start_reals()?;
        if !is_possible(&bed)? {
            let why = "no systemd here, or no cgroup2 for it";
            let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
            return Ok(());
        }
        let lab = bed.lab.dir().display().to_string();
        // The files of the lab are in /tmp, which is another one for the unit.
        let text = recipe.text(&bed);
        let config = text.replace(&format!("{lab}/sluice.sock"), "/run/sluice/sluice.sock");
        let config = config.replace(&format!("{lab}/state"), "/run/state/sluice");
        expect(!config.contains(&lab), || config.clone())?;
        follows(&bed, &Systemd::start(&bed, &config)?)
    };
    run().unwrap_or_else(|error: LabError| panic!("{name}: {error}"));
}

/// Does something under datagrams, and says for how long none came back. That is not judged: the
/// machine may have other work.
fn noticed<T>(
    bed: &Bed,
    what: &str,
    does: impl FnOnce() -> Result<T, LabError>,
) -> Result<T, LabError> {
    const EVERY_MS: u64 = 2;
    let mut paced = paced(&bed.client, bed.vip(), 4, &[&EVERY_MS.to_string()])?;
    let done = does()?;
    let said = paced.end()?;
    let run = said["longest_run"].as_u64().unwrap_or(u64::MAX);
    println!("{what}: gap {} ms: {said}", run.saturating_mul(EVERY_MS));
    Ok(done)
}

fn follows(bed: &Bed, systemd: &Systemd<'_>) -> Result<(), LabError> {
    systemd.systemctl(&["start", "sluiced"])?;
    let url = format!("http://{}/", bed.vip());
    wait_until("an answer", SOON, || Ok(curl(&bed.client, &url).ok()))?;
    let sums = bed.reals.iter().map(|real| make_blob_of(real, 150_000_000));
    let sums = sums.collect::<Result<Vec<_>, _>>()?;
    let downloads = (0..3).map(|_| {
        let (client, url) = (bed.client.clone(), format!("{url}blob"));
        std::thread::spawn(move || download_sha256(&client, &url, "6M"))
    });
    let downloads: Vec<_> = downloads.collect();
    wait_until("the downloads", SOON, || {
        let text = systemd.sluice(&["status", "--json"])?;
        let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        Ok((status["sessions"]["live"].as_u64() >= Some(3)).then_some(()))
    })?;
    let first = systemd.property("MainPID")?;
    let second = noticed(bed, "upgrade", || {
        systemd.sluice(&["ha", "upgrade"])?;
        systemd.wait_for_another(&first)
    })?;
    systemd.systemctl(&["reload", "sluiced"])?;
    let status = systemd.sluice(&["status"])?;
    expect(status.contains("last reload    accepted"), || status.clone())?;
    let third = noticed(bed, "restart", || {
        systemd.systemctl(&["restart", "sluiced"])?;
        systemd.wait_for_another(&second)
    })?;
    expect(systemd.property("NRestarts")? == "0", || "it had died".to_owned())?;
    // It took over from a process that stood in.
    let told: serde_json::Value =
        serde_json::from_str(&systemd.sluice(&["ha", "--json"])?).unwrap_or_default();
    let upgrade = &told["upgrade"];
    let from = upgrade["from_pid"].as_u64().unwrap_or_default().to_string();
    let pids = [&*first, &*second, &*third, "0"];
    expect(upgrade["state"] == "done" && !pids.contains(&&*from), || upgrade.to_string())?;
    println!("restart: the second handover {upgrade}");
    noticed(bed, "kill -9", || {
        systemd.systemctl(&["kill", "--signal", "KILL", "sluiced"])?;
        systemd.wait_for_another(&third)
    })?;
    expect(systemd.property("NRestarts")? == "1", || "it did not die".to_owned())?;
    for download in downloads {
        let got = download.join().expect("the download does not panic")?;
        expect(sums.contains(&got), || format!("got {got}, not one of {sums:?}"))?;
    }
    systemd.systemctl(&["stop", "sluiced"])?;
    let (state, result) = (systemd.property("ActiveState")?, systemd.property("Result")?);
    expect((&*state, &*result) == ("inactive", "success"), || format!("{state}, {result}"))
}
