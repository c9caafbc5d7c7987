//! Names of hosts and of services.
//!
//! Hosts are the resolver's. Services are read from `/etc/services`, which is where they come from
//! on any machine that does not keep them in a directory, and which knows SCTP; once, since a list
//! has thousands of ports.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

/// Where names of services are.
const SERVICES: &str = "/etc/services";

/// What was looked up already.
#[derive(Debug, Default)]
pub struct Names {
    hosts: HashMap<Ipv4Addr, Option<String>>,
    services: Option<Services>,
}

/// Ports and protocols of services, both ways.
#[derive(Debug, Default)]
struct Services {
    ports: HashMap<(String, String), u16>,
    names: HashMap<(u16, String), String>,
}

/// The first IPv4 address of a host.
pub fn address(name: &str) -> Option<Ipv4Addr> {
    let found = (name, 0).to_socket_addrs().ok()?;
    found
        .filter_map(|address| match address.ip() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .next()
}

impl Names {
    /// The name of a host; none when it has none.
    pub fn host(&mut self, address: Ipv4Addr) -> Option<String> {
        let look_up = || {
            let socket = SocketAddr::from((address, 0));
            let (name, _) = dns_lookup::getnameinfo(&socket, 0).ok()?;
            // Without a name the resolver gives the address.
            Some(name).filter(|name| name.parse::<IpAddr>().is_err())
        };
        self.hosts.entry(address).or_insert_with(look_up).clone()
    }

    /// The port of a service.
    pub fn port(&mut self, name: &str, protocol: &str) -> Option<u16> {
        let key = (name.to_owned(), protocol.to_owned());
        self.services().ports.get(&key).copied()
    }

    /// The service of a port.
    pub fn service(&mut self, port: u16, protocol: &str) -> Option<String> {
        self.services().names.get(&(port, protocol.to_owned())).cloned()
    }

    fn services(&mut self) -> &Services {
        self.services.get_or_insert_with(|| {
            Services::read(&std::fs::read_to_string(SERVICES).unwrap_or_default())
        })
    }
}

impl Services {
    /// Of what stands twice, the first counts.
    fn read(text: &str) -> Self {
        let mut services = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let Some((port, protocol)) = words.next().and_then(|word| word.split_once('/')) else {
                continue;
            };
            let Ok(port) = port.parse() else { continue };
            let named = services.names.entry((port, protocol.to_owned()));
            named.or_insert_with(|| name.to_owned());
            for name in std::iter::once(name).chain(words) {
                let key = (name.to_owned(), protocol.to_owned());
                services.ports.entry(key).or_insert(port);
            }
        }
        services
    }
}

#[cfg(test)]
mod tests {
    use super::Services;

    #[test]
    fn services_are_read_with_their_other_names() {
        let text = "# ports\nhttp\t\t80/tcp\t\twww\t# web\ntftp 69/udp\nhttp 8080/tcp\nbad\n x y/z";
        let services = Services::read(text);
        let port = |name: &str, protocol: &str| {
            services.ports.get(&(name.to_owned(), protocol.to_owned())).copied()
        };
        assert_eq!(port("www", "tcp"), Some(80));
        assert_eq!(port("http", "tcp"), Some(80));
        assert_eq!(port("http", "udp"), None);
        assert_eq!(services.names.get(&(69, "udp".to_owned())).map(String::as_str), Some("tftp"));
    }
}
