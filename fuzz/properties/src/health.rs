//! What a health check's peer may send: anything. Each parser takes it without harm, pieces make no
//! difference, and a check goes on whatever its probes find.

use std::time::Duration;

use sluice_health::expect::Expect;
use sluice_health::finding::TEXT_CHARS;
use sluice_health::http::{Reader, Wanted};
use sluice_health::ping::Echo;
use sluice_health::{Check, Finding, Output, Rules, State, certificate, dns, grpc};

use crate::bytes::Bytes;

/// Reads the bytes as an answer of one kind, by the first of them.
///
/// # Panics
/// When a finding cannot be shown, or depends on how the bytes were cut, or a check stops.
pub fn health(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 6 {
        0 => http(rest),
        1 => names(rest),
        2 => echo(rest),
        3 => showable(&grpc::judge(rest)),
        4 => drop(certificate::ends_at(rest)),
        _ => schedule(rest),
    }
}

fn showable(finding: &Finding) {
    assert!(finding.text.chars().count() <= TEXT_CHARS + 1, "{finding:?}");
    assert!(!finding.text.contains(char::is_control), "{finding:?}");
}

fn http(data: &[u8]) {
    let Some((how, answer)) = data.split_first() else { return };
    let body = if how & 1 == 0 { Expect::Anything } else { Expect::Holds(b"ok".to_vec()) };
    let wanted = Wanted { status: vec![200..=399], body, head: how & 2 != 0 };
    let read = |piece: usize| {
        let mut reader = Reader::new(wanted.clone());
        let found = answer.chunks(piece).find_map(|piece| reader.feed(piece));
        found.unwrap_or_else(|| reader.end())
    };
    let (whole, pieces) = (read(answer.len().max(1)), read(usize::from(how >> 2) + 1));
    showable(&whole);
    showable(&pieces);
    assert_eq!(whole.passed, pieces.passed, "{whole:?}, in pieces {pieces:?}");
}

fn names(data: &[u8]) {
    let address = Some([203, 0, 113, 80].into());
    let wanted = dns::Wanted { code: 0, address };
    let asked = dns::Question::new(0x0102, "www.example.test", dns::Type::A, wanted);
    let question = asked.expect("a name");
    if let Some(finding) = question.judge(data) {
        showable(&finding);
        // Nothing is an answer that does not begin as the question does.
        assert_eq!(data[..2], question.bytes()[..2]);
    }
    // What comes behind a right question gets far more often to the records.
    let mut answer = question.bytes().to_vec();
    answer[2..8].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 9]);
    answer.extend(data);
    showable(&question.judge(&answer).expect("an answer"));
}

fn echo(data: &[u8]) {
    for v6 in [false, true] {
        let echo = Echo { v6, id: 1, sequence: 2, cookie: 0x6372_6f77_6465_6421 };
        for with_header in [false, true] {
            if let Some(finding) = echo.judge(data, with_header) {
                assert!(finding.passed && data.windows(8).any(|part| part == b"crowded!"));
            }
        }
    }
}

/// A check in virtual time, its rules and findings from the bytes.
fn schedule(data: &[u8]) {
    let mut bytes = Bytes(data);
    let ms = |ms: u16| Duration::from_millis(ms.into());
    let interval = ms(bytes.u16() | 1);
    let dead_after = Some(interval * 2 + ms(bytes.u16())).filter(|_| bytes.0.len() % 2 == 0);
    let rules = Rules {
        interval,
        fast_interval: Some(interval / 2).filter(|_| bytes.0.len() % 3 == 0),
        timeout: ms(bytes.u16() | 1),
        rise: bytes.u16() % 5 + 1,
        fall: bytes.u16() % 5 + 1,
        dead_after,
        jitter_percent: (bytes.u16() % 51) as u8,
    };
    let mut check = Check::new(rules, State::Unknown, 1, Duration::ZERO);
    let mut now = Duration::ZERO;
    for byte in bytes.0 {
        let mut open = None;
        let mut turns = 0;
        while let Some(output) = check.poll_output(now) {
            match output {
                Output::Begin { probe } => open = Some(probe),
                Output::Abandon { .. } => open = None,
                Output::Turned(turned) => {
                    turns += 1;
                    assert!(turned.from != turned.to && turns <= 2, "{turned:?}");
                    assert!(!turned.reason.is_empty());
                }
            }
        }
        let due = check.poll_timeout();
        assert!(due > now, "nothing is left to be done now");
        if let Some(probe) = open {
            now += (due - now).mul_f64(f64::from(byte >> 3) / 40.0);
            let finding = match byte & 3 {
                0 => Finding::fail("no"),
                1 => Finding::blind("dark"),
                _ => Finding::pass("yes"),
            };
            check.handle(now, probe, finding);
        } else {
            now = due;
        }
    }
}
