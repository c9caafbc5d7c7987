//! The director: virtual services, real servers, schedulers, local pools, the compiled plan, and
//! the path of a burst through them.
//!
//! Pure: no I/O, no clock, no threads. Time comes in as a [`Time`], frames come in through the
//! [`Frame`] trait, and what shall happen to each frame goes out as a verdict. The same
//! code therefore runs over a NIC, over a capture file and under a fuzzer.
#![forbid(unsafe_code)]

pub mod counters;
pub mod dealing;
mod encap;
pub mod family;
pub mod fib;
pub mod filter;
pub mod frame;
pub mod hash;
pub mod key;
mod local_port;
pub mod path;
pub mod plan;
pub mod reason;
pub mod schedule;
pub mod session;
pub mod spec;
pub mod time;
pub mod track;
pub mod vxlan;

pub use frame::{Frame, RxChecksum};
pub use reason::Reason;
pub use time::Time;
