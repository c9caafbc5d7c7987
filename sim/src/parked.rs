//! Fragments that wait for their datagram's first, as a worker keeps them: in the director's own
//! parking, which holds numbers here, so that a frame that finds no place is not lost to the world.

use crate::frame::Buffer;
use sluice_director::fib::PortId;
use sluice_director::path::Parking;
use sluice_director::{Reason, Time};

/// Nobody waits longer than this, with what the world takes between two looks.
const MOST_MS: u64 = 1000 + 100;

/// A frame that was taken out, and how it had come.
pub(crate) struct Taken {
    pub frame: Buffer,
    pub port: PortId,
    pub since: u64,
}

/// The frames that wait.
#[derive(Default)]
pub(crate) struct Parked {
    order: Parking<u32>,
    frames: Vec<Option<Buffer>>,
    free: Vec<u32>,
}

impl Parked {
    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// Keeps a frame, or gives it back with a reason.
    pub fn park(
        &mut self,
        frame: Buffer,
        port: PortId,
        datagram: u32,
        since: u64,
    ) -> Result<(), (Reason, Buffer)> {
        let at = self.free.pop().unwrap_or_else(|| {
            self.frames.push(None);
            (self.frames.len() - 1) as u32
        });
        let since = Time(since);
        let parked = sluice_director::path::Parked { frame: at, port, datagram, since };
        match self.order.park(parked) {
            Ok(()) => {
                self.frames[at as usize] = Some(frame);
                Ok(())
            }
            Err(reason) => {
                self.free.push(at);
                Err((reason, frame))
            }
        }
    }

    fn out(&mut self, parked: sluice_director::path::Parked<u32>) -> Option<Taken> {
        self.free.push(parked.frame);
        let frame = self.frames[parked.frame as usize].take()?;
        Some(Taken { frame, port: parked.port, since: parked.since.0 })
    }

    /// The next frame of one of these datagrams.
    pub fn take(&mut self, joined: &[u32], port: Option<PortId>) -> Option<Taken> {
        let parked = self.order.take(joined, port)?;
        self.out(parked)
    }

    /// A frame that has waited too long.
    pub fn give_up(&mut self, now: u64) -> Option<Taken> {
        let parked = self.order.give_up(Time(now))?;
        self.out(parked)
    }

    /// What must always be so.
    pub fn check(&self, now: u64, taken: &Taken) -> Result<(), String> {
        let waited = now - taken.since;
        if self.len() > Parking::<u32>::PLACES || waited > MOST_MS {
            return Err(format!("{} fragments wait, one has for {waited} ms", self.len() + 1));
        }
        Ok(())
    }
}
