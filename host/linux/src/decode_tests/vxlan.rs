//! VRF and VXLAN devices, forwarding entries and their next-hop objects. (The kernel of a test
//! machine may have no VRF devices, so this is where they are tried.)

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink_packet_core::DefaultNla;
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVrf, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{decoded, encoded};
use crate::attributes::{Messages, NESTED, Request, attribute};
use crate::event::{Event, decode};
use crate::fdb::{FdbDestination, FdbEntry};
use crate::state::{Changed, Kernel, Link};
use crate::uapi;
use crate::vxlan::Vxlan;

const DEVICE: u32 = 8;
const UNICAST: [u8; 6] = [2, 0, 0, 0, 0, 9];
const FLOOD: [u8; 6] = [0; 6];

fn link(kind: InfoKind, data: InfoData) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = DEVICE;
    link.attributes = vec![
        LinkAttribute::IfName("slv0".into()),
        LinkAttribute::Mtu(1450),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind), LinkInfo::Data(data)]),
    ];
    link
}

fn vxlan_link(data: Vec<InfoVxlan>) -> LinkMessage {
    link(InfoKind::Vxlan, InfoData::Vxlan(data))
}

#[track_caller]
fn read(link: LinkMessage) -> Link {
    match decoded(&encoded(RouteNetlinkMessage::NewLink(link), 0)) {
        Some(Event::Link(link)) => link,
        other => panic!("a link, not {other:?}"),
    }
}

#[test]
fn a_vrf_device_has_its_table() {
    let vrf = link(InfoKind::Vrf, InfoData::Vrf(vec![InfoVrf::TableId(70_000)]));
    let read = read(vrf);
    assert_eq!((read.vrf_table, read.vxlan), (Some(70_000), None));
    assert_eq!(read.kind.as_deref(), Some("vrf"));
}

#[test]
fn a_vxlan_device_is_read_in_full() {
    let everything = vec![
        InfoVxlan::Id(0xab_cdef),
        InfoVxlan::Group("192.0.2.9".parse().expect("IPv4")),
        InfoVxlan::Local("192.0.2.1".parse().expect("IPv4")),
        InfoVxlan::Link(3),
        InfoVxlan::Ttl(9),
        InfoVxlan::TtlInherit(1),
        InfoVxlan::Tos(1),
        InfoVxlan::Learning(true),
        InfoVxlan::PortRange((1000, 2000)),
        InfoVxlan::Port(4789),
        InfoVxlan::UDPCsum(true),
        InfoVxlan::UDPZeroCsumTX(true),
        InfoVxlan::UDPZeroCsumRX(true),
        InfoVxlan::CollectMetadata(true),
        InfoVxlan::Gbp,
        InfoVxlan::Gpe,
    ];
    let expected = Vxlan {
        vni: 0xab_cdef,
        local: Some([192, 0, 2, 1].into()),
        remote: Some([192, 0, 2, 9].into()),
        port: 4789,
        source_ports: Some((1000, 2000)),
        ttl: 9,
        ttl_inherit: true,
        tos: 1,
        link: Some(3),
        udp_checksum: true,
        udp6_zero_tx: true,
        udp6_zero_rx: true,
        learning: true,
        collect_metadata: true,
        gbp: true,
        gpe: true,
    };
    assert_eq!(read(vxlan_link(everything.clone())).vxlan, Some(expected));

    // Moved away from the network namespace that its packets leave by.
    let mut moved = vxlan_link(everything);
    moved.attributes.push(LinkAttribute::LinkNetNsId(1));
    assert_eq!(read(moved).vxlan, None);

    let (local, remote) = ("2001:db8::1", "ff05::9");
    let plain = vec![
        InfoVxlan::Id(7),
        InfoVxlan::Group6(remote.parse().expect("IPv6")),
        InfoVxlan::Local6(local.parse().expect("IPv6")),
        InfoVxlan::PortRange((0, 0)),
        InfoVxlan::UDPCsum(false),
        InfoVxlan::Learning(false),
    ];
    let expected = Vxlan {
        vni: 7,
        local: Some(local.parse().expect("an address")),
        remote: Some(remote.parse().expect("an address")),
        ..Vxlan::default()
    };
    assert_eq!(read(vxlan_link(plain)).vxlan, Some(expected));
}

/// A link of a kind whose description holds these attributes.
fn raw_link(kind: &str, data: &[(u16, &[u8])]) -> Link {
    let data: Vec<u8> = data.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
    let info = [
        attribute(libc::IFLA_INFO_KIND, format!("{kind}\0").as_bytes()),
        attribute(libc::IFLA_INFO_DATA | NESTED, &data),
    ];
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&DEVICE.to_ne_bytes());
    let bytes = Request::new(libc::RTM_NEWLINK, 0, &header)
        .with(libc::IFLA_IFNAME, b"slv0\0")
        .with(libc::IFLA_MTU, &1450u32.to_ne_bytes())
        .with(libc::IFLA_LINKINFO | NESTED, &info.concat())
        .finish(1);
    match decoded(&bytes) {
        Some(Event::Link(link)) => link,
        other => panic!("a link, not {other:?}"),
    }
}

#[test]
fn a_description_that_makes_no_sense_does_not_lose_the_link() {
    for value in [&[][..], &[1], &[1, 2, 3]] {
        assert_eq!(raw_link("vrf", &[(uapi::IFLA_VRF_TABLE, value)]).vrf_table, None);
        assert_eq!(raw_link("vxlan", &[(uapi::IFLA_VXLAN_ID, value)]).vxlan, None);
    }
    let id = (uapi::IFLA_VXLAN_ID, &5u32.to_ne_bytes()[..]);
    for kind in 2..40 {
        if [uapi::IFLA_VXLAN_GBP, uapi::IFLA_VXLAN_GPE].contains(&kind) {
            continue; // Flags, whatever they hold.
        }
        let read = raw_link("vxlan", &[id, (kind, &[])]);
        assert_eq!(read.vxlan, Some(Vxlan { vni: 5, ..Vxlan::default() }), "attribute {kind}");
    }
    let broken = [
        (uapi::IFLA_VXLAN_LOCAL, &[192, 0, 2][..]),
        (uapi::IFLA_VXLAN_GROUP6, &[0x20, 1]),
        (uapi::IFLA_VXLAN_LINK, &[3]),
        (uapi::IFLA_VXLAN_PORT, &[18]),
        (uapi::IFLA_VXLAN_PORT_RANGE, &[0, 1, 2]),
        id,
    ];
    let read = raw_link("vxlan", &broken);
    assert_eq!(read.vxlan, Some(Vxlan { vni: 5, ..Vxlan::default() }));
}

fn row(mac: [u8; 6], attributes: Vec<NeighbourAttribute>) -> NeighbourMessage {
    let mut row = NeighbourMessage::default();
    row.header.family = AddressFamily::Bridge;
    row.header.ifindex = DEVICE;
    row.header.flags = NeighbourFlags::Own;
    row.attributes = vec![NeighbourAttribute::LinkLayerAddress(mac.to_vec())];
    row.attributes.extend(attributes);
    row
}

fn to(last: u8) -> NeighbourAttribute {
    NeighbourAttribute::Destination(NeighbourAddress::Inet([192, 0, 2, last].into()))
}

fn by_object(id: u32) -> NeighbourAttribute {
    NeighbourAttribute::Other(DefaultNla::new(uapi::NDA_NH_ID, id.to_ne_bytes().to_vec()))
}

fn new(row: NeighbourMessage) -> Vec<u8> {
    encoded(RouteNetlinkMessage::NewNeighbour(row), 0)
}

fn gone(row: NeighbourMessage) -> Vec<u8> {
    encoded(RouteNetlinkMessage::DelNeighbour(row), 0)
}

/// A next-hop object for forwarding entries: a host, or members with weight 1.
fn object(id: u32, kind: u16, value: &[u8]) -> Vec<u8> {
    Request::new(uapi::RTM_NEWNEXTHOP, 0, &[2, 0, 0, 0, 0, 0, 0, 0])
        .with(uapi::NHA_ID, &id.to_ne_bytes())
        .with(uapi::NHA_FDB, &[])
        .with(kind, value)
        .finish(1)
}

/// How many messages [`samples`] has.
pub(super) const SAMPLES: usize = 9;

/// Messages for the tests of the decoder as a whole.
pub(super) fn samples() -> Vec<Vec<u8>> {
    let vxlan = vxlan_link(vec![InfoVxlan::Id(5), InfoVxlan::Port(4789)]);
    let member = [21u32.to_ne_bytes(), [0; 4]].concat();
    vec![
        encoded(RouteNetlinkMessage::NewLink(vxlan.clone()), 0),
        encoded(RouteNetlinkMessage::DelLink(vxlan), 0),
        new(row(FLOOD, vec![to(2)])),
        new(row(FLOOD, vec![to(3), NeighbourAttribute::Port(5000)])),
        gone(row(FLOOD, vec![to(2)])),
        new(row(UNICAST, vec![to(2)])),
        new(row(UNICAST, vec![by_object(20)])),
        object(20, uapi::NHA_GROUP, &member),
        object(21, uapi::NHA_GATEWAY, &[192, 0, 2, 7]),
    ]
}

/// Applies messages; says whether the last one changed a forwarding entry.
fn apply(kernel: &mut Kernel, messages: &[Vec<u8>]) -> bool {
    let mut changed = false;
    for bytes in messages {
        changed = kernel.apply(decoded(bytes).expect("an event")).changed.fdb;
    }
    changed
}

fn host(last: u8) -> FdbDestination {
    FdbDestination::new(IpAddr::from([192, 0, 2, last]))
}

#[test]
fn a_row_is_read_with_all_it_says() {
    let row = row(
        UNICAST,
        vec![
            to(4),
            NeighbourAttribute::Port(5000),
            NeighbourAttribute::Vni(6),
            NeighbourAttribute::IfIndex(3),
            NeighbourAttribute::SourceVni(9),
        ],
    );
    let mut kernel = Kernel::default();
    assert!(apply(&mut kernel, &[new(row.clone())]));
    let (port, vni, ifindex) = (Some(5000), Some(6), Some(3));
    let expected = FdbEntry {
        ifindex: DEVICE,
        mac: UNICAST,
        vni: Some(9),
        destinations: BTreeSet::from([FdbDestination { port, vni, ifindex, ..host(4) }]),
        nexthop_id: None,
    };
    assert_eq!(kernel.fdb().collect::<Vec<_>>(), [&expected]);
    assert_eq!(kernel.fdb_of(DEVICE, UNICAST), None, "it is one network's of several");
    assert!(!apply(&mut kernel, &[new(row.clone())]), "a refresh is no change");
    assert!(apply(&mut kernel, &[gone(row)]));
    assert_eq!(kernel.fdb().count(), 0);
}

#[test]
fn flooded_addresses_collect_destinations_and_others_have_one() {
    let destinations = |kernel: &Kernel, mac| {
        kernel.fdb_of(DEVICE, mac).map(|entry| entry.destinations.clone()).unwrap_or_default()
    };
    for mac in [FLOOD, [1, 0, 0x5e, 0, 0, 5]] {
        let mut kernel = Kernel::default();
        assert!(apply(&mut kernel, &[new(row(mac, vec![to(3)])), new(row(mac, vec![to(2)]))]));
        assert_eq!(destinations(&kernel, mac), BTreeSet::from([host(2), host(3)]));
        assert!(apply(&mut kernel, &[gone(row(mac, vec![to(3)]))]));
        assert_eq!(destinations(&kernel, mac), BTreeSet::from([host(2)]));
        assert!(!apply(&mut kernel, &[gone(row(mac, vec![to(3)]))]), "gone already");
        // Another port makes it another destination.
        let other_port = vec![to(2), NeighbourAttribute::Port(1)];
        assert!(!apply(&mut kernel, &[gone(row(mac, other_port))]));
        assert!(apply(&mut kernel, &[gone(row(mac, vec![to(2)]))]));
        assert_eq!(kernel.fdb_of(DEVICE, mac), None);
    }
    let mut kernel = Kernel::default();
    apply(&mut kernel, &[new(row(UNICAST, vec![to(3)])), new(row(UNICAST, vec![to(2)]))]);
    assert_eq!(destinations(&kernel, UNICAST), BTreeSet::from([host(2)]));
}

#[test]
fn entries_follow_their_next_hop_objects() {
    let mut kernel = Kernel::default();
    let member = |id: u32, weight: u8| [id.to_ne_bytes(), [weight - 1, 0, 0, 0]].concat();
    let group = [member(21, 1), member(22, 3)].concat();
    assert!(apply(&mut kernel, &[new(row(UNICAST, vec![by_object(20)]))]));
    let entry = kernel.fdb_of(DEVICE, UNICAST).expect("an entry").clone();
    assert_eq!((entry.nexthop_id, entry.destinations.len()), (Some(20), 0));
    let objects = [
        object(21, uapi::NHA_GATEWAY, &[192, 0, 2, 7]),
        object(22, uapi::NHA_GATEWAY, &[192, 0, 2, 8]),
        object(20, uapi::NHA_GROUP, &group),
    ];
    assert!(apply(&mut kernel, &objects));
    let entry = kernel.fdb_of(DEVICE, UNICAST).expect("an entry").clone();
    assert_eq!(
        entry.destinations,
        BTreeSet::from([host(7), FdbDestination { weight: 3, ..host(8) }])
    );
    let end = Request::new(uapi::RTM_DELNEXTHOP, 0, &[0; 8])
        .with(uapi::NHA_ID, &20u32.to_ne_bytes())
        .finish(1);
    assert!(apply(&mut kernel, &[end]), "the kernel says nothing of the entry");
    assert_eq!(kernel.fdb().count(), 0);
}

#[test]
fn entries_go_with_their_device() {
    let mut kernel = Kernel::default();
    apply(&mut kernel, &[new(row(UNICAST, vec![to(2)])), new(row(FLOOD, vec![to(2)]))]);
    assert_eq!(kernel.fdb().count(), 2);
    let changed = kernel.apply(Event::LinkGone(DEVICE + 1)).changed;
    assert!(!changed.any(), "{changed:?}");
    let changed = kernel.apply(Event::LinkGone(DEVICE)).changed;
    assert_eq!(changed, Changed { fdb: true, ..Changed::default() });
    assert!(changed.any());
    assert_eq!(kernel.fdb().count(), 0);
}

/// What a bridge knows, what other devices listen to, and rows of links of another kind.
#[test]
fn other_rows_of_the_family_are_left_out_and_are_not_malformed() {
    let mut of_bridge = row(UNICAST, vec![to(2)]);
    of_bridge.header.flags = NeighbourFlags::Controller;
    let listening = row([0x33, 0x33, 0, 0, 0, 1], vec![]);
    let mut long = row(UNICAST, vec![to(2)]);
    long.attributes[0] = NeighbourAttribute::LinkLayerAddress(vec![0; 20]);
    for row in [of_bridge, listening, long] {
        for bytes in [new(row.clone()), gone(row)] {
            assert_eq!(decoded(&bytes), None);
        }
    }
    let mut kernel = Kernel::default();
    kernel.insert_link(raw_link("geneve", &[]));
    assert!(!apply(&mut kernel, &[new(row(UNICAST, vec![to(2)]))]));
    assert_eq!(kernel.fdb().count(), 0);

    let short = Request::new(libc::RTM_NEWNEIGH, 0, &[7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 2, 0])
        .with(libc::NDA_LLADDR, &UNICAST)
        .with(libc::NDA_DST, &[192, 0, 2])
        .finish(1);
    let message = Messages(&short).next().expect("a whole message");
    assert!(decode(&message, &BTreeSet::new()).is_err());
}
