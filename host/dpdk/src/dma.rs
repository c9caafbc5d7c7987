//! Copy engines (`rte_dmadev`): Intel's DSA by `dma_idxd`, and for tests `dma_skeleton`, a thread
//! that copies.
//!
//! An engine has one channel of DPDK's, which is for one thread at a time, so it is behind a lock:
//! each end of a queue takes it once or twice a burst. Copies end in the order in which they began;
//! whose each was is remembered in that order. Addresses are the process's own (SVA): a peer's
//! memory could not be made known to an IOMMU by other means, so engines that need that are
//! refused.

use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sluice_dpdk_sys as sys;
use sluice_memif::{Copier, Job};
use tracing::{info, warn};

use crate::error::check;
use crate::{Error, Result};

/// Copies at a time at most; an engine may have fewer.
const DESCRIPTORS: u16 = 4096;
/// Copies whose ends are asked for at a time.
const ENDED: usize = 128;

/// An engine that runs, as long as anybody has a channel of it.
#[derive(Debug)]
pub(crate) struct Engine {
    device: i16,
    queue: Mutex<Queue>,
}

/// What is on its way in an engine.
#[derive(Debug, Default)]
struct Queue {
    /// Whose copy each is that was begun, in that order.
    begun: VecDeque<usize>,
    /// By user: copies of theirs that are over and that they were not told of.
    over: Vec<Vec<bool>>,
}

/// Engines that run, by their device arguments.
static RUNNING: Mutex<Vec<(String, Weak<Engine>)>> = Mutex::new(Vec::new());

impl Engine {
    /// The engine with these device arguments, started if it does not run. The environment layer
    /// runs: ports are opened behind it.
    pub fn open(port: &str, arguments: &str) -> Result<Arc<Self>> {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|(_, engine)| engine.strong_count() > 0);
        let known = running.iter().find(|(known, _)| known == arguments);
        if let Some(engine) = known.and_then(|(_, engine)| engine.upgrade()) {
            return Ok(engine);
        }
        let engine = Arc::new(Self::start(port, arguments)?);
        running.push((arguments.to_owned(), Arc::downgrade(&engine)));
        Ok(engine)
    }

    fn start(port: &str, arguments: &str) -> Result<Self> {
        let name = arguments.split(',').next().unwrap_or_default();
        let (mut device, mut info) = (0, sys::DmaInfo::default());
        let (given, named) = (CString::new(arguments)?, CString::new(name)?);
        // SAFETY: both strings end with NUL, both structures are written only.
        let status =
            unsafe { sys::sluice_dma_open(given.as_ptr(), named.as_ptr(), &mut device, &mut info) };
        check(status, || format!("{port}: find the copy engine {arguments:?}"))?;
        let refuse = |problem: &str| {
            let problem = format!("the copy engine {arguments:?} {problem}");
            Err(Error::Config { port: port.to_owned(), problem })
        };
        if info.copies == 0 {
            return refuse("does not copy from memory to memory");
        }
        if info.virtual_addresses == 0 {
            return refuse(
                "does not take virtual addresses (SVA), and a peer's memory has no others: bind it \
                 to the kernel's idxd driver, with an IOMMU that has shared virtual addressing on",
            );
        }
        let descriptors = info.descriptors.min(DESCRIPTORS);
        // SAFETY: the device was found, and nobody else uses it: there is one engine a device.
        let status = unsafe { sys::sluice_dma_start(device, descriptors) };
        check(status, || format!("{port}: start the copy engine {arguments:?}"))?;
        info!(engine = arguments, descriptors, "copy engine runs");
        Ok(Self { device, queue: Mutex::default() })
    }

    /// A user's own handle.
    pub fn channel(self: &Arc<Self>) -> Channel {
        let mut queue = self.lock();
        queue.over.push(Vec::new());
        Channel { engine: Arc::clone(self), user: queue.over.len() - 1 }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // After a panic the queue is whole: each change is one step.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of copies that are over.
    fn look(&self, queue: &mut Queue) {
        let mut done = [0_u8; ENDED];
        while !queue.begun.is_empty() {
            // SAFETY: the device runs, the lock is held, and the array has that many places.
            let count =
                unsafe { sys::sluice_dma_over(self.device, done.as_mut_ptr(), ENDED as u16) };
            for done in &done[..usize::from(count)] {
                if let Some(over) =
                    queue.begun.pop_front().and_then(|user| queue.over.get_mut(user))
                {
                    over.push(*done != 0);
                }
            }
            if usize::from(count) < ENDED {
                break;
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: the device runs, and nobody has a channel any more.
        let status = unsafe { sys::sluice_dma_stop(self.device) };
        if status < 0 {
            warn!(status, "a copy engine does not stop");
        }
    }
}

/// A user's handle on an engine.
#[derive(Debug)]
pub(crate) struct Channel {
    engine: Arc<Engine>,
    user: usize,
}

// SAFETY: a copy is told to be over when the engine has said so of it: its answers come in the
// order in which copies were begun, and under the lock nothing else is begun or asked meanwhile.
unsafe impl Copier for Channel {
    unsafe fn begin(&mut self, jobs: &[Job]) -> usize {
        let mut queue = self.engine.lock();
        let asked = jobs.len().min(usize::from(u16::MAX)) as u16;
        // SAFETY: the device runs and the lock is held; a job is laid out as the shim's
        // (`repr(C)`, the same fields). What the addresses are for is the caller's.
        let begun =
            unsafe { sys::sluice_dma_copy(self.engine.device, jobs.as_ptr().cast(), asked) };
        let user = self.user;
        queue.begun.extend(std::iter::repeat_n(user, usize::from(begun)));
        usize::from(begun)
    }

    fn over(&mut self, results: &mut Vec<bool>) {
        let mut queue = self.engine.lock();
        self.engine.look(&mut queue);
        if let Some(over) = queue.over.get_mut(self.user) {
            results.append(over);
        }
    }
}
