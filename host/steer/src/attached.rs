//! The steering program on an interface, loaded and attached here.
//!
//! Attached by a BPF link where the kernel has them (Linux 5.9): then the program leaves the
//! interface with the process, however that ends, unless another process holds the link too: that
//! one puts its own program in the place of this one ([`Attached::following`]).

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use aya::Ebpf;
use aya::maps::XskMap;
use aya::programs::{Xdp, XdpMode};
use tracing::warn;

use crate::{Error, Mode, OBJECT, PROGRAM, Result, Steer, link, loader};

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
        let mut program = load(frags)?;
        let xdp = xdp(&mut program)?;
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

    /// A program that is to follow the one on an interface, and is loaded only: it is put in the
    /// place of that one, in its link, by whoever has that ([`crate::link_held`]).
    pub fn following(index: u32, frags: bool) -> Result<Self> {
        let found = link::query(index)
            .map_err(|source| Error::Link { context: "ask for an interface", source })?;
        let (_, mode) = found.program.ok_or(Error::NotAttached { index })?;
        Ok(Self { program: load(frags)?, mode })
    }

    /// The program's descriptor.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        let context = "use the steering program";
        let wrong = |source| Error::Program { context, source };
        Ok(self.xdp()?.fd().map_err(wrong)?.as_fd())
    }

    /// The program's maps, attached or not.
    pub fn steer(&self, index: u32) -> Result<Steer> {
        let context = "read about the steering program";
        let wrong = |source| Error::Program { context, source };
        let id = self.xdp()?.info().map_err(wrong)?.id();
        Ok(Steer::for_program(index, id)?.attached(self.mode))
    }

    fn xdp(&self) -> Result<&Xdp> {
        let found = self.program.program(PROGRAM);
        let found = found.ok_or_else(|| Error::Load { problem: "it is missing".to_owned() })?;
        let context = "use the steering program";
        found.try_into().map_err(|source| Error::Program { context, source })
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

fn load(frags: bool) -> Result<Ebpf> {
    let object = if frags { OBJECT_FRAGS } else { OBJECT };
    let load = |problem: String| Error::Load { problem };
    let mut program = loader::load(object).map_err(|error| load(error.to_string()))?;
    let context = "load the steering program";
    xdp(&mut program)?.load().map_err(|source| Error::Program { context, source })?;
    Ok(program)
}

fn xdp(program: &mut Ebpf) -> Result<&mut Xdp> {
    let found = program.program_mut(PROGRAM);
    let found = found.ok_or_else(|| Error::Load { problem: "it is missing".to_owned() })?;
    let context = "load the steering program";
    found.try_into().map_err(|source| Error::Program { context, source })
}
