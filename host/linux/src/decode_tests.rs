//! The decoder against another implementation's encoder, and against bytes that make no sense.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, VlanProtocol,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState as Nud,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use proptest::prelude::*;

use crate::attributes::{Messages, Request};
use crate::event::{Event, Placement, decode};
use crate::state::{Kernel, Link, NeighbourState, NextHop, RouteKind, Table, Vlan};

mod vxlan;

/// A routing table that is followed beside `main` and `default`.
const FOLLOWED: u32 = 1001;

/// A message as the other implementation writes it.
fn encoded(message: RouteNetlinkMessage, flags: i32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = u16::try_from(flags).expect("16 bits");
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn decoded(bytes: &[u8]) -> Option<Event> {
    let message = Messages(bytes).next().expect("a whole message");
    decode(&message, &BTreeSet::from([FOLLOWED])).expect("a message that makes sense")
}

fn vlan_link() -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = 7;
    link.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
    link.attributes = vec![
        LinkAttribute::IfName("slx0.42".into()),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
        LinkAttribute::Mtu(1496),
        LinkAttribute::Link(3),
        LinkAttribute::NumRxQueues(1),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vlan),
            LinkInfo::Data(InfoData::Vlan(vec![
                InfoVlan::Id(42),
                InfoVlan::Protocol(VlanProtocol::Ieee8021Ad),
            ])),
        ]),
    ];
    link
}

fn multipath_route() -> RouteMessage {
    let mut route = RouteMessage::default();
    route.header.address_family = AddressFamily::Inet;
    route.header.destination_prefix_length = 24;
    route.header.table = libc::RT_TABLE_MAIN;
    route.header.kind = RouteType::Unicast;
    let hop = |last: u8, hops: u8, interface_index: u32| {
        let mut hop = RouteNextHop::default();
        hop.hops = hops;
        hop.interface_index = interface_index;
        let gateway = RouteAddress::Inet(Ipv4Addr::new(192, 0, 2, last));
        hop.attributes = vec![RouteAttribute::Gateway(gateway)];
        hop
    };
    route.attributes = vec![
        RouteAttribute::Destination(RouteAddress::Inet(Ipv4Addr::new(198, 51, 100, 0))),
        RouteAttribute::Priority(9),
        RouteAttribute::MultiPath(vec![hop(2, 0, 3), hop(3, 4, 5)]),
    ];
    route
}

fn neighbour() -> NeighbourMessage {
    let mut neighbour = NeighbourMessage::default();
    neighbour.header.family = AddressFamily::Inet;
    neighbour.header.ifindex = 3;
    neighbour.header.state = Nud::Stale;
    neighbour.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(Ipv4Addr::new(192, 0, 2, 9))),
        NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 9]),
    ];
    neighbour
}

/// The kernel of a test machine may have no VLAN devices, so this is where they are tried.
#[test]
fn a_vlan_sub_interface_is_read() {
    let expected = Link {
        index: 7,
        name: "slx0.42".into(),
        mac: Some([2, 0, 0, 0, 0, 1]),
        mtu: 1496,
        admin_up: true,
        carrier: true,
        kind: Some("vlan".into()),
        parent: Some(3),
        vlan: Some(Vlan { id: 42, ethertype: 0x88a8 }),
        vrf_table: None,
        vxlan: None,
        master: None,
        num_rx_queues: Some(1),
        loopback: false,
    };
    let bytes = encoded(RouteNetlinkMessage::NewLink(vlan_link()), 0);
    assert_eq!(decoded(&bytes), Some(Event::Link(expected)));

    // Its parent in another network namespace is nothing the mirror could name.
    let mut elsewhere = vlan_link();
    elsewhere.attributes.push(LinkAttribute::LinkNetNsId(1));
    let bytes = encoded(RouteNetlinkMessage::NewLink(elsewhere), 0);
    assert!(matches!(decoded(&bytes), Some(Event::Link(Link { parent: None, .. }))));
}

#[test]
fn a_port_that_leaves_its_bridge_is_no_deleted_link() {
    let mut link = vlan_link();
    let bytes = encoded(RouteNetlinkMessage::DelLink(link.clone()), 0);
    assert_eq!(decoded(&bytes), Some(Event::LinkGone(7)));
    link.header.interface_family = AddressFamily::Bridge;
    assert_eq!(decoded(&encoded(RouteNetlinkMessage::DelLink(link), 0)), None);
}

#[test]
fn a_multipath_route_is_read_with_its_weights_and_place() {
    let places = [
        (libc::NLM_F_EXCL | libc::NLM_F_CREATE, Placement::Only),
        (libc::NLM_F_CREATE, Placement::First),
        (libc::NLM_F_CREATE | libc::NLM_F_APPEND, Placement::Last),
        (libc::NLM_F_REPLACE, Placement::Replace),
        (libc::NLM_F_MULTI, Placement::Last),
    ];
    for (flags, place) in places {
        let bytes = encoded(RouteNetlinkMessage::NewRoute(multipath_route()), flags);
        let Some(Event::Route(route, placement)) = decoded(&bytes) else { panic!("a route") };
        assert_eq!(placement, place);
        assert_eq!((route.table, route.kind, route.metric), (Table::Main, RouteKind::Unicast, 9));
        assert_eq!((route.prefix, route.prefix_len), (IpAddr::from([198, 51, 100, 0]), 24));
        let hop = |last, ifindex, weight| NextHop {
            gateway: Some(IpAddr::from([192, 0, 2, last])),
            ifindex,
            weight,
            onlink: false,
        };
        assert_eq!(route.hops, [hop(2, 3, 1), hop(3, 5, 5)]);
    }
}

#[test]
fn routes_of_other_tables_and_cached_ones_are_left_out() {
    let mut local = multipath_route();
    local.header.table = libc::RT_TABLE_LOCAL;
    assert_eq!(decoded(&encoded(RouteNetlinkMessage::NewRoute(local), 0)), None);
    // The attribute has the last word about the table.
    let mut other = multipath_route();
    other.attributes.push(RouteAttribute::Table(1000));
    assert_eq!(decoded(&encoded(RouteNetlinkMessage::NewRoute(other), 0)), None);
    let mut followed = multipath_route();
    followed.attributes.push(RouteAttribute::Table(FOLLOWED));
    let bytes = encoded(RouteNetlinkMessage::NewRoute(followed), 0);
    let Some(Event::Route(route, _)) = decoded(&bytes) else { panic!("a route") };
    assert_eq!((route.table, route.hops.len()), (Table::Other(FOLLOWED), 2));
    let mut service = multipath_route();
    service.header.tos = 4;
    assert_eq!(decoded(&encoded(RouteNetlinkMessage::NewRoute(service), 0)), None);
}

#[test]
fn a_neighbour_is_read() {
    let bytes = encoded(RouteNetlinkMessage::NewNeighbour(neighbour()), 0);
    let Some(Event::Neighbour(read)) = decoded(&bytes) else { panic!("a neighbour") };
    assert_eq!((read.ifindex, read.state), (3, NeighbourState::Stale));
    assert_eq!(read.ip, IpAddr::from([192, 0, 2, 9]));
    assert_eq!(read.usable_mac(), Some([2, 0, 0, 0, 0, 9]));
}

/// How many messages [`samples`] has.
const SAMPLES: usize = 9 + vxlan::SAMPLES;

/// Messages with content in every branch of the decoder.
fn samples() -> Vec<Vec<u8>> {
    let group: Vec<u8> =
        [1u32.to_ne_bytes(), [3, 0, 0, 0], 2u32.to_ne_bytes(), [0, 0, 0, 0]].concat();
    let object = |id: u32| {
        Request::new(crate::uapi::RTM_NEWNEXTHOP, 0, &[2, 0, 0, 0, 0, 0, 0, 0])
            .with(crate::uapi::NHA_ID, &id.to_ne_bytes())
    };
    let address = Request::new(libc::RTM_NEWADDR, 0, &[2, 24, 0, 0, 3, 0, 0, 0])
        .with(libc::IFA_ADDRESS, &[192, 0, 2, 1])
        .with(libc::IFA_LOCAL, &[192, 0, 2, 1])
        .with(crate::uapi::IFA_FLAGS, &128u32.to_ne_bytes());
    let mut samples = vec![
        encoded(RouteNetlinkMessage::NewLink(vlan_link()), 0),
        encoded(RouteNetlinkMessage::NewRoute(multipath_route()), libc::NLM_F_REPLACE),
        encoded(RouteNetlinkMessage::DelRoute(multipath_route()), 0),
        encoded(RouteNetlinkMessage::NewNeighbour(neighbour()), 0),
        encoded(RouteNetlinkMessage::DelNeighbour(neighbour()), 0),
        encoded(RouteNetlinkMessage::DelLink(vlan_link()), 0),
        address.finish(1),
        object(1)
            .with(crate::uapi::NHA_OIF, &3u32.to_ne_bytes())
            .with(crate::uapi::NHA_GATEWAY, &[192, 0, 2, 2])
            .finish(2),
        object(10).with(crate::uapi::NHA_GROUP, &group).finish(3),
    ];
    samples.extend(vxlan::samples());
    samples
}

#[test]
fn every_sample_is_an_event() {
    assert_eq!(samples().len(), SAMPLES);
    for sample in samples() {
        assert!(decoded(&sample).is_some(), "{sample:?}");
    }
}

/// Applies whatever can be read from a datagram; what matters is that it returns.
fn swallow(kernel: &mut Kernel, datagram: &[u8]) {
    for message in Messages(datagram) {
        if let Ok(Some(event)) = decode(&message, &BTreeSet::from([FOLLOWED])) {
            kernel.apply(event);
        }
    }
    for address in [IpAddr::from([198, 51, 100, 7]), IpAddr::from([0x20; 16])] {
        crate::lookup(kernel, address);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        swallow(&mut Kernel::default(), &bytes);
    }

    /// Whole messages with wrong bytes in them reach deeper than arbitrary ones.
    #[test]
    fn damaged_messages_never_panic(
        damage in prop::collection::vec(
            (0..SAMPLES, prop::collection::vec((0..200usize, any::<u8>()), 0..6), 0..300usize),
            1..12,
        ),
    ) {
        let samples = samples();
        let mut kernel = Kernel::default();
        for (which, changes, cut) in damage {
            let mut bytes = samples[which].clone();
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(bytes.len().min(cut.max(16)));
            swallow(&mut kernel, &bytes);
        }
    }

    /// An announcement that is applied twice, or again after a later one, does no harm: the last
    /// one counts.
    #[test]
    fn announcements_may_be_repeated(order in prop::collection::vec(0..SAMPLES, 1..20)) {
        let samples = samples();
        let (mut once, mut again) = (Kernel::default(), Kernel::default());
        for &which in &order {
            swallow(&mut once, &samples[which]);
        }
        // A fresh dump that already contains everything, then all announcements again.
        let mut dumped = once.clone();
        for &which in &order {
            swallow(&mut dumped, &samples[which]);
            swallow(&mut again, &samples[which]);
            swallow(&mut again, &samples[which]);
        }
        prop_assert_eq!(&once, &dumped);
        prop_assert_eq!(&once, &again);
    }
}
