//! Imports the sessions of a running director by addresses, since its slots have another layout:
//! the other end of [`super::export`].
//!
//! What comes is checked as what a peer tells: each session against the plan, by addresses. It is
//! bounded: a part by [`PART`], what is held of an answer by [`CHUNK`] or [`MOST_CHANGES`], the
//! time by the exporting process, which ends an attempt that takes too long.

use super::Placing;
use super::export::{HEAD, PART};
use crate::crew::Crew;
use crate::sync::Plans;
use crate::sync::records::{real_name, service_name, session};
use sluice_director::Time;
use sluice_director::path::{Batch, Change, Importer, Owners, Restored};
use sluice_director::plan::Resolver;
use sluice_director::spec::NetworkId;
use sluice_sync::record::{Real, Session};
use sluice_sync::records;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long the other process may say nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// Sessions of the first answer, which has no ends, that are held before workers take them up.
const CHUNK: usize = 1 << 18;
/// Changes of any other answer, which are held to its end: sessions that have ended make room for
/// those that follow them.
const MOST_CHANGES: usize = 1 << 24;

/// An import from the process at the other end of the stream.
pub struct SessionImport {
    stream: UnixStream,
    /// Whether the first answer is still to come.
    first: bool,
    resolver: Option<(u64, Resolver)>,
}

/// Sessions by the workers that are to have them.
struct Sorter<'a> {
    crew: &'a Crew,
    plans: &'a Plans,
    resolver: &'a Resolver,
    owners: Owners,
    /// Whether there are as many workers as there were.
    alike: bool,
    scattered: bool,
    /// By network and worker.
    batches: Vec<Vec<Batch>>,
    held: usize,
    all: Restored,
}

impl SessionImport {
    /// One from this stream.
    pub fn from_stream(stream: UnixStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, first: true, resolver: None })
    }

    /// Asks what has become of the sessions, and takes it up.
    pub fn catch_up(
        &mut self,
        crew: &Crew,
        plans: &Plans,
        placing: &Placing,
    ) -> io::Result<Restored> {
        let epoch = plans.whole.epoch;
        let resolver = self.resolver.take().filter(|(of, _)| *of == epoch);
        let resolver = resolver.unwrap_or_else(|| (epoch, Resolver::new(&plans.whole)));
        let networks = plans.of_networks.len();
        let mut sorter = Sorter {
            crew,
            plans,
            resolver: &resolver.1,
            owners: Owners::new(placing.seed, crew.size() as u16),
            alike: crew.size() == usize::from(placing.workers),
            scattered: placing.scatters(crew.size() as u16),
            batches: (0..networks).map(|_| vec![Batch::replacing(); crew.size()]).collect(),
            held: 0,
            all: Restored::default(),
        };
        let outcome = receive(&mut self.stream, self.first, &mut sorter);
        let all = sorter.all;
        self.first = false;
        self.resolver = Some(resolver);
        outcome.map(|()| all)
    }
}

/// Asks, and receives an answer.
fn receive(stream: &mut UnixStream, first: bool, sorter: &mut Sorter<'_>) -> io::Result<()> {
    let wrong = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
    stream.write_all(&[1])?;
    let mut bytes = Vec::new();
    loop {
        let mut head = [0; HEAD];
        stream.read_exact(&mut head)?;
        let (length, worker, read_ms) = part_head(&head);
        if length == 0 {
            sorter.give();
            return Ok(());
        }
        if length > PART {
            return Err(wrong("a part is too long"));
        }
        bytes.resize(length, 0);
        stream.read_exact(&mut bytes)?;
        let runs = records::read(&bytes).ok_or_else(|| wrong("a part is no records"))?;
        for (real, sessions) in &runs {
            sorter.sort(real, sessions, (worker, read_ms));
        }
        if first && sorter.held >= CHUNK {
            sorter.give();
        }
        if sorter.held > MOST_CHANGES {
            return Err(wrong("more sessions have changed than can be held"));
        }
    }
}

/// How long a part is, of which worker, and when it was read.
fn part_head(head: &[u8; HEAD]) -> (usize, u16, u64) {
    let [a, b, c, d, e, f, read @ ..] = *head;
    let length = u32::from_ne_bytes([a, b, c, d]) as usize;
    (length, u16::from_ne_bytes([e, f]), u64::from_ne_bytes(read))
}

impl Sorter<'_> {
    /// Sorts sessions of a real server by the workers whose they are.
    fn sort(&mut self, real: &Real, sessions: &[Session], (worker, read_ms): (u16, u64)) {
        let id = real_name(real)
            .and_then(|name| self.resolver.real(&service_name(&real.service), name))
            .and_then(|id| Some((id, usize::from(self.plans.network_of(id)?.0))));
        let of_network = id.and_then(|(id, network)| {
            Some((id, self.plans.of_networks.get(network)?, self.batches.get_mut(network)?))
        });
        let Some((real, plan, batches)) = of_network else {
            self.all.unknown += sessions.len() as u64;
            return;
        };
        let importer = Importer::new(plan, self.resolver, self.owners);
        let was = Some(worker).filter(|_| self.alike);
        let now = Time(read_ms.wrapping_sub(self.crew.zero_boot_ms()));
        for record in sessions {
            let (session, ended) = session(record);
            let change = Change { real, ended, session };
            let placed = importer.restores(&change, (was, now), batches);
            self.held += usize::from(placed);
            self.all.unknown += u64::from(!placed);
        }
    }

    /// Has the workers take up what is held.
    fn give(&mut self) {
        let size = self.crew.size();
        for (network, batches) in (0..).map(NetworkId).zip(&mut self.batches) {
            if batches.iter().any(|batch| !batch.is_empty()) {
                let batches = std::mem::replace(batches, vec![Batch::replacing(); size]);
                self.all += self.crew.restore(network, batches, self.scattered);
            }
        }
        self.held = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_part_is_read_as_it_is_written() {
        let head = [&7_u32.to_ne_bytes()[..], &3_u16.to_ne_bytes(), &u64::MAX.to_ne_bytes()];
        assert_eq!(part_head(head.concat().as_slice().try_into().unwrap()), (7, 3, u64::MAX));
    }
}
