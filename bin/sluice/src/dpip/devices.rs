//! What a device's name stands for: ports of the director and interfaces of Linux.
//!
//! A port's name comes first, since DPVS's scripts name ports. A director that does not answer is
//! no error as long as an interface has the name.

use std::path::Path;
use std::time::Duration;

use sluice_api::Client;
use sluice_api::model::Port;
use sluice_linux::{ListedLink, Listing};

use super::failure::Failure;

/// How long the director has to tell its ports.
const PATIENCE: Duration = Duration::from_secs(2);

/// Ports and interfaces.
#[derive(Debug)]
pub struct Devices {
    /// The director's ports; empty when it does not answer.
    pub ports: Vec<Port>,
    /// Why there are none.
    silence: Option<String>,
    /// Linux's interfaces.
    pub links: Vec<ListedLink>,
    /// Reads the kernel's tables.
    pub listing: Listing,
}

impl Devices {
    /// Asks the director and the kernel.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn look(socket: &Path) -> Result<Self, Failure> {
        let mut listing = Listing::open()?;
        let links = listing.links()?;
        let (ports, silence) = match Client::new(socket).with_patience(PATIENCE).ports() {
            Ok(told) => (told.ports, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Ok(Self { ports, silence, links, listing })
    }

    /// The port with a name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The interface that stands behind a name.
    ///
    /// # Errors
    /// When there is none.
    pub fn link(&self, name: &str) -> Result<&ListedLink, Failure> {
        let by_name = |name: &str| self.links.iter().find(|link| link.name == name);
        let Some(port) = self.port(name) else {
            return by_name(name).ok_or_else(|| self.unknown(name));
        };
        let Some(interface) = &port.interface else {
            return Err(Failure::unsupported(format!(
                "port {name} ({}) has no interface that Linux could do this with: give the port \
                 a `twin`",
                port.device
            )));
        };
        let gone = || Failure::device(format!("{interface}, behind port {name}, is not there"));
        by_name(interface).ok_or_else(gone)
    }

    fn unknown(&self, name: &str) -> Failure {
        let links = self.links.iter().map(|link| link.name.as_str());
        let known: Vec<_> = self.ports.iter().map(|port| port.name.as_str()).chain(links).collect();
        let silence = self.silence.iter().map(|why| {
            format!("; ports are not known, since the director does not answer ({why})")
        });
        let silence: String = silence.collect();
        Failure::device(format!("there is no {name}; there is {}{silence}", known.join(", ")))
    }

    /// What an interface is called: the port's name where it is behind one.
    pub fn name(&self, ifindex: u32) -> String {
        let Some(link) = self.links.iter().find(|link| link.index == ifindex) else {
            return format!("if{ifindex}");
        };
        let behind = |port: &&Port| port.interface.as_deref() == Some(&link.name);
        self.ports.iter().find(behind).map_or(&link.name, |port| &port.name).clone()
    }

    /// Whether an interface is a loopback.
    pub fn is_loopback(&self, ifindex: u32) -> bool {
        const IFF_LOOPBACK: u32 = 0x8;
        self.links.iter().any(|link| link.index == ifindex && link.flags & IFF_LOOPBACK != 0)
    }
}
