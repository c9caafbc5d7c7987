//! What one thread has alone, or several share.
//!
//! A ring is nearly always one worker's. A lock would cost it two full barriers a burst, each of
//! which waits until everything that was written into the peer's cache lines is through.

use std::cell::UnsafeCell;
use std::sync::{Mutex, PoisonError};

/// A value that is used by one thread at a time.
#[derive(Debug)]
pub struct Turnstile<T> {
    value: UnsafeCell<T>,
    /// `None` where there is one user only.
    lock: Option<Mutex<()>>,
}

// SAFETY: one thread at a time has the value: by the lock, or by the promise of `alone`.
unsafe impl<T: Send> Sync for Turnstile<T> {}

impl<T> Turnstile<T> {
    /// A value that several threads may use.
    pub fn shared(value: T) -> Self {
        Self { value: UnsafeCell::new(value), lock: Some(Mutex::new(())) }
    }

    /// A value that one thread uses.
    ///
    /// # Safety
    /// [`Self::with`] is called by one thread at a time.
    pub unsafe fn alone(value: T) -> Self {
        Self { value: UnsafeCell::new(value), lock: None }
    }

    /// Whether several threads may use the value.
    pub fn is_shared(&self) -> bool {
        self.lock.is_some()
    }

    /// Uses the value. Does not call itself.
    #[inline]
    pub fn with<R>(&self, usage: impl FnOnce(&mut T) -> R) -> R {
        // After a panic the value is whole: whoever has it changes it in one step.
        let _guard =
            self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: one thread at a time is here (the lock's doing, or `alone`'s promise), and not
        // twice: `usage` is given the value and not the turnstile.
        usage(unsafe { &mut *self.value.get() })
    }
}
