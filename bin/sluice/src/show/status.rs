//! `sluice status`.

use std::fmt::Write;

use sluice_api::model::{IdleMode, Reload, SessionCounts, Status, Worker};

use crate::advice::{Reached, word};

use super::figures::{count, memory, percent, percent_of, span};
use super::table::{Align, Cell, Table};
use super::{BAD, NOTE, Shown, TITLE, styled};

/// Columns before what is said of a topic.
const MARGIN: usize = 17;
/// Share of the session table from which it counts as nearly full.
const NEARLY_FULL: f64 = 0.9;

/// The director as a whole, at `now_unix_s` seconds since 1970, as it was `reached`.
pub fn status(status: &Status, now_unix_s: u64, reached: &Reached) -> Shown {
    let up = span(status.uptime_s);
    let head = format!("sluiced {}, pid {}, up {up}", status.version, status.pid);
    let mut out = styled(TITLE, &head) + "\n";
    let mut topic = |name: &str, text: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {name:<0$}{text}", MARGIN - 2);
    };
    topic("configuration", &configuration(status, reached));
    if let Some(last) = &status.last_reload {
        topic("last reload", &reload(last, now_unix_s));
    }
    topic("sessions", &sessions(status));
    topic("memory", &memory_of(status));
    topic("idle workers", idle(status.idle));
    topic("handed off", &format!("{} packets between workers", count(status.handed_off)));
    out.push('\n');
    out.push_str(&workers(&status.workers));
    Shown::new(out)
}

fn configuration(status: &Status, reached: &Reached) -> String {
    let Status { config_epoch, plan_epoch, .. } = status;
    let mut out = format!("{}, epoch {config_epoch}, plan {plan_epoch}", status.config.display());
    if status.differs_from_file {
        let command = reached.sluice(&format!("config diff {}", file_of(status)));
        let note = format!("what runs is not what it says: see `{command}`");
        out += &format!("\n{:MARGIN$}{}", "", styled(NOTE, &note));
    }
    if !status.durable {
        let note = "changes made at run time do not survive a restart";
        out += &format!("\n{:MARGIN$}{}", "", styled(NOTE, note));
    }
    out
}

/// The configuration file as a word of a command line.
pub(crate) fn file_of(status: &Status) -> String {
    word(&status.config.display().to_string())
}

fn reload(reload: &Reload, now_unix_s: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // seconds of an age
    let ago = span(now_unix_s.saturating_sub(reload.at_unix_s) as f64);
    if reload.ok {
        return format!("accepted {ago} ago");
    }
    let mut out = styled(BAD, &format!("refused {ago} ago, the plan before it still runs"));
    for line in reload.error.as_deref().unwrap_or("no reason was given").lines() {
        let _ = write!(out, "\n{:MARGIN$}{line}", "");
    }
    out
}

fn sessions(status: &Status) -> String {
    let sessions = &status.sessions;
    let (live, capacity) = (sessions.live, sessions.capacity);
    let now = format!("{} of {} ({})", count(live), count(capacity), percent_of(live, capacity));
    #[allow(clippy::cast_precision_loss)] // a share
    let nearly_full = live as f64 >= capacity as f64 * NEARLY_FULL;
    format!(
        "{}{}; {} opened, {} closed, {} expired{}{}{}",
        if nearly_full { styled(NOTE, &now) } else { now },
        half_open(sessions),
        count(sessions.created),
        count(sessions.closed),
        count(sessions.expired),
        if sessions.killed > 0 {
            format!(", {} killed", count(sessions.killed))
        } else {
            String::new()
        },
        if sessions.evicted > 0 {
            format!(", {} evicted", count(sessions.evicted))
        } else {
            String::new()
        },
        if sessions.ignored_ends > 0 {
            format!("; {} resets and FINs ignored", count(sessions.ignored_ends))
        } else {
            String::new()
        }
    )
}

/// The half-open sessions, under pressure.
fn half_open(sessions: &SessionCounts) -> String {
    if sessions.pressed_workers == 0 {
        return String::new();
    }
    let text = format!("{} half-open, under pressure", count(sessions.half_open));
    format!(", {}", styled(NOTE, &text))
}

fn memory_of(status: &Status) -> String {
    let packets = if status.huge_pages { "huge" } else { "ordinary" };
    let tables = memory(status.memory.bytes);
    format!(
        "{tables} of session tables in {} pages{}, packets in {packets} pages",
        status.memory.pages,
        if status.memory.kept { ", kept over a restart" } else { "" }
    )
}

fn idle(mode: IdleMode) -> &'static str {
    match mode {
        IdleMode::Adaptive => "sleep until traffic wakes them (adaptive)",
        IdleMode::Busy => "go on polling (busy)",
    }
}

fn workers(workers: &[Worker]) -> String {
    use Align::Right;
    let mut table = Table::new([
        ("WORKER", Right),
        ("CORE", Right),
        ("BUSY", Right),
        ("SESSIONS", Right),
        ("FULL", Right),
        ("PACKETS", Right),
        ("TURNS", Right),
        ("EMPTY", Right),
        ("SLEEPS", Right),
        ("HELD", Right),
    ]);
    for worker in workers {
        table.row([
            worker.worker.to_string().into(),
            worker.core.to_string().into(),
            percent(worker.busy_share).into(),
            count(worker.sessions).into(),
            percent_of(worker.sessions, worker.session_capacity).into(),
            count(worker.packets).into(),
            count(worker.turns).into(),
            percent_of(worker.empty_turns, worker.turns).into(),
            count(worker.sleeps).into(),
            Cell::from(count(worker.held_frames)).style_if(worker.held_frames > 0, NOTE),
        ]);
    }
    table.text()
}
