//! `[api]`

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::values::parse_file;
use crate::Api;
use crate::errors::{Fault, quoted};
use crate::read::Table;
use crate::report::Report;
use crate::schema::keys::api;

pub(super) fn read(table: Table<'_>, report: &mut Report) -> Api {
    // An item that could not be read keeps its place.
    let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let listen = table.list(&api::LISTEN, parse_listen, report).unwrap_or_default();
    let names = table.list(&api::NAMES, parse_host, report).unwrap_or_default();
    Api {
        listen: listen.into_iter().map(|at| at.unwrap_or(unknown)).collect(),
        certificate: table.parsed(&api::CERTIFICATE, parse_file, report),
        key: table.parsed(&api::KEY, parse_file, report),
        tokens: table.parsed(&api::TOKENS, parse_file, report),
        names: names.into_iter().flatten().collect(),
    }
}

fn parse_host(text: &str) -> Result<String, Fault> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    if !text.is_empty() && text.len() <= 253 && text.bytes().all(allowed) {
        return Ok(text.to_ascii_lowercase());
    }
    let hint = "use a name such as \"lb1.example.com\", without scheme and port";
    Err(Fault::new(format!("{} is no name of a machine", quoted(text)), hint))
}

fn parse_listen(text: &str) -> Result<SocketAddr, Fault> {
    let hint = "use an address and a port such as \"127.0.0.1:8443\" or \"[::1]:8443\"; \
                \"0.0.0.0:8443\" and \"[::]:8443\" are all of the machine's addresses";
    let found = || Fault::new(format!("{} is nothing to listen on", quoted(text)), hint);
    text.parse::<SocketAddr>().ok().filter(|at| at.port() != 0).ok_or_else(found)
}
