//! A worker thread's registration with DPDK.
//!
//! Registered, a thread has its own cache of free packet buffers; unregistered ones work too, but
//! each allocation goes to the shared ring. A thread that ends gives its cache back.

use std::marker::PhantomData;

use sluice_dpdk_sys as sys;

use crate::Result;
use crate::eal::Eal;
use crate::error::check;

/// The calling thread's registration, until it is dropped on the same thread.
#[derive(Debug)]
pub struct WorkerThread {
    eal: Eal,
    /// Not `Send`: a thread ends its own registration.
    stays_here: PhantomData<*mut ()>,
}

impl WorkerThread {
    /// Registers the calling thread. Fails when 128 threads are registered already.
    pub fn register(eal: &Eal) -> Result<Self> {
        // SAFETY: the environment layer runs, as the `Eal` shows.
        let status = unsafe { sys::sluice_thread_register() };
        check(status, || "register a worker thread with DPDK".to_owned())?;
        Ok(Self { eal: eal.clone(), stays_here: PhantomData })
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        // Nobody would find them in the cache of a thread that is gone.
        self.eal.flush();
        // SAFETY: this thread was registered by `register`; the guard cannot leave the thread.
        unsafe { sys::sluice_thread_unregister() };
    }
}
