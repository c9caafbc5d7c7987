//! How many sessions of a kind the model has, kept as they come and go, so that nobody has to go
//! through all of them to know.

use super::session::Session;
use crate::universe::Universe;

/// Sessions that are not vacant, and clients that are remembered.
pub(super) struct Counts {
    services: usize,
    /// By worker and service.
    sessions: Vec<u32>,
    /// Sessions that lead nowhere yet.
    pub unled: u32,
    /// Clients that are remembered, by worker.
    pub remembered: Vec<u32>,
}

impl Counts {
    pub fn new(universe: &Universe) -> Self {
        let (workers, services) = (usize::from(universe.workers), universe.services.len());
        Self {
            services,
            sessions: vec![0; workers * services],
            unled: 0,
            remembered: vec![0; workers],
        }
    }

    /// Sessions of a service at a worker.
    pub fn of(&self, worker: u16, service: usize) -> u32 {
        self.sessions[usize::from(worker) * self.services + service]
    }

    fn of_mut(&mut self, session: &Session) -> &mut u32 {
        let at = usize::from(session.worker) * self.services + session.service;
        &mut self.sessions[at]
    }

    /// A session was added.
    pub fn came(&mut self, session: &Session) {
        *self.of_mut(session) += 1;
        self.unled += u32::from(session.forward.is_none());
    }

    /// A session was removed.
    pub fn left(&mut self, session: &Session) {
        *self.of_mut(session) -= 1;
        self.unled -= u32::from(session.forward.is_none());
    }
}
