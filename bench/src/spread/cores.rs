//! The owner and one helper on two cores at once: the rate that the model says for one helper,
//! measured. What moves between cores costs what it costs here.

use super::flow::{Bed, Flow, number};
use super::{NOW, Pair, lost};
use crate::args::Family;
use crate::clock::ticks;
use crate::error::BenchError;
use crate::machine;
use crate::port::{MemFrame, MemQueue};
use crate::report::quantile;
use crate::template::headers;
use sluice_director::Frame;
use sluice_director::dealing::{AHEAD, CHUNK};
use sluice_director::fib::PortId;
use sluice_director::path::BURST;
use sluice_director::spec::NetworkId;
use sluice_worker::Worker;
use sluice_worker::spread::SpreadOrder;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Frames that are given to the owner at a time.
const LOT: usize = 2 * CHUNK;
/// The most that are under way, so that the helper is late with none: what it may have at a time.
const UNDER_WAY: usize = AHEAD * CHUNK;
/// One pass takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(10);

/// The owner, while the helper is another thread's.
struct Owner<'a> {
    worker: &'a mut Worker<MemQueue>,
    flow: &'a mut Flow,
}

impl Bed for Owner<'_> {
    fn flow(&mut self) -> &mut Flow {
        self.flow
    }

    fn queue(&mut self, port: PortId) -> Option<&mut MemQueue> {
        self.worker.queue_mut(port)
    }

    fn turn(&mut self, _: PortId) {
        self.worker.turn(NOW);
    }
}

impl Pair {
    /// Cycles a packet of the spread flow with the helper on this core.
    pub(super) fn at_once(&mut self, seconds: f64, core: usize) -> Result<f64, BenchError> {
        let (network, name) = (NetworkId::DEFAULT, self.flow.name());
        let order = SpreadOrder { network, flow: name, workers: 0, pinned: true };
        let refused = |why: sluice_worker::spread::Refused| BenchError::Usage(why.text().into());
        self.owner.spread(NOW, &order).map_err(refused)?;
        let Self { owner, helper, flow } = self;
        let mut bed = Owner { worker: owner, flow };
        let (ends, runs) = (AtomicBool::new(false), AtomicBool::new(false));
        let taken = std::thread::scope(|scope| {
            let helps = scope.spawn(|| {
                let pinned = machine::pin(core);
                runs.store(true, Ordering::Relaxed);
                while pinned.is_ok() && !ends.load(Ordering::Relaxed) {
                    helper.turn(NOW);
                }
                pinned
            });
            while !runs.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            let taken = bed.passes(seconds);
            ends.store(true, Ordering::Relaxed);
            let pinned = helps.join().unwrap_or(Err(lost("helping", 1, 0)));
            pinned.and(taken)
        })?;
        let all = self.owner.spreading(NOW);
        let own = all.first().map_or(0, |flow| flow.own + flow.kept + flow.late);
        if own != 0 {
            return Err(BenchError::Usage(format!("{own} packets were not dealt")));
        }
        self.owner.gather_in(network, &name);
        self.owner.turn(NOW);
        Ok(taken)
    }
}

impl Owner<'_> {
    /// The median of what passes of all frames took a packet; every frame has to come out, in
    /// order.
    fn passes(&mut self, seconds: f64) -> Result<f64, BenchError> {
        let ([near, far], at) = (self.flow.ports(), headers(Family::V4, self.flow.protocol()));
        let (mut taken, begun) = (Vec::new(), Instant::now());
        while begun.elapsed().as_secs_f64() < seconds {
            let (frames, mut rest) = self.flow.take(BURST);
            let (all, length) = (frames.len(), frames.first().map_or(0, |it| it.bytes().len()));
            taken.push(self.pass(frames, near, far)? as f64 / all as f64);
            let mut came = self.sent(far);
            let in_order =
                (0..).zip(&came).all(|(place, frame)| number(frame, at, length) == Some(place));
            if came.len() != all || !in_order {
                return Err(lost("spreading the flow", all, came.len()));
            }
            came.append(&mut rest);
            self.flow.give_back(came);
        }
        Ok(quantile(&taken, 0.5))
    }

    /// Ticks until all frames have come out.
    fn pass(
        &mut self,
        frames: Vec<MemFrame>,
        near: PortId,
        far: PortId,
    ) -> Result<u64, BenchError> {
        let (all, mut loaded, mut waiting) = (frames.len(), 0, frames.into_iter());
        let mut lot = Vec::with_capacity(LOT);
        let sent = |worker: &mut Worker<MemQueue>| {
            worker.queue_mut(far).map_or(0, |queue| queue.sent_count())
        };
        let (start, begun) = (ticks(), Instant::now());
        let mut came = 0;
        while came < all {
            if loaded < all && loaded - came + LOT <= UNDER_WAY {
                lot.extend(waiting.by_ref().take(LOT));
                loaded += lot.len();
                self.load(near, &mut lot);
            }
            self.worker.turn(NOW);
            came = sent(self.worker);
            if came < all && begun.elapsed() > PATIENCE {
                return Err(lost("spreading the flow", all, came));
            }
        }
        Ok(ticks() - start)
    }
}
