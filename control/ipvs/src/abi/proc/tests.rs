//! Texts as `ipvsadm` and scripts read them.

use std::net::IpAddr;

use super::{File, connection, services, stats};
use crate::model::flags;
use crate::{
    Connection, Destination, Family, Info, Method, Protocol, Service, ServiceKey, ServiceSpec,
    Stats, Tunnel,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn service(key: ServiceKey, flags: u32, to: Option<&str>) -> Service {
    let destinations = to.map(|address| Destination {
        address: ip(address),
        port: 8080,
        method: Method::Masq,
        tunnel: Tunnel::IPIP,
        weight: 3,
        upper: 0,
        lower: 0,
        active: 12,
        inactive: 7,
        persistent: 0,
        stats: Stats::default(),
    });
    let spec = ServiceSpec {
        key,
        scheduler: "wlc".to_owned(),
        flags,
        timeout_s: 300,
        netmask: u32::MAX,
        persistence_engine: None,
        settings: None,
    };
    let stats = Stats { connections: 16, in_bytes: 0xabc, in_packets_per_s: 1, ..Stats::default() };
    let (owner, name) = ("ipvsadm".to_owned(), "x".to_owned());
    Service { spec, owner, name, stats, destinations: destinations.into_iter().collect() }
}

/// A service by match, of which the kernel knows nothing.
fn matching() -> Service {
    let key = ServiceKey::Match("proto=tcp,af=ipv4,oif=dpdk0".parse().unwrap());
    service(key, 0, Some("198.51.100.10"))
}

fn three() -> [Service; 3] {
    let at = |protocol, address, port| ServiceKey::Address { protocol, address: ip(address), port };
    [
        service(at(Protocol::Tcp, "192.0.2.10", 80), flags::PERSISTENT, Some("198.51.100.2")),
        service(at(Protocol::Udp, "2001:db8::10", 53), flags::ONE_PACKET, Some("2001:db8::2")),
        service(ServiceKey::Mark { mark: 0x1f, family: Family::Ipv4 }, 0, None),
    ]
}

#[test]
fn the_table() {
    let mut all = three().to_vec();
    all.insert(1, matching());
    let text = services(Info { version: 0x01_02_01, table_size: 4096, services: 3 }, &all);
    let expected = "\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  C000020A:0050 wlc persistent 300 FFFFFFFF
  -> C6336402:1F90      Masq    3      12         7         
UDP  [2001:0db8:0000:0000:0000:0000:0000:0010]:0035 wlc ops 
  -> [2001:0db8:0000:0000:0000:0000:0000:0002]:1F90      Masq    3      12         7         
FWM  0000001F wlc 
";
    assert_eq!(text, expected);
}

#[test]
fn connections() {
    let row = |protocol, client, virtual_, destination| {
        connection(&Connection {
            protocol,
            client: (ip(client), 1234),
            virtual_: (ip(virtual_), 80),
            local: None,
            destination: (ip(destination), 8080),
            state: "ESTABLISHED".to_owned(),
            expires_s: 899,
        })
    };
    assert_eq!(
        row(6, "192.0.2.1", "192.0.2.10", "198.51.100.2"),
        "TCP C0000201 04D2 C000020A 0050 C6336402 1F90 ESTABLISHED     899\n"
    );
    let six = row(17, "2001:db8::1", "2001:db8::10", "198.51.100.2");
    assert!(six.starts_with("UDP 2001:0db8:0000:0000:0000:0000:0000:0001 04D2 2001:"), "{six}");
    assert!(six.ends_with(" C6336402 1F90 ESTABLISHED     899\n"), "{six}");
}

#[test]
fn sums() {
    let expected = "   Total Incoming Outgoing         Incoming         Outgoing\n\
                    \u{20}  Conns  Packets  Packets            Bytes            Bytes\n\
                    \u{20}     30        0        0             2034                0\n\n\
                    \u{20}Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s\n\
                    \u{20}      0        3        0                0                0\n";
    assert_eq!(stats(&three()), expected);
}

#[test]
fn paths() {
    assert_eq!(File::of(b"/proc/net/ip_vs"), Some(File::Services));
    assert_eq!(File::of(b"/proc/self/net/ip_vs_conn"), Some(File::Connections));
    assert_eq!(File::of(b"/proc/thread-self/net/ip_vs_stats"), Some(File::Stats));
    for other in ["", "/proc/", "/proc", "/proc/net/", "/proc/net/ip_vs_app", "proc/net/ip_vs"] {
        assert_eq!(File::of(other.as_bytes()), None, "{other}");
    }
}
