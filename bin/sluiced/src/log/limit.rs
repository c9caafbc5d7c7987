//! What repeats is left out, and how much that was is said.
//!
//! Each place in the code that logs may do so [`BURST`] times in [`PERIOD`]; ten thousand real
//! servers that go down at once do not fill the disk, nor hold up the control loop.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// Messages of one place in the code in a period.
const BURST: u32 = 50;
/// The period.
const PERIOD: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Window {
    began: Instant,
    count: u32,
    left_out: u64,
    level: Level,
    file: &'static str,
    line: u32,
}

impl Window {
    /// Whether one more may be logged.
    fn admits(&mut self, now: Instant) -> bool {
        // What was left out is told first, by `Limit::tell`.
        if self.left_out == 0 && now.saturating_duration_since(self.began) >= PERIOD {
            (self.began, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        let admits = self.count <= BURST;
        self.left_out += u64::from(!admits);
        admits
    }
}

/// The places, and what they logged.
#[derive(Clone, Debug, Default)]
pub(super) struct Limit(Arc<Mutex<HashMap<Identifier, Window>>>);

impl Limit {
    fn admits(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        if metadata.target() == module_path!() {
            return true;
        }
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(metadata.callsite()).or_insert_with(|| Window {
            began: now,
            count: 0,
            left_out: 0,
            level: *metadata.level(),
            file: metadata.file().unwrap_or_default(),
            line: metadata.line().unwrap_or_default(),
        });
        window.admits(now)
    }

    /// Says what was left out in periods that are over.
    pub fn tell(&self, now: Instant) {
        for (level, left_out, file, line) in self.due(now) {
            let period_s = PERIOD.as_secs();
            let what = "messages like those before were left out";
            match level {
                Level::ERROR => tracing::error!(left_out, period_s, file, line, "{what}"),
                Level::WARN => tracing::warn!(left_out, period_s, file, line, "{what}"),
                Level::INFO => tracing::info!(left_out, period_s, file, line, "{what}"),
                Level::DEBUG => tracing::debug!(left_out, period_s, file, line, "{what}"),
                Level::TRACE => tracing::trace!(left_out, period_s, file, line, "{what}"),
            }
        }
    }

    fn due(&self, now: Instant) -> Vec<(Level, u64, &'static str, u32)> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |window: &&mut Window| {
            window.left_out > 0 && now.saturating_duration_since(window.began) >= PERIOD
        };
        let told = windows.values_mut().filter(over).map(|window| {
            let left_out = std::mem::take(&mut window.left_out);
            (window.began, window.count) = (now, 0);
            (window.level, left_out, window.file, window.line)
        });
        told.collect()
    }
}

impl<S: Subscriber> Filter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.admits(event.metadata(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::prelude::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Through a real subscriber: fifty are logged, the rest are counted and said, another place
    /// in the code is not concerned, and after the period it begins anew.
    #[test]
    fn what_repeats_is_left_out_and_counted() {
        let (limit, lines) = (Limit::default(), Lines::default());
        let writer = lines.clone();
        let layer =
            tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(limit.clone()));
        let said = |word: &str| {
            let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
            text.lines().filter(|line| line.contains(word)).count()
        };
        let start = Instant::now();
        tracing::subscriber::with_default(subscriber, || {
            let again = |times: u32| (0..times).for_each(|at| tracing::warn!(at, "knock"));
            again(BURST + 70);
            tracing::warn!("something else");
            assert_eq!((said("knock"), said("something else")), (BURST as usize, 1));
            limit.tell(start + PERIOD / 2);
            assert_eq!(said("left_out="), 0);
            limit.tell(start + PERIOD * 2);
            assert_eq!(said("left_out=70"), 1);
            limit.tell(start + PERIOD * 4);
            assert_eq!(said("left_out="), 1);
        });
    }
}
