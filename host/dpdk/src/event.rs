//! An ordered stage of `rte_eventdev` by DPDK's scheduler in software, `event_sw`: the yardstick of
//! the director's own way to have several workers process one flow. Only measured, not used.
//!
//! What is dealt goes to helpers one by one; what they give back comes out in the order in which it
//! was dealt. The scheduler, which elsewhere has a core of its own, runs when [`EventStage`] is
//! told, so each part can be timed by itself.

use std::ffi::CString;

use sluice_dpdk_sys as sys;

use crate::error::check;
use crate::{Eal, Result};

/// What a helper gives back in place of what it drops.
pub const DROPPED: u64 = u64::MAX;
/// The most that one call of a helper takes or gives.
const BURST: usize = 64;

/// A stage that runs. It is of one thread: that which started the environment layer.
#[derive(Debug)]
pub struct EventStage {
    device: u8,
    service: u32,
    helpers: u16,
    /// Keeps it on its thread, and the environment layer there.
    _eal: (Eal, std::marker::PhantomData<*const ()>),
}

impl EventStage {
    /// A stage with so many helpers.
    pub fn open(eal: &Eal, helpers: u16) -> Result<Self> {
        let name = format!("event_sw{}", eal.next_serial());
        let given = CString::new(name.clone())?;
        let (mut device, mut service) = (0, 0);
        // SAFETY: the environment layer runs, the name ends with NUL, both numbers are written
        // only.
        let status =
            unsafe { sys::sluice_event_open(given.as_ptr(), helpers, &mut device, &mut service) };
        check(status, || format!("open the event device {name}"))?;
        let _eal = (eal.clone(), std::marker::PhantomData);
        Ok(Self { device, service, helpers, _eal })
    }

    /// The most that one call deals or collects: a call gets credits for so many new events, and
    /// gives back those of no more. Who collected more at a time would keep what is left for
    /// itself until nobody had credits.
    pub const CREDITS: usize = 32;

    /// Deals numbers, none of which is [`DROPPED`], from the front; gives how many there was room
    /// for.
    pub fn deal(&mut self, payloads: &[u64]) -> usize {
        let count = payloads.len().min(Self::CREDITS) as u16;
        // SAFETY: the device runs, `self` is the only one to use it, and so many numbers are there.
        unsafe { sys::sluice_event_deal(self.device, payloads.as_ptr(), count) }.into()
    }

    /// Lets the scheduler work once.
    pub fn schedule(&mut self) -> Result<()> {
        // SAFETY: the service is the device's, which runs.
        let status = unsafe { sys::sluice_event_schedule(self.service) };
        check(status, || "run the event scheduler".to_owned()).map(drop)
    }

    /// What a helper has to work on. It gives all of it back before it takes more.
    pub fn take(&mut self, helper: u16, into: &mut [u64]) -> usize {
        assert!(helper < self.helpers, "there is no helper {helper}");
        self.take_by(helper, into)
    }

    /// What comes out.
    pub fn collect(&mut self, into: &mut [u64]) -> usize {
        let most = into.len().min(Self::CREDITS);
        self.take_by(self.helpers, &mut into[..most])
    }

    fn take_by(&mut self, port: u16, into: &mut [u64]) -> usize {
        let count = into.len().min(BURST) as u16;
        // SAFETY: the device runs and has the port, and there is room for so many numbers.
        unsafe { sys::sluice_event_take(self.device, port, into.as_mut_ptr(), count) }.into()
    }

    /// A helper gives back what it took, in the order in which it took it; gives how many there was
    /// room for.
    pub fn give(&mut self, helper: u16, payloads: &[u64]) -> usize {
        assert!(helper < self.helpers, "there is no helper {helper}");
        let count = payloads.len().min(BURST) as u16;
        // SAFETY: the device runs and has the port, and so many numbers are there.
        unsafe { sys::sluice_event_give(self.device, helper, payloads.as_ptr(), count) }.into()
    }
}

impl Drop for EventStage {
    fn drop(&mut self) {
        // SAFETY: the device runs, and nobody else uses it.
        unsafe { sys::sluice_event_close(self.device) }
    }
}
