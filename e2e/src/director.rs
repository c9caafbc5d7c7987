//! The program under test: starts `sluiced` in the director's namespace, waits until it says that
//! it is ready, and asks it things through `sluice`, as an operator would.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::bed::Bed;
use crate::error::LabError;
use crate::lab::Netns;
use crate::process::{Running, wait_until};

const READY_LIMIT: Duration = Duration::from_secs(30);

/// Finds a built program: in `SLUICE_BIN_DIR`, else beside this program, else in the release
/// directory of the same target directory. `sluiced` and `sluice` are taken from the release
/// directory before all others but the named one: their debug builds are slow.
///
/// # Errors
/// When it is not built, with the command that builds it.
pub fn program(name: &str) -> Result<PathBuf, LabError> {
    let me = std::env::current_exe().map_err(LabError::file("finding this program"))?;
    let named = std::env::var_os("SLUICE_BIN_DIR").map(PathBuf::from);
    let beside = me.ancestors().skip(1).take(2).map(Path::to_path_buf);
    let release = me.ancestors().map(|dir| dir.join("release")).find(|dir| dir.is_dir());
    let dirs: Vec<PathBuf> = if name == "sluice-peer" {
        named.into_iter().chain(beside).chain(release).collect()
    } else {
        named.into_iter().chain(release).chain(beside).collect()
    };
    let found = dirs.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| LabError::Machine(format!("`{name}` is not built; run `make build` first")))
}

/// A running director.
#[derive(Debug)]
pub struct Director {
    running: Running,
    sluice: PathBuf,
    space: Netns,
    config: PathBuf,
    socket: PathBuf,
}

impl Director {
    /// Where the control socket of a lab's director is.
    pub fn socket_in(dir: &Path) -> PathBuf {
        dir.join("sluice.sock")
    }

    /// Where the sessions lie that outlive the process of a director with such a socket, whose
    /// state is beside it, in `state`.
    pub fn kept_in(dir: &Path) -> PathBuf {
        let state = Self::socket_in(dir).with_file_name("state").display().to_string();
        let flat = state.trim_start_matches('/').replace('/', "-");
        PathBuf::from("/dev/shm/sluice").join(flat)
    }

    /// Where the configuration of a lab's director is.
    pub fn config_in(dir: &Path) -> PathBuf {
        dir.join("sluice.toml")
    }

    /// Writes the configuration, starts the director, waits until it is ready, and settles the
    /// addresses of its twins.
    ///
    /// # Errors
    /// When it ends or is not ready within 30 s, with what it said.
    pub fn start(bed: &Bed, config: &str) -> Result<Self, LabError> {
        Self::start_with(bed, config, &[])
    }

    /// [`Self::start`] with additional environment variables.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        bed: &Bed,
        config: &str,
        environment: &[(&str, &str)],
    ) -> Result<Self, LabError> {
        let mut director = Self::launch(bed, config, environment)?;
        director.wait_ready()?;
        bed.settle_twins()?;
        Ok(director)
    }

    /// Starts it and does not wait.
    ///
    /// # Errors
    /// When it is not built or cannot be started.
    pub fn launch(bed: &Bed, config: &str, environment: &[(&str, &str)]) -> Result<Self, LabError> {
        Self::launch_in(&bed.director, config, environment)
    }

    /// [`Self::launch`] without a bed, in any namespace of a lab.
    ///
    /// # Errors
    /// As [`Self::launch`].
    pub fn launch_in(
        space: &Netns,
        config: &str,
        environment: &[(&str, &str)],
    ) -> Result<Self, LabError> {
        Self::launch_program(space, &program("sluiced")?, config, environment)
    }

    /// [`Self::launch_in`] with a program of its own.
    ///
    /// # Errors
    /// As [`Self::launch`].
    pub fn launch_program(
        space: &Netns,
        sluiced: &Path,
        config: &str,
        environment: &[(&str, &str)],
    ) -> Result<Self, LabError> {
        let sluice = program("sluice")?;
        let dir = space.dir();
        let path = Self::config_in(dir);
        std::fs::write(&path, config).map_err(LabError::file(path.display().to_string()))?;
        let mut command = space.command(&sluiced.to_string_lossy());
        command.arg("--config").arg(&path).envs(environment.iter().copied());
        let running = Running::start("sluiced", &mut command, &dir.join("sluiced.log"))?;
        let socket = Self::socket_in(dir);
        Ok(Self { running, sluice, space: space.clone(), config: path, socket })
    }

    /// Waits until `sluice status` is answered.
    ///
    /// # Errors
    /// When the director ends first or 30 s pass, with what it said.
    pub fn wait_ready(&mut self) -> Result<(), LabError> {
        let mut answer = String::new();
        let ready = wait_until("the director to be ready", READY_LIMIT, || {
            if let Some(status) = self.running.ended()? {
                return Err(LabError::Wrong(format!("the director ended ({status})")));
            }
            match self.ask("status") {
                Ok(_) => Ok(Some(())),
                Err(error) => {
                    answer = error.to_string();
                    Ok(None)
                }
            }
        });
        ready.map_err(|error| {
            let said = self.said(30);
            LabError::Wrong(format!("{error} ({answer}); it said:\n{said}"))
        })
    }

    /// One of `sluice`'s commands in JSON.
    ///
    /// # Errors
    /// When it fails or answers something that is not JSON.
    pub fn ask(&self, command: &str) -> Result<Value, LabError> {
        let text = self.sluice(&[command, "--json"])?;
        serde_json::from_str(&text)
            .map_err(|_| LabError::Unreadable { what: format!("`sluice {command} --json`"), text })
    }

    /// One of `sluice`'s commands as an operator reads it.
    ///
    /// # Errors
    /// When it fails.
    pub fn sluice(&self, args: &[&str]) -> Result<String, LabError> {
        let socket = self.socket.to_string_lossy();
        let mut all = vec!["--socket", &*socket];
        all.extend(args);
        Ok(self.space.run(&self.sluice.to_string_lossy(), &all)?.ok()?.stdout)
    }

    /// The last lines of its log.
    pub fn said(&self, lines: usize) -> String {
        self.running.log_tail(lines)
    }

    /// All of its log.
    pub fn log(&self) -> String {
        self.running.log()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Whether it has not ended.
    ///
    /// # Errors
    /// When the system will not say.
    pub fn runs(&mut self) -> Result<bool, LabError> {
        Ok(self.running.ended()?.is_none())
    }

    /// Its configuration file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Its control socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Writes another configuration and sends SIGHUP.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn reload(&self, config: &str) -> Result<(), LabError> {
        std::fs::write(&self.config, config)
            .map_err(LabError::file(self.config.display().to_string()))?;
        self.running.signal(Signal::HUP);
        Ok(())
    }

    /// Waits until its log holds `text`.
    ///
    /// # Errors
    /// When it ends, or does not say it within `limit`.
    pub fn wait_for_words(&mut self, text: &str, limit: Duration) -> Result<(), LabError> {
        self.running.wait_for_words(text, limit)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// SIGTERM, and waits for the end.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> Result<ExitStatus, LabError> {
        self.running.stop()
    }

    /// SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// When it does not end.
    pub fn kill(&mut self) -> Result<ExitStatus, LabError> {
        self.running.kill()
    }

    /// Lets it live on after this handle is gone.
    pub fn leave(&mut self) {
        self.running.leave();
    }

    /// Processor time it uses over a span, in percent of one core, all its threads together.
    ///
    /// # Errors
    /// When it is gone.
    pub fn cpu_percent(&self, over: Duration) -> Result<f64, LabError> {
        let before = self.cpu_ticks()?;
        let started = Instant::now();
        // Not a wait for something to happen: the span is what is measured.
        std::thread::sleep(over);
        let used = self.cpu_ticks()?.saturating_sub(before);
        let ticks_per_s = rustix::param::clock_ticks_per_second();
        #[allow(clippy::cast_precision_loss)] // seconds of ticks are far below 2^52
        let used_s = used as f64 / ticks_per_s as f64;
        Ok(100.0 * used_s / started.elapsed().as_secs_f64())
    }

    fn cpu_ticks(&self) -> Result<u64, LabError> {
        let path = format!("/proc/{}/stat", self.pid());
        let text = std::fs::read_to_string(&path).map_err(LabError::file(path.clone()))?;
        let unreadable = || LabError::Unreadable { what: path.clone(), text: text.clone() };
        // proc(5): after the parenthesised name come state (3), …, utime (14), stime (15).
        let rest = text.rsplit_once(')').ok_or_else(unreadable)?.1;
        let ticks = |field: usize| rest.split_whitespace().nth(field - 3)?.parse::<u64>().ok();
        ticks(14).zip(ticks(15)).map(|(user, system)| user + system).ok_or_else(unreadable)
    }
}
