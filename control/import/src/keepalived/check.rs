//! Checkers become `[[check]]` sections.

use std::net::IpAddr;

use serde_json::Value;

use super::block::account;
use super::timing::Timing;
use super::tree::Statement;
use super::{seconds, words};
use crate::note::{Place, Report};
use crate::target::{Table, readable};

/// A checker, converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The check's keys but its name.
    pub content: Table,
    /// Where probes go, if not to the real server's address.
    pub address: Option<IpAddr>,
    /// The same of the port.
    pub port: Option<u16>,
    /// Where it is.
    pub place: Place,
}

impl Found {
    /// Whether its probes go to a port.
    pub fn has_port(&self) -> bool {
        let kind = self.content.get("kind").and_then(Value::as_str);
        !matches!(kind, Some("ping" | "script"))
    }
}

/// Whether a word begins a checker.
pub fn is_checker(word: &str) -> bool {
    word.ends_with("_CHECK") || word == "HTTP_GET" || word == "SSL_GET"
}

struct Reading<'r> {
    found: Found,
    timing: Timing,
    virtual_host: Option<String>,
    checker: &'r str,
    report: &'r mut Report,
}

/// Converts a checker; `around` and `virtual_host` are what the real server says.
pub fn convert(
    statement: &Statement,
    around: &Timing,
    virtual_host: Option<&str>,
    report: &mut Report,
) -> Option<Found> {
    let (checker, place) = (statement.word(0), statement.place.clone());
    let kind = match checker {
        "TCP_CHECK" | "SMTP_CHECK" => "tcp",
        "HTTP_GET" => "http",
        "SSL_GET" => "https",
        "UDP_CHECK" => "udp",
        "DNS_CHECK" => "dns",
        "PING_CHECK" => "ping",
        "MISC_CHECK" => "script",
        _ => {
            account(statement, report);
            let (means, instead) = match checker {
                "BFD_CHECK" => (
                    "takes a real server out when its BFD session fails",
                    "kind = \"ping\" with a short interval_ms, or kind = \"passive\"",
                ),
                "FILE_CHECK" => (
                    "takes a real server's weight from a file",
                    "have whoever writes the file call `sluice real set SERVICE REAL --weight N`",
                ),
                _ => ("a checker that is not known here", "kind = \"script\" runs a program"),
            };
            report.lost(&place, checker, means, instead);
            return None;
        }
    };
    report.done(&place);
    let mut content = Table::new();
    content.insert("kind".to_owned(), kind.into());
    let found = Found { content, address: None, port: None, place };
    let mut reading = Reading {
        found,
        timing: Timing::default(),
        virtual_host: virtual_host.map(str::to_owned),
        checker,
        report,
    };
    reading.defaults();
    for inner in statement.inside() {
        reading.word(inner);
    }
    reading.finish(around)
}

impl Reading<'_> {
    fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.found.content.insert(key.to_owned(), value.into());
    }

    fn defaults(&mut self) {
        match self.checker {
            // keepalived looks at no certificate.
            "SSL_GET" => self.put("tls_verify", false),
            "DNS_CHECK" => {
                self.put("dns_name", ".");
                self.put("dns_type", "SOA");
            }
            "SMTP_CHECK" => {
                let means = "holds a conversation in SMTP";
                let how = "the check connects only; kind = \"script\" can run a program that \
                           speaks SMTP";
                self.report.lost(&self.found.place, "SMTP_CHECK", means, how);
            }
            _ => {}
        }
    }

    fn word(&mut self, inner: &Statement) {
        if self.timing.take(inner, self.report) {
            return;
        }
        self.report.done(&inner.place);
        let (word, value) = (inner.word(0), inner.word(1));
        match (self.checker, word) {
            (_, "connect_ip") => self.address(inner),
            (_, "connect_port") => self.port(inner),
            (_, "bindto" | "bind_to") => self.try_put(inner, "source", value.into()),
            (_, "bind_if") => self.try_put(inner, "interface", value.into()),
            (_, "fwmark") => self.number(inner, "mark"),
            ("HTTP_GET" | "SSL_GET", "virtualhost") => self.virtual_host = Some(value.to_owned()),
            ("HTTP_GET" | "SSL_GET", "url") => self.url(inner),
            ("DNS_CHECK", "name") => self.try_put(inner, "dns_name", value.into()),
            ("DNS_CHECK", "type") => self.try_put(inner, "dns_type", value.into()),
            ("UDP_CHECK", "payload") => self.payload(inner),
            ("UDP_CHECK", "require_reply") => self.reply(inner),
            ("MISC_CHECK", "misc_path") => self.program(inner),
            ("MISC_CHECK", "misc_timeout") => match seconds::millis(value) {
                Some(ms) => self.timing.timeout_ms = Some(ms),
                None => self.unreadable(inner),
            },
            ("SMTP_CHECK", "host") => self.host(inner),
            _ => self.other(inner),
        }
    }

    /// A word for which there is nothing, or one that is not known.
    fn other(&mut self, inner: &Statement) {
        account(inner, self.report);
        let word = inner.word(0);
        if words::holds_anyway(word) {
            return;
        }
        let not_known = ("not known here", "look it up in keepalived.conf(5)");
        let (means, instead) = words::lost(word).unwrap_or(not_known);
        self.report.lost(&inner.place, word, means, instead);
    }

    fn unreadable(&mut self, inner: &Statement) {
        let means = format!("{:?} is nothing that it could have", inner.rest());
        let instead = "set it in the [[check]] by hand";
        self.report.lost(&inner.place, inner.word(0), means, instead);
    }

    /// Sets a key, if the check may have it.
    fn try_put(&mut self, inner: &Statement, key: &str, value: Value) {
        let mut trial = Table::new();
        trial.insert("name".to_owned(), "x".into());
        trial.extend(self.found.content.get("kind").map(|it| ("kind".to_owned(), it.clone())));
        trial.insert(key.to_owned(), value.clone());
        match readable("check", trial) {
            true => self.put(key, value),
            false => self.unreadable(inner),
        }
    }

    fn number(&mut self, inner: &Statement, key: &str) {
        match inner.word(1).parse::<u32>() {
            Ok(number) => self.try_put(inner, key, number.into()),
            Err(_) => self.unreadable(inner),
        }
    }

    fn address(&mut self, inner: &Statement) {
        match inner.word(1).parse() {
            Ok(address) => self.found.address = Some(address),
            Err(_) => self.unreadable(inner),
        }
    }

    fn port(&mut self, inner: &Statement) {
        match inner.word(1).parse::<u16>() {
            Ok(port) if port > 0 => self.found.port = Some(port),
            _ => self.unreadable(inner),
        }
    }

    /// One of the places of an SMTP check: the first counts.
    fn host(&mut self, inner: &Statement) {
        account(inner, self.report);
        let second = self.found.content.contains_key("host_seen");
        self.put("host_seen", true);
        if second {
            let means = "another address that must answer, too";
            let instead = "a check goes to one address: kind = \"script\" can look at several";
            return self.report.lost(&inner.place, "host", means, instead);
        }
        for word in inner.inside() {
            match word.word(0) {
                "connect_ip" => self.address(word),
                "connect_port" => self.port(word),
                "bindto" => self.try_put(word, "source", word.word(1).into()),
                _ => self.other(word),
            }
        }
    }

    fn url(&mut self, inner: &Statement) {
        account(inner, self.report);
        if self.found.content.contains_key("path") {
            let means = "another page that must be there, too";
            let instead = "a check asks for one path: let that one tell of all, or use a script";
            return self.report.lost(&inner.place, "url", means, instead);
        }
        self.put("path", "/");
        let mut options = String::new();
        for word in inner.inside() {
            let value = word.word(1);
            match word.word(0) {
                "path" => self.try_put(word, "path", value.into()),
                "status_code" => {
                    let codes: Vec<Value> =
                        word.words.iter().skip(1).map(|it| it.as_str().into()).collect();
                    self.try_put(word, "status", codes.into());
                }
                "virtualhost" => self.virtual_host = Some(value.to_owned()),
                "regex" => self.put("expect_regex", value),
                "regex_options" => options = regex_options(word, self.report),
                _ => self.other(word),
            }
        }
        let no_match = inner.inside().iter().any(|word| word.word(0) == "regex_no_match");
        let Some(Value::String(regex)) = self.found.content.remove("expect_regex") else { return };
        if let Some(word) = inner.inside().iter().find(|word| word.word(0) == "regex") {
            match no_match {
                true => self.unreadable(word),
                false => self.try_put(word, "expect_regex", format!("{options}{regex}").into()),
            }
        }
    }

    fn payload(&mut self, inner: &Statement) {
        let text = hexadecimal(&inner.rest()).and_then(|bytes| String::from_utf8(bytes).ok());
        match text {
            Some(text) => self.try_put(inner, "send", text.into()),
            None => {
                let means = "sends bytes that are no text";
                let instead = "`send` of a [[check]] is text; kind = \"script\" can send anything";
                self.report.lost(&inner.place, "payload", means, instead);
            }
        }
    }

    fn reply(&mut self, inner: &Statement) {
        if inner.words.len() == 1 {
            // Matches whatever is answered, and nothing but an answer.
            return self.put("expect_regex", "^");
        }
        let text = hexadecimal(&inner.rest()).and_then(|bytes| String::from_utf8(bytes).ok());
        match text {
            Some(text) => self.try_put(inner, "expect", text.into()),
            None => {
                self.put("expect_regex", "^");
                let means = "compares the answer with bytes that are no text";
                let instead = "any answer will do; expect and expect_regex are text";
                self.report.lost(&inner.place, "require_reply", means, instead);
            }
        }
    }

    fn program(&mut self, inner: &Statement) {
        // A quoted path has its arguments with it; they are told apart as keepalived does.
        let words: Vec<Value> = inner.words[1..]
            .iter()
            .flat_map(|word| word.split_whitespace())
            .map(|word| word.trim_matches('\'').into())
            .collect();
        let first = words.first().and_then(Value::as_str).unwrap_or_default();
        if !first.starts_with('/') {
            let means = format!("{first:?} is looked for in keepalived's folders");
            let instead = "a script check needs an absolute path: command = [\"/…\"]";
            return self.report.lost(&inner.place, "misc_path", means, instead);
        }
        let means = "runs a program as keepalived_script, without an environment";
        let how = "it runs as the director's user, with SLUICE_REAL_ADDRESS and others set; only \
                   a configuration file may name it, not `sluice config apply`";
        self.report.differs(&inner.place, "misc_path", means, how);
        self.put("command", words);
    }

    fn finish(mut self, around: &Timing) -> Option<Found> {
        self.found.content.remove("host_seen");
        if self.checker == "SMTP_CHECK" && self.found.port.is_none() {
            self.found.port = Some(25);
        }
        let host = self.virtual_host.take().filter(|_| self.checker.ends_with("_GET"));
        if let Some(host) = host {
            let mut trial = self.found.content.clone();
            trial.insert("name".to_owned(), "x".into());
            trial.insert("host".to_owned(), host.as_str().into());
            if readable("check", trial) {
                self.put("host", host.as_str());
                if self.checker == "SSL_GET" {
                    self.put("tls_name", host.split(':').next().unwrap_or_default());
                }
            } else {
                let means = format!("{host:?} is no name of a host");
                self.report.lost(&self.found.place, "virtualhost", means, "set host by hand");
            }
        }
        let mut timing = self.timing.clone().within(around);
        if self.checker == "MISC_CHECK" {
            // A script may take as long as there is to the next probe.
            timing.timeout_ms = self.timing.timeout_ms.or(timing.delay_loop_ms).or(Some(60_000));
            if !self.found.content.contains_key("command") {
                let means = "a script without a path that could be used";
                let instead = "nobody looks at this real server; name a check by hand";
                self.report.lost(&self.found.place, self.checker, means, instead);
                return None;
            }
        }
        timing.write(self.checker, &mut self.found.content);
        Some(self.found)
    }
}

/// Options of a regular expression as the expression's own beginning.
fn regex_options(word: &Statement, report: &mut Report) -> String {
    let mut flags = String::new();
    for option in word.words.iter().skip(1) {
        match option.as_str() {
            "caseless" => flags.push('i'),
            "dotall" => flags.push('s'),
            "extended" => flags.push('x'),
            "ungreedy" => flags.push('U'),
            // `^` and `$` are those of lines here, and all is Unicode.
            "multiline" | "utf" | "ucp" | "never_utf" | "never_ucp" => {}
            other => {
                let means = format!("the option {other}");
                let instead = "write the regular expression so that it needs none";
                report.lost(&word.place, other, means, instead);
            }
        }
    }
    if flags.is_empty() { flags } else { format!("(?{flags})") }
}

/// Bytes as keepalived writes them: hexadecimal, a blank ends a byte, a single digit is one.
fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in text.split_whitespace() {
        let digits: Vec<u8> =
            part.chars().map(|it| Some(it.to_digit(16)? as u8)).collect::<Option<_>>()?;
        bytes.extend(digits.chunks(2).map(|pair| pair.iter().fold(0, |all, one| all << 4 | one)));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_manual() {
        let bytes = [0xab, 0x12, 0x0f, 0x03, 0x45, 0x06, 0x54, 0x64, 0x43, 0x12, 0x03];
        assert_eq!(hexadecimal("Ab12f 3 456 546443123").as_deref(), Some(&bytes[..]));
        assert_eq!(hexadecimal("x1"), None);
    }
}
