//! What a worker tells other directors.

use super::Station;
use crate::error::BenchError;
use sluice_worker::{Outbox, Wake};

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

    /// Takes what the worker has told, and gives how many changes these are.
    pub fn take_told(&mut self) -> u64 {
        self.told.iter_mut().map(|told| std::iter::from_fn(|| told.pop().ok()).count() as u64).sum()
    }
}
