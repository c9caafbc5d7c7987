//! The page as text: Prometheus' text format 0.0.4, or OpenMetrics 1.0.0.
//!
//! With 10,000 services of ten real servers it has a million lines, so a line is a few copies into
//! one buffer: what does not change from scrape to scrape (labels) is made beforehand, and no line
//! asks for memory of its own.

use crate::families::{Family, Kind};
use sluice_api::Exposition;
use std::io::Write;

/// A page that is being written.
pub(crate) struct Page {
    out: Vec<u8>,
    exposition: Exposition,
    numbers: itoa::Buffer,
    /// The family that is being written.
    family: Option<&'static Family>,
}

/// Something that is counted or measured.
pub(crate) enum Value {
    /// Exact.
    Whole(u64),
    /// In seconds, mostly.
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl Page {
    /// An empty page with room for so many bytes.
    pub fn new(exposition: Exposition, room: usize) -> Self {
        let out = Vec::with_capacity(room);
        Self { out, exposition, numbers: itoa::Buffer::new(), family: None }
    }

    /// Begins a family: what follows are its samples.
    pub fn family(&mut self, family: &'static Family) {
        self.family = Some(family);
        let open = self.exposition == Exposition::OpenMetrics;
        let kind = match (family.kind, open) {
            (Kind::Counter, _) => "counter",
            (Kind::Info, true) => "info",
            (Kind::Gauge | Kind::Info, _) => "gauge",
        };
        // OpenMetrics names families without what their samples end in.
        let suffix = if open { "" } else { family.suffix() };
        for (word, rest) in [("HELP", family.help), ("TYPE", kind)] {
            for part in ["# ", word, " ", family.name, suffix, " "] {
                self.out.extend_from_slice(part.as_bytes());
            }
            escape(&mut self.out, rest, open);
            self.out.push(b'\n');
        }
    }

    /// A sample of the family. `labels` are `a="b",c="d"`, escaped; `last` is one more label,
    /// whose value needs no escaping.
    pub fn sample(&mut self, labels: &str, last: Option<(&str, &str)>, value: impl Into<Value>) {
        let Some(family) = self.family else { return };
        let out = &mut self.out;
        out.extend_from_slice(family.name.as_bytes());
        out.extend_from_slice(family.suffix().as_bytes());
        if !labels.is_empty() || last.is_some() {
            out.push(b'{');
            out.extend_from_slice(labels.as_bytes());
            if let Some((name, value)) = last {
                if !labels.is_empty() {
                    out.push(b',');
                }
                for part in [name, "=\"", value, "\""] {
                    out.extend_from_slice(part.as_bytes());
                }
            }
            out.push(b'}');
        }
        out.push(b' ');
        match value.into() {
            Value::Whole(value) => out.extend_from_slice(self.numbers.format(value).as_bytes()),
            // Writing to a vector does not fail.
            Value::Real(value) => drop(write!(out, "{value}")),
        }
        out.push(b'\n');
    }

    /// A family with one sample that has no labels.
    pub fn one(&mut self, family: &'static Family, value: impl Into<Value>) {
        self.family(family);
        self.sample("", None, value);
    }

    /// The finished page.
    pub fn finish(mut self) -> Vec<u8> {
        if self.exposition == Exposition::OpenMetrics {
            self.out.extend_from_slice(b"# EOF\n");
        }
        self.out
    }
}

/// Labels as a sample has them.
pub(crate) fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = Vec::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push(b',');
        }
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b"=\"");
        escape(&mut text, value, true);
        text.push(b'"');
    }
    // What was put in was text, and what escapes it is ASCII.
    String::from_utf8(text).unwrap_or_default()
}

/// Backslashes and line feeds, and quotes where they would end the text.
fn escape(out: &mut Vec<u8>, text: &str, quotes: bool) {
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(br"\\"),
            b'\n' => out.extend_from_slice(br"\n"),
            b'"' if quotes => out.extend_from_slice(br#"\""#),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families;

    fn written(exposition: Exposition) -> String {
        let mut page = Page::new(exposition, 0);
        page.one(&families::SESSIONS_OPENED, 7);
        page.family(&families::PORT);
        page.sample(&labels(&[("port", "a\"b\\c\nd"), ("device", "é")]), None, true);
        page.family(&families::WORKER_SECONDS);
        page.sample(&labels(&[("worker", "0")]), Some(("mode", "busy")), 0.25);
        String::from_utf8(page.finish()).expect("text")
    }

    /// The two formats differ in what families are called, in one type, and in how they end.
    #[test]
    fn both_formats_are_as_they_are_specified() {
        let samples = [
            "sluice_sessions_opened_total 7\n",
            "sluice_port_info{port=\"a\\\"b\\\\c\\nd\",device=\"é\"} 1\n",
            "sluice_worker_seconds_total{worker=\"0\",mode=\"busy\"} 0.25\n",
        ];
        let heads = |names: [&str; 3], info: &str| {
            [
                format!("# HELP {} Sessions opened.\n# TYPE {0} counter\n", names[0]),
                format!("# HELP {} Properties of a port.\n# TYPE {0} {info}\n", names[1]),
                format!(
                    "# HELP {} {}\n# TYPE {0} counter\n",
                    names[2],
                    families::WORKER_SECONDS.help
                ),
            ]
        };
        let page = |heads: [String; 3], end| {
            let all = heads.iter().zip(samples).map(|(head, sample)| format!("{head}{sample}"));
            all.collect::<String>() + end
        };
        let text =
            ["sluice_sessions_opened_total", "sluice_port_info", "sluice_worker_seconds_total"];
        assert_eq!(written(Exposition::Text), page(heads(text, "gauge"), ""));
        let open = ["sluice_sessions_opened", "sluice_port", "sluice_worker_seconds"];
        assert_eq!(written(Exposition::OpenMetrics), page(heads(open, "info"), "# EOF\n"));
    }
}
