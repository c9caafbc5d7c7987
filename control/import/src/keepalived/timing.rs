//! When checks look: words that virtual servers, real servers and checks have, each the default of
//! those inside.

use super::block::flag;
use super::seconds::millis;
use super::tree::Statement;
use crate::note::Report;
use crate::target::Table;

/// keepalived's own defaults, in milliseconds.
const DELAY_LOOP_MS: u64 = 60_000;
const CONNECT_TIMEOUT_MS: u64 = 5_000;
const RETRY_MS: u64 = 1_000;
const HTTP_RETRY_MS: u64 = 3_000;

/// What is said of when to look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// From one probe to the next.
    pub delay_loop_ms: Option<u64>,
    /// How long one may take.
    pub timeout_ms: Option<u64>,
    /// How often it is tried again before it has failed.
    pub retry: Option<u64>,
    /// How long until then.
    pub delay_before_retry_ms: Option<u64>,
    /// Whether it is down until the first probe passes.
    pub alpha: Option<bool>,
}

impl Timing {
    /// Takes a statement, if it is about when to look.
    pub fn take(&mut self, statement: &Statement, report: &mut Report) -> bool {
        let text = statement.word(1);
        let (place, word) = (&statement.place, statement.word(0));
        let target = match word {
            "delay_loop" => &mut self.delay_loop_ms,
            "connect_timeout" => &mut self.timeout_ms,
            "delay_before_retry" => &mut self.delay_before_retry_ms,
            "retry" | "nb_get_retry" => {
                match text.parse() {
                    Ok(times) => self.retry = Some(times),
                    Err(_) => return not_a_number(statement, report),
                }
                report.done(place);
                return true;
            }
            "alpha" => {
                self.alpha = Some(flag(statement));
                report.done(place);
                return true;
            }
            "warmup" => {
                let means = "puts the first probe off by a random time of up to so many seconds";
                let how = "first probes are spread over one interval, at most a second";
                report.differs(place, word, means, how);
                return true;
            }
            _ => return false,
        };
        match millis(text) {
            Some(ms) => *target = Some(ms),
            None => return not_a_number(statement, report),
        }
        report.done(place);
        true
    }

    /// With what is said around it, where it says nothing itself.
    pub fn within(self, around: &Self) -> Self {
        Self {
            delay_loop_ms: self.delay_loop_ms.or(around.delay_loop_ms),
            timeout_ms: self.timeout_ms.or(around.timeout_ms),
            retry: self.retry.or(around.retry),
            delay_before_retry_ms: self.delay_before_retry_ms.or(around.delay_before_retry_ms),
            alpha: self.alpha.or(around.alpha),
        }
    }

    /// As keys of a `[[check]]`, with keepalived's defaults for a kind of check.
    pub fn write(&self, checker: &str, check: &mut Table) {
        let interval = self.delay_loop_ms.unwrap_or(DELAY_LOOP_MS).clamp(100, 3_600_000);
        let (retries, again) = match checker {
            "DNS_CHECK" => (3, interval),
            "MISC_CHECK" => (0, RETRY_MS),
            "HTTP_GET" | "SSL_GET" => (1, HTTP_RETRY_MS),
            _ => (1, RETRY_MS),
        };
        let again = self.delay_before_retry_ms.unwrap_or(again).clamp(50, 3_600_000);
        let timeout = self.timeout_ms.unwrap_or(CONNECT_TIMEOUT_MS).clamp(10, 600_000);
        let retries = self.retry.unwrap_or(retries);
        check.insert("interval_ms".to_owned(), interval.into());
        if again != interval && retries > 0 {
            check.insert("fast_interval_ms".to_owned(), again.into());
        }
        check.insert("timeout_ms".to_owned(), timeout.into());
        check.insert("rise".to_owned(), 1.into());
        check.insert("fall".to_owned(), retries.saturating_add(1).clamp(1, 100).into());
        if self.alpha == Some(true) {
            check.insert("initial".to_owned(), "down".into());
        }
    }
}

fn not_a_number(statement: &Statement, report: &mut Report) -> bool {
    let means = format!("{:?} is no number that it could have", statement.rest());
    report.lost(&statement.place, statement.word(0), means, "write a number of seconds or times");
    true
}
