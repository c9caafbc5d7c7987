//! The kernel's links, addresses, routes, neighbours and VXLAN forwarding entries, mirrored by
//! rtnetlink, and the few things the director asks of the kernel in return.
//!
//! Linux is the director's control stack: the kernel answers ARP and neighbour discovery, routing
//! daemons write its routes, and the director reads what came of it. [`Mirror`] holds a copy
//! ([`Kernel`]) that is exact whenever [`Mirror::process`] returns with nothing stale, [`lookup`]
//! and [`lookup_in`] answer where a destination is reached, [`Commands`] changes a link, an
//! address or a route, [`Listing`] reads the tables once, for people, [`rx_queue_count`] says how
//! many receive queues an interface has, [`active_features`] which of its offloads are on, and
//! [`survey`] reads what `/proc` and `/sys` say of the machine.
//!
//! Everything is driven by its caller: no thread, no runtime, no clock. One file descriptor
//! becomes readable when there is something to follow.
//!
//! The decoder is ours (`attributes`, `event`, `event_route`, `nexthop`, `vxlan`, `fdb`: about
//! 1,000 lines) and reads only the attributes the director uses. `netlink-packet-route` decodes
//! every attribute and refuses the whole message for one that it cannot read; a mirror must not
//! lose a link for statistics or a driver's own data. It has no next-hop objects, and ethtool's
//! messages are in another crate, so framing, attributes and requests would stay beside it. The
//! rest of this crate is the mirror, its commands and the survey, which no such library has. Tests
//! check the decoder and the requests against `netlink-packet-route`.
//!
//! ```no_run
//! use sluice_linux::{Mirror, RouteResult, lookup};
//!
//! let mut mirror = Mirror::open()?;
//! // …whenever poll(2) says that `mirror.fd()` is readable, or soon while `mirror.is_stale()`:
//! let changed = mirror.process()?;
//! if changed.any() {
//!     if let RouteResult::NextHops(targets) = lookup(mirror.state(), "192.0.2.11".parse()?) {
//!         for target in targets {
//!             // Once a second for each neighbour in use.
//!             mirror.keep(target.ifindex, target.ip)?;
//!         }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## What is not mirrored
//! Policy rules; tables other than `main`, `default` and those that the caller names
//! ([`Mirror::follow_tables`]), so that a VRF's routes are there when its table is named; routes
//! with a type of service; source-specific IPv6 routes; and what lightweight tunnels (`encap …`)
//! do: such a route is kept as [`RouteKind::Foreign`], so that nothing is sent past it. Of the
//! forwarding entries, a bridge's own (`master`), and of VXLAN devices what the multicast database
//! (`bridge mdb`) and the list of a device's networks (`bridge vni`) say.
#![forbid(unsafe_code)]

mod apply;
mod attributes;
mod commands;
#[cfg(test)]
mod decode_tests;
mod edit;
mod error;
mod event;
mod event_route;
mod fdb;
mod features;
mod listing;
mod lookup;
mod mirror;
mod nest;
mod nexthop;
mod queues;
mod request;
mod routes;
mod state;
pub mod survey;
mod tunnel;
mod uapi;
mod vxlan;

pub use commands::Commands;
pub use edit::{LinkFlag, Make, NewAddress, NewRoute};
pub use error::Error;
pub use fdb::{FdbDestination, FdbEntry};
pub use features::active_features;
pub use listing::{ListedAddress, ListedLink, ListedNeighbour, ListedRoute, Listing};
pub use lookup::{RouteResult, Target, lookup, lookup_in};
pub use mirror::Mirror;
pub use nest::{INNER_MAC, Nest, OUTER_MAC};
pub use queues::rx_queue_count;
pub use state::{
    Address, Changed, Kernel, Link, Neighbour, NeighbourState, NextHop, Route, RouteKind, Table,
    Vlan,
};
pub use tunnel::{GreHeader, Tunnel, TunnelMode};
pub use vxlan::Vxlan;
