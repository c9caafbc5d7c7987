//! The log: to standard error, as text or as JSON, with what repeats left out and secrets made
//! unreadable.
//!
//! Messages are `tracing`'s events. What decides about them is the level, then [`limit`], which
//! counts what it leaves out; [`mod@format`] makes a line, which [`mod@redact`] has looked
//! through, and [`mod@output`] writes it. Level and format follow the configuration while the
//! director runs.

mod format;
mod limit;
mod output;
mod redact;

use format::Lines;
use limit::Limit;
use output::Output;
use sluice_config::{Director, LogFormat, LogLevel};
use std::io::{IsTerminal, Stderr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tracing::warn;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

/// The running log.
pub(crate) struct Log {
    set_level: Box<dyn Fn(LogLevel)>,
    is_json: Arc<AtomicBool>,
    /// What the command line says, which goes before the configuration.
    fixed: Option<LogFormat>,
    limit: Limit,
    output: Output<Stderr>,
}

impl Log {
    /// Begins to log. To be called once in a process.
    pub fn start(director: &Director, fixed: Option<LogFormat>) -> Self {
        let first = level_filter(director.log_level);
        let (filter, handle) = tracing_subscriber::reload::Layer::new(first);
        let is_json = Arc::new(AtomicBool::new(false));
        let limit = Limit::default();
        let lines = Lines {
            is_json: Arc::clone(&is_json),
            journal: is_journal(),
            colour: std::io::stderr().is_terminal(),
        };
        let output = Output::new(std::io::stderr(), output::PATIENCE);
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(output.clone())
            .event_format(lines)
            .with_filter(limit.clone());
        tracing_subscriber::registry().with(filter).with(layer).init();
        let set_level = Box::new(move |level| {
            // Fails only when the subscriber is gone, with the process.
            let _ = handle.modify(|filter| *filter = level_filter(level));
        });
        let log = Self { set_level, is_json, fixed, limit, output };
        log.follow(director);
        log
    }

    /// Logs as the configuration says from now on.
    pub fn follow(&self, director: &Director) {
        (self.set_level)(director.log_level);
        let format = self.fixed.unwrap_or(director.log_format);
        self.is_json.store(format == LogFormat::Json, Ordering::Relaxed);
    }

    /// Says what was left out. To be called about once a second.
    pub fn look_after(&self) {
        self.limit.tell(Instant::now());
        let lost = self.output.lost();
        if lost > 0 {
            warn!(lost, "messages were lost: nobody read the log");
        }
    }
}

const fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Whether standard error is the journal's: `JOURNAL_STREAM` names its device and inode
/// (systemd.exec(5)), and is inherited by processes whose standard error is something else.
fn is_journal() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    let file = std::io::stderr().as_fd().try_clone_to_owned().map(std::fs::File::from);
    file.and_then(|file| file.metadata())
        .is_ok_and(|found| named == format!("{}:{}", found.dev(), found.ino()))
}
