//! Numbers of the kernel's interface that the `libc` crate does not carry (linux/rtnetlink.h,
//! nexthop.h, neighbour.h, if_link.h, if_addr.h, ethtool_netlink.h), and narrower types for some
//! that it does.

/// `RTM_*NEXTHOP`.
pub const RTM_NEWNEXTHOP: u16 = 104;
pub const RTM_DELNEXTHOP: u16 = 105;
pub const RTM_GETNEXTHOP: u16 = 106;

/// Multicast groups (`RTNLGRP_*`) the mirror follows.
pub const GROUPS: [u32; 7] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_NEXTHOP,
];

/// Attribute of a route: number of its next-hop object.
pub const RTA_NH_ID: u16 = 30;

/// Metric of a route: its MTU.
pub const RTAX_MTU: u16 = 2;

/// Flags of a next hop (`RTNH_F_*`).
pub const RTNH_F_ONLINK: u32 = 4;

/// Routing protocol: router advertisement.
pub const RTPROT_RA: u8 = 9;

/// Attributes of a next-hop object.
pub const NHA_ID: u16 = 1;
pub const NHA_GROUP: u16 = 2;
pub const NHA_BLACKHOLE: u16 = 4;
pub const NHA_OIF: u16 = 5;
pub const NHA_GATEWAY: u16 = 6;
pub const NHA_ENCAP_TYPE: u16 = 7;
pub const NHA_FDB: u16 = 11;

/// Attributes of a VLAN link, inside `IFLA_INFO_DATA`.
pub const IFLA_VLAN_ID: u16 = 1;
pub const IFLA_VLAN_PROTOCOL: u16 = 5;

/// Attribute of a VRF link, inside `IFLA_INFO_DATA`.
pub const IFLA_VRF_TABLE: u16 = 1;

/// Attributes of a VXLAN link, inside `IFLA_INFO_DATA`.
pub const IFLA_VXLAN_ID: u16 = 1;
pub const IFLA_VXLAN_GROUP: u16 = 2;
pub const IFLA_VXLAN_LINK: u16 = 3;
pub const IFLA_VXLAN_LOCAL: u16 = 4;
pub const IFLA_VXLAN_TTL: u16 = 5;
pub const IFLA_VXLAN_TOS: u16 = 6;
pub const IFLA_VXLAN_LEARNING: u16 = 7;
pub const IFLA_VXLAN_PORT_RANGE: u16 = 10;
pub const IFLA_VXLAN_PORT: u16 = 15;
pub const IFLA_VXLAN_GROUP6: u16 = 16;
pub const IFLA_VXLAN_LOCAL6: u16 = 17;
pub const IFLA_VXLAN_UDP_CSUM: u16 = 18;
pub const IFLA_VXLAN_UDP_ZERO_CSUM6_TX: u16 = 19;
pub const IFLA_VXLAN_UDP_ZERO_CSUM6_RX: u16 = 20;
pub const IFLA_VXLAN_GBP: u16 = 23;
pub const IFLA_VXLAN_COLLECT_METADATA: u16 = 25;
pub const IFLA_VXLAN_GPE: u16 = 27;
pub const IFLA_VXLAN_TTL_INHERIT: u16 = 28;

/// Attributes of a forwarding entry: the network it belongs to, its next-hop object.
pub const NDA_SRC_VNI: u16 = 11;
pub const NDA_NH_ID: u16 = 13;

/// Attribute of an address: its flags in 32 bits.
pub const IFA_FLAGS: u16 = 8;

/// Generic netlink: the controller's request for a family's number.
pub const CTRL_CMD_GETFAMILY: u8 = 3;
pub const CTRL_ATTR_FAMILY_ID: u16 = 1;
pub const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// ethtool over netlink: channels (queues).
pub const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
pub const ETHTOOL_A_CHANNELS_HEADER: u16 = 1;
pub const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
pub const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;
pub const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;

/// ethtool over netlink: features (offloads), as bit sets.
pub const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
pub const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
pub const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
pub const ETHTOOL_A_BITSET_BITS: u16 = 3;
pub const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
pub const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
