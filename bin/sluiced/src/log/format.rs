//! A message as a line: for people, or as a JSON object with the names of OpenTelemetry's log data
//! model (Timestamp, SeverityText, SeverityNumber, Body, Attributes, Resource,
//! InstrumentationScope), written with underscores.

use super::redact::redact;
use serde_json::{Map, Value, json};
use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How lines are written.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines {
    /// JSON, or text.
    pub is_json: Arc<AtomicBool>,
    /// Whether they go to the journal: then each begins with its level (sd-daemon(3)), and text has
    /// no time of its own.
    pub journal: bool,
    /// Whether they may be coloured.
    pub colour: bool,
}

/// What an event says.
#[derive(Default)]
struct Said {
    body: String,
    attributes: Map<String, Value>,
}

impl Said {
    fn set(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.body = text,
            ("message", other) => self.body = other.to_string(),
            // What the `log` crate's messages bring along.
            (name, _) if name.starts_with("log.") => {}
            (name, value) => drop(self.attributes.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, redact(&format!("{value:?}")).into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, redact(value).into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let text = if self.is_json.load(Ordering::Relaxed) {
            json_line(&time, level, target, said)
        } else {
            self.text_line(&time, level, target, &said)?
        };
        if !self.journal {
            return writeln!(writer, "{text}");
        }
        // Each line is an entry of its own there.
        text.lines().try_for_each(|line| writeln!(writer, "<{}>{line}", priority(level)))
    }
}

impl Lines {
    fn text_line(
        &self,
        time: &str,
        level: Level,
        target: &str,
        said: &Said,
    ) -> Result<String, fmt::Error> {
        let mut line = String::new();
        if !self.journal {
            write!(line, "{time} ")?;
        }
        match self.colour {
            true => write!(line, "\u{1b}[{}m{level:>5}\u{1b}[0m ", colour(level))?,
            false => write!(line, "{level:>5} ")?,
        }
        write!(line, "{target}: {}", said.body)?;
        for (name, value) in &said.attributes {
            match value {
                Value::String(text) if is_plain(text) => write!(line, " {name}={text}")?,
                Value::String(text) => write!(line, " {name}={text:?}")?,
                other => write!(line, " {name}={other}")?,
            }
        }
        Ok(line)
    }
}

/// Whether a value can be told from what follows it without quotes.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"')
}

fn json_line(time: &str, level: Level, target: &str, said: Said) -> String {
    json!({
        "timestamp": time,
        "severity_text": level.as_str(),
        "severity_number": severity(level),
        "body": said.body,
        "attributes": said.attributes,
        "resource": {
            "service.name": "sluiced",
            "service.version": env!("CARGO_PKG_VERSION"),
            "process.pid": std::process::id(),
        },
        "scope": { "name": target },
    })
    .to_string()
}

/// OpenTelemetry's number of a level: the first of each range.
fn severity(level: Level) -> u8 {
    match level {
        Level::TRACE => 1,
        Level::DEBUG => 5,
        Level::INFO => 9,
        Level::WARN => 13,
        Level::ERROR => 17,
    }
}

/// The journal's, which is syslog's (RFC 5424).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG => 34,
        Level::TRACE => 35,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Mutex;
    use tracing_subscriber::prelude::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(lines: Lines, log: impl FnOnce()) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .event_format(lines);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    fn some_messages() {
        tracing::warn!(real = %"192.0.2.11", port = 80, reason = "no answer", "it is down");
        tracing::error!(up = false, took_s = 0.5, "two\nlines and a bearer s3cr3t");
    }

    #[test]
    fn json_has_the_names_of_opentelemetry() {
        let json = Lines { is_json: Arc::new(true.into()), ..Lines::default() };
        let text = logged(json, some_messages);
        let lines: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("an object a line"))
            .collect();
        assert_eq!(lines.len(), 2);
        let first = &lines[0];
        assert_eq!(
            (&first["severity_text"], &first["severity_number"]),
            (&json!("WARN"), &json!(13))
        );
        assert_eq!(first["body"], "it is down");
        let attributes = json!({ "real": "192.0.2.11", "port": 80, "reason": "no answer" });
        assert_eq!(first["attributes"], attributes);
        assert_eq!(first["resource"]["service.name"], "sluiced");
        let time = first["timestamp"].as_str().expect("a time");
        assert!(time.len() == 27 && time.ends_with('Z') && &time[10..11] == "T", "{time}");
        assert_eq!(lines[1]["body"], "two\nlines and a bearer [redacted]");
        assert_eq!(lines[1]["attributes"], json!({ "up": false, "took_s": 0.5 }));
    }

    #[test]
    fn text_is_a_line_for_people() {
        let text = logged(Lines::default(), some_messages);
        let (time, rest) = text.split_once(' ').expect("a time");
        assert!(time.ends_with('Z'));
        let target = module_path!();
        let wanted =
            format!(" WARN {target}: it is down real=192.0.2.11 port=80 reason=\"no answer\"\n");
        assert!(rest.starts_with(&wanted), "{rest}");
        assert!(rest.contains(" up=false took_s=0.5") && !text.contains("s3cr3t"));
    }

    /// The journal takes the level from the front of each line, and has the time itself.
    #[test]
    fn the_journal_is_told_the_level_of_each_line() {
        let text = logged(Lines { journal: true, ..Lines::default() }, some_messages);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("<4> WARN "), "{text}");
        assert!(
            lines[1].starts_with("<3>ERROR ") && lines[2].starts_with("<3>lines and"),
            "{text}"
        );
    }
}
