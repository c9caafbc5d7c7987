//! A network namespace of the process's own, with one way out: a pair of virtual Ethernet links, of
//! which the outer end stays where the process is.
//!
//! What is sent inside goes out by that link, whatever the machine's own addresses and routes are:
//! health checks through the data path are clients of the director there. Nothing of it outlives
//! the process: the namespace ends with its last descriptor, and the links with it.

use crate::commands::Commands;
use crate::error::Error;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Ethernet address of the outer end: one of local meaning.
pub const OUTER_MAC: [u8; 6] = [0x02, 0x53, 0x4c, 0x00, 0x00, 0x01];
/// Ethernet address of the inner end.
pub const INNER_MAC: [u8; 6] = [0x02, 0x53, 0x4c, 0x00, 0x00, 0x02];
/// The inner end's number: the first after the loopback's.
const INNER: u32 = 2;
/// What stands for the way out, inside (RFC 3927, RFC 4291 2.5.6).
const GATEWAYS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 77, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
];

/// The namespace.
#[derive(Clone, Debug)]
pub struct Nest {
    namespace: Arc<OwnedFd>,
    outer: String,
}

impl Nest {
    /// Makes one with these addresses inside; `outer` becomes the outer end's name.
    ///
    /// # Errors
    /// When there can be no namespace (`CAP_SYS_ADMIN`), or the kernel refuses a link.
    pub fn make(outer: &str, addresses: &[IpAddr]) -> Result<Self, Error> {
        // A thread that has left the machine's network does not come back.
        let made = std::thread::spawn(|| -> Result<_, Error> {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| system(errno.into()))?;
            let namespace = File::open("/proc/thread-self/ns/net").map_err(system)?;
            Ok((OwnedFd::from(namespace), Commands::open()?))
        });
        let (namespace, mut inside) =
            made.join().map_err(|_| Error::Invalid("a thread panicked".into()))??;
        let ends = (namespace.as_raw_fd(), INNER, INNER_MAC);
        let mut outside = Commands::open()?;
        let index = outside.make_pair((outer, OUTER_MAC), ends)?;
        outside.set_up(index, true)?;
        inside.set_up(1, true)?;
        inside.set_up(INNER, true)?;
        for address in addresses {
            let gateway = GATEWAYS[usize::from(address.is_ipv6())];
            inside.add_only_address(INNER, *address)?;
            inside.fix_neighbour(INNER, gateway, OUTER_MAC)?;
            inside.route_all(INNER, gateway)?;
        }
        Ok(Self { namespace: Arc::new(namespace), outer: outer.to_owned() })
    }

    /// Name of the outer end.
    pub fn outer(&self) -> &str {
        &self.outer
    }

    /// Moves the calling thread inside, for good.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(self.namespace.as_fd(), CloneFlags::CLONE_NEWNET)?)
    }
}

fn system(source: io::Error) -> Error {
    Error::Socket { action: "make a network namespace", source }
}
