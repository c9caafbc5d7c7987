//! DPDK behind a safe face: the environment layer, packet buffers, ports and their queues.
//!
//! One [`Eal`] a process owns the memory that packets live in; it is never given back, so an
//! [`Mbuf`] is valid for as long as anybody holds it, whatever became of the port it came from. A
//! [`Port`] hands out one [`QueuePair`] for each queue, each with exactly one owner, and the device
//! is closed when the port and the last of its queues are gone. So a worker can be torn down in
//! any order without touching a closed device.
//!
//! What Linux must do with the frames the director does not take depends on the device: with
//! AF_XDP our program (`sluice-steer`) leaves them to the kernel; every other device brings all
//! frames here, and the daemon passes the rest on through a TAP twin, which is a port like others.
//!
//! Unsafe: this crate turns the raw interface into a safe one; each block names its invariant.

mod descriptors;
mod device;
mod dma;
mod eal;
mod ends;
mod error;
mod ethdev;
mod event;
mod finish;
mod flow;
mod handover;
mod interface;
mod log;
mod mbuf;
mod memif;
mod packet;
mod pool;
mod port;
mod privilege;
mod queue;
mod tap;
mod thread;
mod tun;
mod vnet;
mod wake;
mod xdp;
mod xsk;

pub use descriptors::{close_on_exec, take_stdin};
pub use device::{Device, DmaCopies, Memif, MemifRole, PortConfig, XdpDriver};
pub use eal::{Eal, EalConfig, HugePages, ticks};
pub use error::Error;
pub use event::{DROPPED, EventStage};
pub use flow::{FlowId, FlowTable};
pub use handover::{Adopted, Left, PortOffer};
pub use interface::PortState;
pub use mbuf::Mbuf;
pub use pool::FramePool;
pub use port::{CopyStats, Port, PortStats};
pub use queue::{BURST, Burst, QueuePair, RxQueue, TxQueue};
pub use thread::WorkerThread;
pub use tun::AddressHolder;

/// What can go wrong returns this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
