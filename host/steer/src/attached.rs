//! The steering program on an interface, loaded and attached here.
//!
//! Attached by a BPF link where the kernel has them (Linux 5.9): then the program leaves the
//! interface with the process, however that ends.

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};

use aya::Ebpf;
use aya::maps::XskMap;
use aya::programs::{Xdp, XdpMode};
use tracing::warn;

use crate::{Error, Mode, OBJECT, PROGRAM, Result};

/// The program for packets in several buffers.
const OBJECT_FRAGS: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/steer_frags.bpf.o"));

/// As long as it lives, an interface has the steering program.
pub struct Attached {
    program: Ebpf,
    mode: Mode,
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attached").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Attached {
    /// Attaches the program to an interface: by its driver, or in the kernel's generic form where
    /// the driver refuses. `frags` says whether packets may come in several buffers.
    ///
    /// It gives everything to the kernel until sockets are bound and [`crate::Steer::set`] was
    /// called.
    pub fn to(index: u32, frags: bool) -> Result<Self> {
        let object = if frags { OBJECT_FRAGS } else { OBJECT };
        let load = |problem: String| Error::Load { problem };
        let mut program = Ebpf::load(object).map_err(|error| load(error.to_string()))?;
        let found = program.program_mut(PROGRAM);
        let xdp: &mut Xdp = found
            .ok_or_else(|| load("it is missing".to_owned()))?
            .try_into()
            .map_err(|source| Error::Program { context: "load the steering program", source })?;
        xdp.load()
            .map_err(|source| Error::Program { context: "load the steering program", source })?;
        let mode = match xdp.attach_to_if_index(index, XdpMode::Driver) {
            Ok(_) => Mode::Native,
            Err(error) => {
                let reason = error.to_string();
                let context = "attach the steering program";
                xdp.attach_to_if_index(index, XdpMode::Skb)
                    .map_err(|source| Error::Program { context, source })?;
                warn!(
                    interface = index,
                    reason,
                    "the driver refuses XDP: the kernel's generic form is used, which is slower"
                );
                Mode::Generic
            }
        };
        Ok(Self { program, mode })
    }

    /// How it is attached.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Gives what arrives on a queue to a socket.
    pub fn bind(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
        let wrong =
            |source| Error::Map { context: "bind a socket to the steering program", source };
        let map = self
            .program
            .map_mut("xsks_map")
            .ok_or_else(|| Error::Load { problem: "it has no map of sockets".to_owned() })?;
        let mut sockets: XskMap<&mut aya::maps::MapData> = map.try_into().map_err(wrong)?;
        sockets.set(queue, socket.as_raw_fd(), 0).map_err(wrong)
    }
}
