//! Keeping the kernel's stack from the frames of an interface that a port reads by AF_PACKET.
//!
//! Both the port and the kernel would otherwise answer: the kernel takes a packet to any of the
//! host's addresses on any interface, so a SYN to a VIP on the port's TAP twin would be reset from
//! the interface below. The program sits behind the packet sockets and drops everything.
//!
//! On Linux 6.6 and later the program goes with the process, however it ends. Before, it is a
//! filter of the traffic control layer and stays after a kill; the next [`Seal`] replaces it.

use std::fmt;

use aya::Ebpf;
use aya::programs::tc::{qdisc_add_clsact, qdisc_detach_program};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};

use crate::{Error, Result};

const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/seal.bpf.o"));
const PROGRAM: &str = "sluice_seal";

/// As long as it lives, an interface receives for packet sockets alone.
pub struct Seal {
    /// Detaches the program when dropped.
    #[allow(dead_code, reason = "holds the attached program")]
    program: Ebpf,
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

impl Seal {
    /// Seals an interface, given by its name.
    pub fn attach(interface: &str) -> Result<Self> {
        let mut program = Ebpf::load(OBJECT).map_err(|error| Error::Seal {
            interface: interface.to_owned(),
            problem: error.to_string(),
        })?;
        let context = "seal an interface";
        let attached = match program.program_mut(PROGRAM) {
            Some(found) => attach(found, interface),
            None => Err(ProgramError::NotLoaded),
        };
        attached.map_err(|source| Error::Program { context, source })?;
        Ok(Self { program })
    }
}

fn attach(program: &mut aya::programs::Program, interface: &str) -> Result<(), ProgramError> {
    let program: &mut SchedClassifier = program.try_into()?;
    program.load()?;
    if program.attach(interface, TcAttachType::Ingress).is_ok() {
        return Ok(());
    }
    // Traffic control needs a place to hang the filter, and may have one with an old filter; both
    // calls fail when there is nothing to do.
    let _ = qdisc_add_clsact(interface);
    let _ = qdisc_detach_program(interface, TcAttachType::Ingress, PROGRAM);
    program.attach(interface, TcAttachType::Ingress).map(drop)
}
