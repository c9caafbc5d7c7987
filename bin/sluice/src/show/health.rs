//! `sluice health` and `sluice events`.

use sluice_api::model::{Checked, Event, EventKind, Events, Health, HealthState, ProbeOutcome};

use super::figures::span;
use super::table::{Align, Cell, Table};
use super::{BAD, NOTE, Shown};

/// Checks, in the order of the configuration.
pub fn health(health: &Health, width: Option<usize>) -> Shown {
    if health.checks.is_empty() {
        let remark = "no service names a check; see [[check]] in docs/config.md";
        return Shown { text: String::new(), remark: Some(remark.to_owned()) };
    }
    use Align::{Left, Right};
    let mut table = Table::new([
        ("SERVICE", Left),
        ("REAL SERVER", Left),
        ("CHECK", Left),
        ("STATE", Left),
        ("FOR", Right),
        ("TOOK", Right),
        ("NEXT", Right),
        ("LAST PROBE AND REASON", Left),
    ]);
    for check in &health.checks {
        let last = check.last.as_ref();
        table.row([
            check.service.as_str().into(),
            real(check.address, check.port).into(),
            format!("{} ({})", check.check, check.kind).into(),
            state(check),
            span(check.for_s).into(),
            last.map_or_else(String::new, |last| format!("{:.1} ms", last.took_ms)).into(),
            check.next_in_ms.map_or("now".to_owned(), seconds).into(),
            reason(check).into(),
        ]);
    }
    let text = table.flowing(width);
    let remark = (health.restarts > 0)
        .then(|| format!("the thread of the checks was replaced {} times", health.restarts));
    Shown { text, remark }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms / 100 % 10)
}

fn real(address: std::net::IpAddr, port: u16) -> String {
    match port {
        0 => address.to_string(),
        port => std::net::SocketAddr::new(address, port).to_string(),
    }
}

fn state(check: &Checked) -> Cell {
    let word = check.state.name();
    match (check.state, check.serves) {
        (HealthState::Down, true) => Cell::from(format!("{word}, kept")).style(BAD),
        (HealthState::Down, false) => Cell::from(word).style(BAD),
        (_, false) => Cell::from(format!("{word}, idle")).style(NOTE),
        (HealthState::Unknown, true) => Cell::from(word).style(NOTE),
        (HealthState::Up, true) => Cell::from(word),
    }
}

/// What the last probe found; and why the state is what it is, if that is something else.
fn reason(check: &Checked) -> String {
    let Some(last) = &check.last else { return String::new() };
    let last_text = match last.outcome {
        ProbeOutcome::Blind => format!("cannot look: {}", last.text),
        ProbeOutcome::Passed | ProbeOutcome::Failed => last.text.clone(),
    };
    match check.state {
        HealthState::Down if last.text != check.reason => {
            format!("{last_text}; went down: {}", check.reason)
        }
        _ => last_text,
    }
}

/// Events, the latest at the end.
pub fn events(events: &Events, width: Option<usize>) -> Shown {
    if events.events.is_empty() {
        return Shown { text: String::new(), remark: Some("nothing has happened yet".to_owned()) };
    }
    use Align::Left;
    let mut table = Table::new([
        ("TIME (UTC)", Left),
        ("KIND", Left),
        ("SERVICE", Left),
        ("REAL SERVER", Left),
        ("WHAT", Left),
    ]);
    for event in &events.events {
        table.row([
            clock(event).into(),
            event.kind.name().into(),
            event.service.as_str().into(),
            event.address.map_or(String::new(), |at| real(at, event.port.unwrap_or(0))).into(),
            Cell::from(what(event)).style_if(is_bad(event), BAD),
        ]);
    }
    Shown::new(table.flowing(width))
}

/// One event on a line of its own.
pub fn event(event: &Event) -> String {
    let about = event.address.map(|at| real(at, event.port.unwrap_or(0)));
    let service = (!event.service.is_empty()).then(|| event.service.clone());
    let words = [Some(clock(event)), Some(event.kind.name().to_owned()), service, about];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let what = what(event);
    let what = if is_bad(event) { super::styled(BAD, &what) } else { what };
    format!("{}  {what}\n", words.join("  "))
}

fn is_bad(event: &Event) -> bool {
    event.to == Some(HealthState::Down)
        || matches!(event.kind, EventKind::Reload | EventKind::Drops)
}

/// What happened, and who did it.
fn what(event: &Event) -> String {
    let reason = event.reason.replace('\n', " ");
    let text = match (event.from, event.to) {
        (Some(from), Some(to)) => format!("{} -> {}: {reason}", from.name(), to.name()),
        _ => reason,
    };
    match (&event.author, event.epoch) {
        (Some(author), Some(epoch)) => format!("{text} (epoch {epoch}, by {author})"),
        (Some(author), None) => format!("{text} (by {author})"),
        _ => text,
    }
}

/// `2026-03-01 12:34:56.789`, by Hinnant's `civil_from_days`.
fn clock(event: &Event) -> String {
    let (ms, seconds) = (event.at_unix_ms % 1000, event.at_unix_ms / 1000);
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{ms:03}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::model::Probe;

    fn checked(state: HealthState, serves: bool, last: &str, reason: &str) -> Checked {
        Checked {
            service: "web".to_owned(),
            address: [192, 0, 2, 11].into(),
            port: 80,
            check: "page".to_owned(),
            kind: "http".to_owned(),
            state,
            for_s: 61.0,
            reason: reason.to_owned(),
            serves,
            last: Some(Probe {
                outcome: ProbeOutcome::Failed,
                text: last.to_owned(),
                took_ms: 1.25,
            }),
            next_in_ms: Some(1450),
            probes: 7,
        }
    }

    #[test]
    fn health_reads_well() {
        let checks = vec![
            checked(HealthState::Down, false, "connect: refused", "HTTP status 503"),
            checked(HealthState::Up, false, "HTTP status 200", ""),
        ];
        let text = health(&Health { checks, restarts: 0 }, None).text;
        let plain = anstream::adapter::strip_str(&text).to_string();
        let lines: Vec<&str> = plain.lines().collect();
        assert_eq!(
            lines[1],
            "web      192.0.2.11:80  page (http)  down      1m 1s  1.2 ms  1.4 s  connect: \
             refused; went down: HTTP status 503"
        );
        assert!(lines[2].contains("up, idle"), "{plain}");
    }

    #[test]
    fn times_are_of_the_calendar() {
        let at = |at_unix_ms| clock(&Event { at_unix_ms, ..Event::new(EventKind::Health, "") });
        // As `date -u -d @...` has them.
        assert_eq!(at(0), "1970-01-01 00:00:00.000");
        assert_eq!(at(1_709_210_096_007), "2024-02-29 12:34:56.007");
        assert_eq!(at(4_107_542_399_000), "2100-02-28 23:59:59.000");
    }
}
