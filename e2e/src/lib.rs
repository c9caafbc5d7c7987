//! The machinery of the demo and of the end-to-end tests: a [`Lab`] of network namespaces joined
//! by veth, real programs inside them (nginx, curl, wrk, iperf3, tcpdump, tshark), and the
//! director under test.
//!
//! Everything a lab makes carries the lab's name (prefix, process id, number), lives in its own
//! namespaces and one temporary directory, and is removed when the lab is dropped, when the process
//! gets SIGINT or SIGTERM, and, for processes that were killed, by the next lab's sweep. The
//! machine's own network is never touched; addresses are the documentation ranges.
//!
//! The kernel's stack at both ends and tshark over the captures are the judges: nothing here
//! looks at a packet with the director's own code.
#![forbid(unsafe_code)]

pub mod bed;
pub mod capture;
pub mod demo;
pub mod director;
pub mod entry;
pub mod error;
pub mod family;
pub mod lab;
pub mod load;
pub mod page;
pub mod process;
pub mod race;
pub mod recipe;
pub mod sweep;
pub mod web;

pub use bed::{Bed, Driver, Mode, Shape};
pub use director::Director;
pub use entry::{Real, Service};
pub use error::LabError;
pub use family::Family;
pub use lab::{Lab, Netns};
pub use process::{Ran, Running, wait_until};
