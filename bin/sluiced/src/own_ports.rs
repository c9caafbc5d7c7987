//! Services that would take a port on which this machine itself listens.
//!
//! A service's packets never reach the kernel, so a service on the address and port of the API or
//! of sshd locks the operator out. By the API and by IPVS's programs such a service is refused
//! unless it is forced; what the file says holds, with a warning: a director that does not start
//! would be worse, and whoever writes the file is on the machine.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use sluice_config::Config;
use sluice_director::spec::{Protocol, VirtualService};
use sluice_linux::{Address, Kernel, survey::Survey};
use sluice_state::{Edit, Kind, Request, What};

/// Where the machine listens, and which addresses are its own.
#[derive(Debug, Default)]
pub(crate) struct OwnPorts {
    sockets: Vec<SocketAddr>,
    own: HashSet<IpAddr>,
}

impl OwnPorts {
    /// As it is now.
    pub fn look(kernel: &Kernel) -> Self {
        Self::of(Survey::default().listening(), kernel.addresses())
    }

    /// A socket bound to no address counts on the machine's own addresses. Those with the prefix of
    /// a single host are virtual addresses that VRRP brought, unless there is no other.
    fn of<'a>(sockets: Vec<SocketAddr>, addresses: impl Iterator<Item = &'a Address>) -> Self {
        let reachable = |it: &&Address| match it.ip {
            IpAddr::V4(ip) => !ip.is_link_local(),
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        };
        let all: Vec<_> = addresses.filter(reachable).filter(|it| !it.ip.is_loopback()).collect();
        let is_host = |it: &Address| it.prefix_len == if it.ip.is_ipv4() { 32 } else { 128 };
        let only = |it: &Address| {
            all.iter().all(|other| other.ip == it.ip || other.ip.is_ipv4() != it.ip.is_ipv4())
        };
        let own = all.iter().filter(|it| !is_host(it) || only(it)).map(|it| it.ip).collect();
        Self { sockets, own }
    }

    /// What a service would take.
    fn taken_by(&self, service: &VirtualService) -> Option<SocketAddr> {
        if !matches!(service.protocol, Protocol::Tcp | Protocol::Any) {
            return None;
        }
        let hits = |socket: &&SocketAddr| {
            let here = match socket.ip().is_unspecified() {
                true => {
                    // One of IPv6 takes IPv4 too, unless it was told not to.
                    self.own.contains(&service.vip) && (socket.is_ipv6() || service.vip.is_ipv4())
                }
                false => socket.ip() == service.vip,
            };
            here && service.ports.contains(socket.port())
        };
        let found = self.sockets.iter().find(hits)?;
        Some(SocketAddr::new(service.vip, found.port()))
    }

    /// What services of `config` take that are not in `running` just so: each in words, with the
    /// service's name.
    pub fn taken<'c>(
        &self,
        config: &'c Config,
        running: Option<&Config>,
    ) -> Vec<(&'c str, String)> {
        let is_there = |service: &VirtualService| {
            running.is_some_and(|running| {
                running.services.iter().filter(|it| it.network.is_empty()).any(|it| {
                    (it.protocol, it.vip, it.ports)
                        == (service.protocol, service.vip, service.ports)
                })
            })
        };
        // What the machine listens on is in the default network.
        let services = config.services.iter().filter(|service| service.network.is_empty());
        let taken = services.filter_map(|service| {
            let at = self.taken_by(service)?;
            (!is_there(service)).then(|| {
                let text = format!(
                    "service {:?} takes {at}, on which this machine itself listens: whoever is \
                     reached there (the director's API, sshd) is not any more",
                    service.name
                );
                (service.name.as_str(), text)
            })
        });
        taken.collect()
    }
}

/// Which services may take what the machine listens on.
#[derive(Debug, Default)]
pub(crate) struct Forced<'r> {
    all: bool,
    names: HashSet<&'r str>,
}

impl<'r> Forced<'r> {
    /// Those of requests that say so, and of the file.
    pub fn by(requests: &'r [Request]) -> Self {
        let mut forced = Self::default();
        for request in requests {
            match &request.what {
                What::File(_) => forced.all = true,
                What::Rollback(_) => forced.all |= request.force,
                What::Edits(edits) if request.force => {
                    forced.names.extend(edits.iter().filter_map(|edit| match edit {
                        Edit::Put { key, .. } if key.kind == Kind::Service => {
                            Some(key.name.as_str())
                        }
                        _ => None,
                    }));
                }
                What::Edits(_) => {}
            }
        }
        forced
    }

    pub fn may(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_director::spec::Ports;

    fn address(ip: &str, prefix_len: u8) -> Address {
        let ip = ip.parse().expect("an address");
        Address { ifindex: 1, ip, prefix_len, peer: None, tentative: false }
    }

    fn taken(own: &OwnPorts, vip: &str, protocol: Protocol, ports: Ports) -> Option<u16> {
        let vip = vip.parse().expect("an address");
        let service = VirtualService { vip, protocol, ports, ..VirtualService::default() };
        own.taken_by(&service).map(|at| at.port())
    }

    #[test]
    fn a_service_takes_what_listens_on_its_address() {
        let sockets = ["192.0.2.1:8443", "0.0.0.0:22", "[::]:179", "127.0.0.1:25"];
        let sockets = sockets.map(|at| at.parse().expect("an address")).to_vec();
        let addresses =
            [address("192.0.2.1", 24), address("198.51.100.200", 32), address("2001:db8::1", 128)];
        let own = OwnPorts::of(sockets, addresses.iter());
        let tcp = |vip, port| taken(&own, vip, Protocol::Tcp, Ports::one(port));
        assert_eq!(tcp("192.0.2.1", 8443), Some(8443));
        assert_eq!(tcp("192.0.2.1", 22), Some(22));
        assert_eq!(tcp("192.0.2.1", 179), Some(179));
        assert_eq!(tcp("192.0.2.1", 80), None);
        // An address that came by VRRP is no address of this machine's own programs.
        assert_eq!(tcp("198.51.100.200", 22), None);
        assert_eq!(tcp("198.51.100.201", 22), None);
        // The only address of its family is, whatever its prefix.
        assert_eq!(tcp("2001:db8::1", 179), Some(179));
        assert_eq!(tcp("2001:db8::1", 22), None);
        let all = |protocol| taken(&own, "192.0.2.1", protocol, Ports::ALL);
        assert_eq!(all(Protocol::Any), Some(8443));
        assert_eq!(all(Protocol::Tcp), Some(8443));
        assert_eq!(all(Protocol::Udp), None);
    }
}
