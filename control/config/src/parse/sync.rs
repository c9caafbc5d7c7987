//! `[sync]`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::values::parse_file;
use crate::SessionSync;
use crate::errors::{Fault, quoted};
use crate::read::Table;
use crate::report::Report;
use crate::schema::keys::sync;

pub(super) fn read(table: Table<'_>, report: &mut Report) -> SessionSync {
    // An item that could not be read keeps its place.
    let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let peers = table.list(&sync::PEERS, parse_endpoint, report).unwrap_or_default();
    let keys = table.list(&sync::KEY_FILES, parse_file, report).unwrap_or_default();
    SessionSync {
        listen: table.parsed(&sync::LISTEN, parse_endpoint, report),
        peers: peers.into_iter().map(|peer| peer.unwrap_or(unknown)).collect(),
        group: table.parsed(&sync::GROUP, parse_group, report),
        key_files: keys.into_iter().map(Option::<PathBuf>::unwrap_or_default).collect(),
        datagram: table.integer(&sync::DATAGRAM, report),
    }
}

fn parse_endpoint(text: &str) -> Result<SocketAddr, Fault> {
    let hint = "use an address and a port such as \"192.0.2.1:8848\" or \"[2001:db8::1]:8848\"";
    let found = || Fault::new(format!("{} is no address with a port", quoted(text)), hint);
    let usable = |at: &SocketAddr| at.port() != 0 && !at.ip().is_unspecified();
    text.parse::<SocketAddr>().ok().filter(usable).ok_or_else(found)
}

fn parse_group(text: &str) -> Result<SocketAddr, Fault> {
    let hint = "use a multicast address and a port such as \"239.192.88.48:8848\" or \
                \"[ff15::8848]:8848\"";
    let found =
        || Fault::new(format!("{} is no multicast address with a port", quoted(text)), hint);
    let usable = |at: &SocketAddr| at.port() != 0 && at.ip().is_multicast();
    text.parse::<SocketAddr>().ok().filter(usable).ok_or_else(found)
}
