//! Clients: curl, wrk, iperf3, ping, and the words they say read as numbers.

use std::time::Duration;

use serde_json::Value;

use crate::error::LabError;
use crate::lab::Netns;
use crate::process::wait_until;

const FREE_LIMIT: Duration = Duration::from_secs(10);

/// What `wrk` measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wrk {
    /// Requests answered.
    pub requests: u64,
    /// Requests answered each second.
    pub requests_per_s: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of latency, in microseconds.
    pub p99_us: f64,
    /// Connections that failed, reads and writes that failed, timeouts.
    pub socket_errors: u64,
    /// Answers other than 2xx and 3xx.
    pub bad_answers: u64,
}

/// What `iperf3` measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Iperf3 {
    /// Payload received, in bits a second.
    pub bits_per_s: f64,
    /// Payload received, in bytes.
    pub bytes: u64,
    /// TCP segments sent again; UDP: 0.
    pub retransmits: u64,
    /// UDP datagrams lost, in percent; TCP: 0.
    pub lost_percent: f64,
}

/// One `curl`, its answer without the line's end.
///
/// # Errors
/// When there is no answer within 5 s, or not a 2xx.
pub fn curl(client: &Netns, url: &str) -> Result<String, LabError> {
    let args = ["-sS", "--fail", "--max-time", "5", url];
    Ok(client.run("curl", &args)?.ok()?.stdout.trim_end().to_owned())
}

/// Downloads and returns the SHA-256 of what arrived. `limit_rate` as curl's (`5M` bytes a
/// second), empty for none.
///
/// # Errors
/// When it does not complete within 90 s.
pub fn download_sha256(client: &Netns, url: &str, limit_rate: &str) -> Result<String, LabError> {
    let rate = if limit_rate.is_empty() { "1000G" } else { limit_rate };
    let script = "set -o pipefail; \
                  curl -sS --fail --max-time 90 --limit-rate \"$1\" \"$2\" | sha256sum";
    let ran = client.run("bash", &["-c", script, "bash", rate, url])?.ok()?;
    Ok(ran.stdout.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Uploads a file to a sink and returns the SHA-256 that it answers with.
///
/// # Errors
/// When it does not complete within 30 s.
pub fn upload_sha256(client: &Netns, url: &str, file: &str) -> Result<String, LabError> {
    let ran = client.run("curl", &["-sS", "--fail", "--max-time", "30", "-T", file, url])?.ok()?;
    Ok(ran.stdout.trim().to_owned())
}

/// `wrk` with one thread for `seconds`.
///
/// # Errors
/// When it fails or its words are not understood.
pub fn wrk(client: &Netns, url: &str, conns: u32, seconds: u32) -> Result<Wrk, LabError> {
    wrk_with(client, url, conns, seconds, &[])
}

/// As [`wrk`], with further options.
///
/// # Errors
/// When it fails or its words are not understood.
pub fn wrk_with(
    client: &Netns,
    url: &str,
    conns: u32,
    seconds: u32,
    more: &[&str],
) -> Result<Wrk, LabError> {
    let (conns, span) = (format!("-c{conns}"), format!("-d{seconds}s"));
    let usual = ["-t1", &conns, &span, "--latency", "--timeout", "5s"];
    let ran = client.run("wrk", &[&usual[..], more, &[url]].concat())?;
    parse_wrk(&ran.ok()?.stdout)
}

/// Reads the report of `wrk --latency`.
///
/// # Errors
/// When a figure is missing.
pub fn parse_wrk(text: &str) -> Result<Wrk, LabError> {
    let unreadable = || LabError::Unreadable { what: "wrk's report".into(), text: text.into() };
    let after = |start: &str| {
        text.lines().find_map(|line| line.trim_start().strip_prefix(start)).map(str::trim)
    };
    let number = |word: &str| word.trim_end_matches(',').parse::<u64>().ok();
    let requests = text.lines().find_map(|line| number(line.split_once(" requests in ")?.0.trim()));
    let errors = after("Socket errors:")
        .map_or(0, |rest| rest.split_whitespace().filter_map(number).sum::<u64>());
    Ok(Wrk {
        requests: requests.ok_or_else(unreadable)?,
        requests_per_s: after("Requests/sec:")
            .and_then(|w| w.parse().ok())
            .ok_or_else(unreadable)?,
        p50_us: after("50%").and_then(microseconds).ok_or_else(unreadable)?,
        p99_us: after("99%").and_then(microseconds).ok_or_else(unreadable)?,
        socket_errors: errors,
        bad_answers: after("Non-2xx or 3xx responses:").and_then(number).unwrap_or(0),
    })
}

/// wrk's times: `311.00us`, `1.25ms`, `2.00s`, `1.10m`.
fn microseconds(word: &str) -> Option<f64> {
    let unit_at = word.find(|c: char| c.is_ascii_alphabetic())?;
    let (value, unit) = word.split_at(unit_at);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    Some(value.parse::<f64>().ok()? * factor)
}

/// When a stream of `iperf3` ends. One that lasts keeps processors busy for as long: where the
/// amount will do it is the better choice.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After so long.
    Seconds(u32),
    /// After so many times 2^20 bytes.
    Megabytes(u32),
}

/// `iperf3` over TCP; `reverse` makes the server the sender.
///
/// # Errors
/// When it fails or its words are not understood.
pub fn iperf3_tcp(
    client: &Netns,
    server: &str,
    until: Until,
    reverse: bool,
) -> Result<Iperf3, LabError> {
    let more: &[&str] = if reverse { &["-R"] } else { &[] };
    let end = iperf3(client, server, until, more)?;
    Ok(Iperf3 {
        bits_per_s: end["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0),
        bytes: end["sum_received"]["bytes"].as_u64().unwrap_or(0),
        retransmits: end["sum_sent"]["retransmits"].as_u64().unwrap_or(0),
        lost_percent: 0.0,
    })
}

/// `iperf3` over UDP at `rate` (iperf3's words: `100M`) for `seconds`.
///
/// # Errors
/// When it fails or its words are not understood.
pub fn iperf3_udp(
    client: &Netns,
    server: &str,
    seconds: u32,
    rate: &str,
) -> Result<Iperf3, LabError> {
    let end = iperf3(client, server, Until::Seconds(seconds), &["-u", "-b", rate, "-l", "1400"])?;
    let sum = &end["sum"];
    Ok(Iperf3 {
        bits_per_s: sum["bits_per_second"].as_f64().unwrap_or(0.0),
        bytes: sum["bytes"].as_u64().unwrap_or(0),
        retransmits: 0,
        lost_percent: sum["lost_percent"].as_f64().unwrap_or(100.0),
    })
}

/// One test at a time is all that an iperf3 server does, and it takes a moment to see the end of
/// the one before: while it says that it is busy it is asked again. It also makes its listening
/// socket anew for each test: who was waiting at the old one is reset before any data flows.
fn iperf3(client: &Netns, server: &str, until: Until, more: &[&str]) -> Result<Value, LabError> {
    let (option, value) = match until {
        Until::Seconds(seconds) => ("-t", seconds.to_string()),
        Until::Megabytes(megabytes) => ("-n", format!("{megabytes}M")),
    };
    // A stream that stands still ends too.
    let mut args = vec!["120", "iperf3", "-J", "-c", server, option, &value];
    args.extend(["--connect-timeout", "5000"]);
    args.extend(more);
    wait_until("the iperf3 server to be free", FREE_LIMIT, || {
        let ran = client.run("timeout", &args)?;
        let unreadable = || LabError::Unreadable {
            what: "iperf3's report".to_owned(),
            text: ran.stdout.clone(),
        };
        let mut report: Value = serde_json::from_str(&ran.stdout).map_err(|_| unreadable())?;
        match report["error"].as_str() {
            None => Ok(Some(report["end"].take())),
            Some(error) if error.contains("busy") => Ok(None),
            Some(_) if never_began(&report) => Ok(None),
            Some(error) => Err(LabError::Wrong(format!("iperf3: {error}"))),
        }
    })
}

/// Whether the server closed the control connection, or its listening socket, before it opened one
/// for data. The reset of a connection in the queue of the closed socket may arrive before iperf3
/// has looked whether it is connected, or after; and for a moment nothing listens.
fn never_began(report: &Value) -> bool {
    const ENDS: [&str; 3] = [
        "unable to receive control message: Connection reset by peer",
        "unable to connect to server: Connection reset by peer",
        "unable to connect to server: Connection refused",
    ];
    let connected = report["start"]["connected"].as_array();
    let error = report["error"].as_str().unwrap_or_default();
    ENDS.contains(&error) && connected.is_none_or(Vec::is_empty)
}

/// Whether all of `count` pings are answered, which are one flow to the director: they have the
/// same identifier. A program for each, since one waits for its last answers only twice as long as
/// the others took (or the interval): too short where a core is given to somebody else.
///
/// # Errors
/// When ping cannot be run.
pub fn ping(client: &Netns, address: &str, count: u32) -> Result<bool, LabError> {
    // For one, the caller asks again.
    let patience = if count == 1 { "1" } else { "10" };
    let identifier = (std::process::id() % 65_535 + 1).to_string();
    let args = ["-n", "-q", "-c", "1", "-W", patience, "-e", &identifier, address];
    for _ in 0..count {
        let ran = client.run("ping", &args)?;
        if !ran.status.success() {
            eprintln!("ping {address}: {}{}", ran.stdout, ran.stderr);
            return Ok(false);
        }
    }
    Ok(true)
}

/// The middle one of some figures (the upper middle of an even count); 0 for none.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// A rate for people: `9.41 Gbit/s`.
pub fn human_rate(bits_per_s: f64) -> String {
    if bits_per_s >= 1e9 {
        format!("{:.2} Gbit/s", bits_per_s / 1e9)
    } else {
        format!("{:.0} Mbit/s", bits_per_s / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::{Wrk, median, never_began, parse_wrk};
    use serde_json::json;

    const REPORT: &str = "Running 1s test @ http://192.0.2.11/
  1 threads and 16 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   336.42us    1.07ms  21.02ms   97.36%
    Req/Sec    88.04k    12.51k  103.36k    81.82%
  Latency Distribution
     50%  159.00us
     75%  188.00us
     90%  240.00us
     99%    5.58ms
  96148 requests in 1.10s, 16.05MB read
  Socket errors: connect 0, read 3, write 0, timeout 2
  Non-2xx or 3xx responses: 7
Requests/sec:  87421.85
Transfer/sec:     14.59MB
";

    #[test]
    fn a_report_of_wrk_is_read() {
        let expected = Wrk {
            requests: 96_148,
            requests_per_s: 87_421.85,
            p50_us: 159.0,
            p99_us: 5580.0,
            socket_errors: 5,
            bad_answers: 7,
        };
        assert_eq!(parse_wrk(REPORT).expect("a whole report"), expected);
        let quiet = REPORT.replace("  Socket errors: connect 0, read 3, write 0, timeout 2\n", "");
        assert_eq!(parse_wrk(&quiet).expect("without errors").socket_errors, 0);
        assert!(parse_wrk("unable to connect").is_err());
    }

    /// What a server that makes its listening socket anew does to who is waiting at the old one.
    #[test]
    fn a_connection_that_never_began_is_no_failure() {
        let report = |error: &str, connected: &[u32]| {
            never_began(&json!({"start": {"connected": connected}, "error": error}))
        };
        for early in ["reset by peer", "refused"] {
            let error = format!("unable to connect to server: Connection {early}");
            assert!(report(&error, &[]) && !report(&error, &[1]), "{error}");
        }
        assert!(report("unable to receive control message: Connection reset by peer", &[]));
        assert!(!report("unable to connect to server: No route to host", &[]));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[]), 0.0);
    }
}
