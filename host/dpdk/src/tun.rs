//! An interface that only holds addresses, as long as its owner lives.
//!
//! It is a TUN interface whose packets nobody reads: the kernel drops them when its queue is full.
//! A dummy interface would outlive a process that is killed, and with it the addresses that
//! routing daemons announce.

use std::os::fd::OwnedFd;

use crate::interface::{Interface, PortState};
use crate::{Error, Result, tap};

/// The interface; it goes when this is dropped, also when the process is killed.
#[derive(Debug)]
pub struct AddressHolder {
    interface: Interface,
    open: OwnedFd,
}

impl AddressHolder {
    /// Makes the interface and sets it up.
    ///
    /// # Errors
    /// When there is one of this name, or the machine has no TUN interfaces.
    pub fn open(name: &str) -> Result<Self> {
        let failed = |source| Error::System { context: format!("make interface {name}"), source };
        if Interface::find(name, name).is_ok() {
            return Err(failed(std::io::ErrorKind::AlreadyExists.into()));
        }
        let open = tap::make(name, libc::IFF_TUN).map_err(failed)?;
        let interface = Interface::find(name, name)?;
        interface.set_up().map_err(failed)?;
        Ok(Self { interface, open })
    }

    /// Goes on with an interface that another process has made, and that has its descriptor too: it
    /// never goes in between.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn adopt(name: &str, open: OwnedFd) -> Result<Self> {
        Ok(Self { interface: Interface::find(name, name)?, open })
    }

    /// A descriptor of it for another process.
    ///
    /// # Errors
    /// When there can be no further one.
    pub fn copy(&self) -> std::io::Result<OwnedFd> {
        self.open.try_clone()
    }

    /// Whether nobody has deleted it.
    pub fn is_there(&self) -> bool {
        self.interface.state() != PortState::Gone
    }

    /// The kernel's number for it.
    pub fn ifindex(&self) -> u32 {
        self.interface.index
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.interface.name
    }
}
