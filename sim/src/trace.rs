//! A run as lines to read.

use crate::actions::Action;
use crate::frame::Buffer;
use crate::wire::read;
use sluice_director::Frame;
use sluice_director::path::Verdict;

/// Lines, if they are wanted; the last ones.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub lines: Option<Vec<String>>,
}

impl Trace {
    fn add(&mut self, now: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>9} ms  {}", now, line()));
        }
    }

    pub fn verdict(&mut self, now: u64, worker: usize, frame: &Buffer, verdict: Verdict) {
        self.add(now, || {
            let what = match frame.place {
                Some(place) => format!("{} of it -> {verdict:?}", place),
                None => format!("{:?} -> {verdict:?}", frame.kind),
            };
            let what = format!("worker {worker}: {} {what}", frame.packet);
            match (verdict, read(frame.bytes())) {
                (
                    Verdict::Tx(_) | Verdict::Wait | Verdict::Answer(..) | Verdict::Fragment(..),
                    Ok(seen),
                ) => {
                    format!("{what} {}", seen.packet)
                }
                _ => what,
            }
        });
    }

    pub fn adopts(&mut self, now: u64, worker: usize, epoch: u64) {
        self.add(now, || format!("worker {worker}: runs with plan {epoch}"));
    }

    pub fn action(&mut self, now: u64, action: &Action) {
        self.add(now, || format!("action {}: {:?}", action.number, action.act));
    }

    pub fn note(&mut self, now: u64, what: impl FnOnce() -> String) {
        self.add(now, what);
    }
}
