//! Health checks.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use sluice_health::expect::Expect;
use sluice_health::http::is_sound;

use super::values::{any_text, parse_name};
use crate::address::parse_address;
use crate::device::parse_interface;
use crate::errors::{Fault, quoted};
use crate::read::Table;
use crate::report::Report;
use crate::schema::Key;
use crate::schema::keys::check::{self as keys, *};
use crate::{Check, CheckKind};

pub(super) fn read(table: Table<'_>, report: &mut Report) -> Check {
    let kind = table.word::<CheckKind>(&keys::KIND, report);
    let status = table.list(&STATUS, parse_status, report);
    let command = table.list(&COMMAND, any_text, report);
    let check = Check {
        name: table.parsed(&NAME, parse_name, report).unwrap_or_default(),
        kind,
        interval_ms: table.integer(&INTERVAL_MS, report),
        fast_interval_ms: table.integer_if_given(&FAST_INTERVAL_MS, report),
        timeout_ms: table.integer(&TIMEOUT_MS, report),
        rise: table.integer(&RISE, report),
        fall: table.integer(&FALL, report),
        dead_after_ms: table.integer_if_given(&DEAD_AFTER_MS, report),
        jitter_percent: table.integer(&JITTER_PERCENT, report),
        initial: table.word(&INITIAL, report),
        port: table.integer_if_given(&PORT, report),
        method: table.word(&METHOD, report),
        path: table.parsed_or_default(&PATH, parse_path, report).unwrap_or_default(),
        host: table.parsed(&HOST, parse_host, report),
        status: match status {
            Some(ranges) => ranges.into_iter().flatten().collect(),
            None => vec![200..=299],
        },
        expect: table.parsed(&EXPECT, any_text, report),
        expect_regex: table.parsed(&EXPECT_REGEX, parse_regex, report),
        send: table.parsed(&SEND, any_text, report).unwrap_or_default(),
        dns_name: table.parsed(&DNS_NAME, any_text, report).unwrap_or_default(),
        dns_type: table.word(&DNS_TYPE, report),
        dns_code: table.integer(&DNS_CODE, report),
        dns_address: table.parsed(&DNS_ADDRESS, parse_address, report),
        grpc_service: table.parsed(&GRPC_SERVICE, any_text, report).unwrap_or_default(),
        tls_name: table.parsed(&TLS_NAME, parse_host, report),
        tls_verify: table.boolean(&TLS_VERIFY, report),
        tls_authorities: table.parsed(&TLS_AUTHORITIES, parse_file, report),
        tls_expiry_days: table.integer(&TLS_EXPIRY_DAYS, report),
        passive_failures: table.integer(&PASSIVE_FAILURES, report),
        passive_hold_s: table.integer(&PASSIVE_HOLD_S, report),
        through: table.word(&THROUGH, report),
        command: command.into_iter().flatten().flatten().collect(),
        source: table.parsed(&SOURCE, parse_address, report),
        mark: table.integer(&MARK, report),
        interface: table.parsed(&INTERFACE, parse_interface, report),
    };
    if !report.is_broken(table.path.key(keys::KIND.name)) {
        refuse_idle_keys(table, kind, report);
    }
    check
}

/// Reports keys that say nothing for this kind of check.
fn refuse_idle_keys(table: Table<'_>, kind: CheckKind, report: &mut Report) {
    let http = kind.is_http();
    let dns = kind == CheckKind::Dns;
    let grpc = matches!(kind, CheckKind::Grpc | CheckKind::Grpcs);
    let script = kind == CheckKind::Script;
    let sends = !matches!(kind, CheckKind::Script | CheckKind::Passive);
    let groups: [(bool, &str, &[&Key]); 10] = [
        (http, "http and https", &[&METHOD, &PATH, &HOST, &STATUS]),
        (http || kind == CheckKind::Udp, "http, https and udp", &[&EXPECT, &EXPECT_REGEX]),
        (kind == CheckKind::Udp, "udp", &[&SEND]),
        (dns, "dns", &[&DNS_NAME, &DNS_TYPE, &DNS_CODE, &DNS_ADDRESS]),
        (grpc, "grpc and grpcs", &[&GRPC_SERVICE]),
        (
            kind.is_tls(),
            "tls, https and grpcs",
            &[&TLS_NAME, &TLS_VERIFY, &TLS_AUTHORITIES, &TLS_EXPIRY_DAYS],
        ),
        (script, "script", &[&COMMAND]),
        (sends, "checks that send packets", &[&SOURCE, &MARK, &INTERFACE]),
        (kind.may_go_through(), "checks of a port", &[&THROUGH]),
        (kind.has_port() || script, "checks of a port", &[&PORT]),
    ];
    for (used, by, keys) in groups {
        for key in keys.iter().filter(|key| !used && table.has(key)) {
            let found = format!("a check of kind {} makes nothing of it", kind.word());
            let hint = format!("leave it out: it is for {by}");
            report.error(table.path.key(key.name), found, hint);
        }
    }
}

fn parse_status(text: &str) -> Result<RangeInclusive<u16>, Fault> {
    let hint = "use a status from 100 to 599, or a range such as \"200-299\"";
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|n| (100..600).contains(n));
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        (Some(first), Some(last)) => {
            let hint = format!("begin with the lower one: \"{last}-{first}\"");
            Err(Fault::new(format!("the range {} is reversed", quoted(text)), hint))
        }
        _ => Err(Fault::new(format!("{} is no HTTP status", quoted(text)), hint)),
    }
}

fn parse_path(text: &str) -> Result<String, Fault> {
    if text.starts_with('/') && is_sound(text) {
        return Ok(text.to_owned());
    }
    let hint = "use a path such as \"/health?full=1\": it begins with `/`, and spaces and what is \
                not ASCII are written as %20";
    Err(Fault::new(format!("{} is no path", quoted(text)), hint))
}

fn parse_host(text: &str) -> Result<String, Fault> {
    if is_sound(text) {
        return Ok(text.to_owned());
    }
    Err(Fault::new(format!("{} is no name of a host", quoted(text)), "use www.example.com, say"))
}

fn parse_regex(text: &str) -> Result<String, Fault> {
    let bad = |bad: sluice_health::expect::BadPattern| {
        let found = format!("{} is no regular expression: {}", quoted(text), bad.0);
        Fault::new(found, "use one such as \"^status: (ok|fine)$\"")
    };
    Expect::matches(text).map(|_| text.to_owned()).map_err(bad)
}

fn parse_file(text: &str) -> Result<PathBuf, Fault> {
    if text.starts_with('/') {
        return Ok(PathBuf::from(text));
    }
    let found = format!("{} is no absolute path", quoted(text));
    Err(Fault::new(found, "begin with `/`: the director may be started anywhere"))
}
