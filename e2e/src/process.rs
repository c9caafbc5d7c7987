//! Programs that a lab runs: short ones with a time limit, long ones with a log file, and waiting
//! for what they bring about. Nothing here sleeps for a guessed time: everything is polled against
//! a deadline.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::LabError;

/// How long a program may take to die after a signal.
const PATIENCE_S: u64 = 15;
const POLL: Duration = Duration::from_millis(20);

/// What a program said before it ended.
#[derive(Debug, Clone)]
pub struct Ran {
    /// The command line.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    fn new(command: String, output: Output) -> Self {
        Self {
            command,
            status: output.status,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// This, when the program succeeded.
    ///
    /// # Errors
    /// [`LabError::Failed`] with all the program said otherwise.
    pub fn ok(self) -> Result<Self, LabError> {
        if self.status.success() {
            return Ok(self);
        }
        let output = format!("{}{}", self.stdout, self.stderr).trim().to_owned();
        Err(LabError::Failed { command: self.command, status: self.status.to_string(), output })
    }
}

/// The command line in words, for messages.
pub fn words(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for word in command.get_args() {
        line.push(' ');
        line.push_str(&word.to_string_lossy());
    }
    line
}

/// Runs a command to its end, whatever that is. Give it its own time limit (`timeout`).
///
/// # Errors
/// When it cannot be started.
pub fn run(command: &mut Command) -> Result<Ran, LabError> {
    let line = words(command);
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Ok(Ran::new(line, output)),
        Err(source) => Err(LabError::Start { command: line, source }),
    }
}

/// Asks `probe` again and again until it answers.
///
/// # Errors
/// [`LabError::Late`] after `limit`, or the probe's own error at once.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl FnMut() -> Result<Option<T>, LabError>,
) -> Result<T, LabError> {
    let started = Instant::now();
    loop {
        if let Some(found) = probe()? {
            return Ok(found);
        }
        if started.elapsed() > limit {
            return Err(LabError::Late {
                what: what.to_owned(),
                waited_s: limit.as_secs(),
                detail: String::new(),
            });
        }
        std::thread::sleep(POLL);
    }
}

/// A program that runs beside the others, its words going to a log file. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    what: String,
    child: Child,
    log: PathBuf,
    left: bool,
}

impl Running {
    /// Starts a command in a process group of its own (so that Ctrl-C reaches only the lab, which
    /// then ends everything in order). Output and errors go to `log`.
    ///
    /// # Errors
    /// When it cannot be started or the log cannot be made.
    pub fn start(what: &str, command: &mut Command, log: &Path) -> Result<Self, LabError> {
        Self::spawn(what, command.stdin(Stdio::null()), log)
    }

    /// [`Self::start`] for a program that is told by its standard input what to do.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_told(
        what: &str,
        command: &mut Command,
        log: &Path,
    ) -> Result<(Self, ChildStdin), LabError> {
        let mut running = Self::spawn(what, command.stdin(Stdio::piped()), log)?;
        let input = running.child.stdin.take();
        let input = input.ok_or_else(|| LabError::Wrong(format!("{what} has no input")))?;
        Ok((running, input))
    }

    fn spawn(what: &str, command: &mut Command, log: &Path) -> Result<Self, LabError> {
        let file = File::create(log).map_err(LabError::file(log.display().to_string()))?;
        let twin = file.try_clone().map_err(LabError::file(log.display().to_string()))?;
        let line = words(command);
        let child = command
            .stdout(file)
            .stderr(twin)
            .process_group(0)
            .spawn()
            .map_err(|source| LabError::Start { command: line, source })?;
        Ok(Self { what: what.to_owned(), child, log: log.to_owned(), left: false })
    }

    /// Its process id. (`ip netns exec` becomes the program, so this is the program's own.)
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All it has said so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The last lines it said.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// How it ended, or `None` while it runs.
    ///
    /// # Errors
    /// When the system will not say.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child.try_wait().map_err(LabError::file(format!("waiting for {}", self.what)))
    }

    /// Sends a signal; nothing happens when it has ended already.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // An error only says that it is gone, which `ended` shows better.
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits for it to end.
    ///
    /// # Errors
    /// [`LabError::Late`] with the end of its log.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, LabError> {
        let what = format!("the end of {}", self.what);
        match wait_until(&what, limit, || self.ended()) {
            Err(LabError::Late { what, waited_s, .. }) => Err(LabError::Late {
                what,
                waited_s,
                detail: format!("; it said:\n{}", self.log_tail(20)),
            }),
            other => other,
        }
    }

    /// SIGTERM, then waits.
    ///
    /// # Errors
    /// When it does not end within 15 s.
    pub fn stop(&mut self) -> Result<ExitStatus, LabError> {
        self.signal(Signal::TERM);
        self.wait(Duration::from_secs(PATIENCE_S))
    }

    /// SIGKILL, then waits.
    ///
    /// # Errors
    /// When even that does not end it.
    pub fn kill(&mut self) -> Result<ExitStatus, LabError> {
        self.signal(Signal::KILL);
        self.wait(Duration::from_secs(PATIENCE_S))
    }

    /// Waits until its log holds `text`.
    ///
    /// # Errors
    /// When it ends first or takes longer than `limit`; both with the end of its log.
    pub fn wait_for_words(&mut self, text: &str, limit: Duration) -> Result<(), LabError> {
        let what = format!("{} to say `{text}`", self.what);
        let found = wait_until(&what, limit, || {
            if self.log().contains(text) {
                return Ok(Some(true));
            }
            Ok(self.ended()?.map(|_| false))
        });
        let detail = match found {
            Ok(true) => return Ok(()),
            Ok(false) => "it ended",
            Err(LabError::Late { .. }) => "time is up",
            Err(other) => return Err(other),
        };
        Err(LabError::Wrong(format!("{what}: {detail}; it said:\n{}", self.log_tail(20))))
    }

    /// Lets it live on after this handle is gone.
    pub fn leave(&mut self) {
        self.left = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.left || matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
