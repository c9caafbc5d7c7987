//! What a worker tells other directors.

use super::Station;
use crate::error::BenchError;
use sluice_worker::{Outbox, Told, Wake};

impl Station {
    /// Has the worker tell which sessions change.
    pub fn tell(&mut self) -> Result<(), BenchError> {
        let eventfd = |source| BenchError::Machine { what: "eventfd".into(), source };
        let wake = Wake::new().map_err(eventfd)?;
        let (outbox, told) = Outbox::new(wake);
        self.worker.tell_by(outbox);
        self.told = Some(told);
        Ok(())
    }

    /// Has the worker tell all of its sessions, as for a director that starts.
    pub fn pull(&mut self) {
        self.worker.begin_walk(1);
    }

    /// Takes what the worker has told, and gives how many sessions these are. `again` has it begin
    /// anew when it has told all.
    pub fn take_told(&mut self, again: bool) -> u64 {
        let (mut sessions, mut all) = (0, false);
        for told in self.told.iter_mut().flat_map(|told| std::iter::from_fn(|| told.pop().ok())) {
            match told {
                Told::Change(_) => sessions += 1,
                Told::Walked(_) => all = true,
            }
        }
        if again && all {
            self.pull();
        }
        sessions
    }
}
