//! Why a packet was dropped or handed to the kernel: one list, from which come the counters, the
//! documentation and the output of `sluice drops`.

/// What happens to a packet with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is dropped.
    Dropped,
    /// It is handed to the kernel, where there is a way to it.
    Kernel,
}

macro_rules! reasons {
    ($($variant:ident, $name:literal, $fate:ident, $text:literal;)*) => {
        /// Why a packet was dropped or handed to the kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $text] $variant,)*
        }

        impl Reason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name used in counters and output.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// What it means and what to do about it.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// What happens to the packet.
            pub const fn fate(self) -> Fate {
                match self { $(Self::$variant => Fate::$fate),* }
            }
        }
    };
}

reasons! {
    NotIp, "not_ip", Kernel, "Neither IPv4 nor IPv6, for instance ARP or LLDP.";
    Group, "group", Kernel, "Sent to a broadcast or multicast address.";
    NotOurs, "not_ours", Kernel,
        "Neither for a virtual service nor for a local port.";
    Truncated, "truncated", Dropped, "The frame ends within a header.";
    BadIpHeader, "bad_ip_header", Dropped, "The IP version or header length is impossible.";
    BadIpLength, "bad_ip_length", Dropped,
        "The IP total length is shorter than the header or longer than the frame.";
    BadIpChecksum, "bad_ip_checksum", Dropped,
        "The IPv4 header checksum is wrong: look for a faulty link.";
    BadL4Header, "bad_l4_header", Dropped, "The TCP data offset or the UDP length is impossible.";
    BadL4Checksum, "bad_l4_checksum", Dropped,
        "The port found the TCP or UDP checksum wrong, or that of an ICMP error about a session \
         is: look for a faulty link.";
    Martian, "martian", Dropped,
        "A packet without a session from an address that cannot be a source (0/8, 127/8, \
         multicast, 240/4), or from the virtual address itself.";
    Fragment, "fragment", Dropped,
        "A fragment that cannot be forwarded separately: of SCTP with translated ports (its \
         checksum covers the whole packet); of a stream whose PROXY header would have to be \
         inserted and cannot be made a multiple of eight bytes long; or of a datagram that the \
         PROXY header would extend beyond 65,535 bytes.";
    TinyFragment, "tiny_fragment", Dropped,
        "A first fragment too short for its transport header, or a later one that overlaps a TCP \
         header (RFC 1858, RFC 3128): an attempt to bypass a filter.";
    FragmentOrphan, "fragment_orphan", Dropped,
        "A fragment whose datagram's first fragment did not arrive within one second.";
    FragmentsFull, "fragments_full", Dropped,
        "A fragment that arrived before its datagram's first fragment, while too many were already \
         waiting.";
    NoBuffer, "no_buffer", Dropped,
        "No free buffer for the fragments of a packet.";
    IcmpError, "icmp_error", Dropped,
        "An ICMP error about a packet of no session, or one without an equivalent in the other IP \
         version; or about a tunnelled packet that quotes too little to identify its sender (its \
         path MTU is still recorded).";
    ExtensionHeaders, "extension_headers", Dropped,
        "More than eight IPv6 extension headers, or more than 256 bytes of them.";
    TtlExpired, "ttl_expired", Dropped,
        "The TTL does not allow another hop. The sender is notified within icmp.errors_per_s. Look \
         for a routing loop.";
    TooBig, "too_big", Dropped,
        "Larger than the MTU of its path, including tunnel overhead, and must not be fragmented. \
         The sender is notified of the MTU within icmp.errors_per_s. If it persists, align the \
         MTUs.";
    NoSession, "no_session", Dropped,
        "A TCP packet that belongs to no session and may not open one: often the end of a closed \
         connection, or a scan.";
    NoSessionReset, "no_session_reset", Dropped,
        "As no_session, answered with a reset (tcp.no_session = \"reset\").";
    RealGone, "real_gone", Dropped,
        "A packet of a session whose real server was removed or is down (on_removed, on_down); a \
         TCP client receives a reset.";
    NoReal, "no_real", Dropped,
        "The virtual service has no real server that accepts new sessions; the client is notified \
         (icmp.refused).";
    RealsFull, "reals_full", Dropped,
        "Every real server of the service has reached its upper_sessions; the client is notified \
         (icmp.refused).";
    ServiceFull, "service_full", Dropped,
        "The service has reached its max_sessions; the client is notified (icmp.refused).";
    ServiceRate, "service_rate", Dropped, "More new sessions per second than max_new_per_s.";
    ClientDenied, "client_denied", Dropped,
        "A new session from a client in the service's deny list, or not in its allow list.";
    NatConflict, "nat_conflict", Dropped,
        "The client has a session from the same port to the same real server through another \
         service, and with NAT their answers could not be told apart.";
    Untranslatable, "untranslatable", Dropped,
        "A packet without an equivalent in the other IP version (RFC 7915): authentication \
         headers, fragmented UDP without a checksum.";
    NoTunnelSource, "no_tunnel_source", Dropped,
        "A tunnel without an outer source address of the real server's family: set [ipip].";
    SessionsFull, "sessions_full", Dropped,
        "The worker's session table is full: raise limits.sessions or lower the timeouts.";
    LocalPortsExhausted, "local_ports_exhausted", Dropped,
        "No free local address and port towards the real server: add local addresses to the pool.";
    NoRoute, "no_route", Dropped, "The kernel has no usable route to where the packet must go.";
    Unresolved, "unresolved", Dropped,
        "The next hop did not answer ARP in time, or too many packets were waiting for it.";
    HandOffFull, "hand_off_full", Dropped,
        "The owner worker of the session could not keep up with packets handed off to it.";
    HandOffLoop, "hand_off_loop", Dropped,
        "A packet was handed off to a worker that does not own it: the workers disagree during a \
         reload.";
    TxFull, "tx_full", Dropped, "The port could not send fast enough.";
    PortGone, "port_gone", Dropped,
        "The egress port is not open: its interface vanished.";
    NoKernelPath, "no_kernel_path", Dropped,
        "A packet for the kernel, but its port has no path to the kernel: configure a twin for the \
         port.";
    NotLinear, "not_linear", Dropped,
        "The port delivered the frame in several buffers (jumbo frames).";
    Headroom, "headroom", Dropped, "No room in the frame's buffer for a VLAN tag.";
    OtherMac, "other_mac", Dropped,
        "A frame for another MAC address, delivered by a flooding switch to a promiscuous port.";
    LinkLocal, "link_local", Dropped,
        "A packet that would be forwarded, from a link-local address (fe80::/10, RFC 4291 2.5.6; \
         169.254/16, RFC 3927 7).";
    NoUdpChecksum, "no_udp_checksum", Dropped,
        "An IPv6 datagram without a checksum (RFC 8200 8.1; permitted for tunnels, RFC 6935), \
         which would become a valid IPv4 datagram.";
    SourceRoute, "source_route", Dropped,
        "A packet with a source route that would be forwarded: IPv4 loose and strict source \
         routes, IPv6 routing header type 0 (RFC 5095).";
    RepeatAwaited, "repeat_awaited", Dropped,
        "The first SYN of a connection, while a flood leaves half-open sessions less than one \
         second; the client's retransmission opens the connection.";
    ServiceShare, "service_share", Dropped,
        "The worker's session table is nearly full, and the service has reached its share: the \
         table size divided by the number of services with sessions.";
    VxlanVni, "vxlan_vni", Kernel,
        "A VXLAN packet to a VXLAN port's address and UDP port of a network that no VXLAN port is \
         of: the kernel's, or a network that is missing here.";
    VxlanMalformed, "vxlan_malformed", Dropped,
        "A datagram to a VXLAN port's address and UDP port without a network identifier, or \
         without a whole Ethernet header inside.";
    VxlanPeer, "vxlan_peer", Dropped,
        "A VXLAN packet of a known network from an address that is none of its remotes': a \
         missing remote, or an attempt to inject frames (RFC 7348 7).";
    VxlanChecksum, "vxlan_checksum", Dropped,
        "A VXLAN packet whose UDP checksum is wrong, or over IPv6 missing without being allowed \
         to (RFC 6935): look for a faulty link.";
    VxlanTagged, "vxlan_tagged", Dropped,
        "A frame with a VLAN tag that came in a VXLAN tunnel or would have gone into one \
         (RFC 7348 6.1).";
    VxlanEcn, "vxlan_ecn", Dropped,
        "A packet that met congestion within a VXLAN tunnel and has no other way to tell its \
         sender (RFC 6040 4.2).";
    VxlanNoRemote, "vxlan_no_remote", Dropped,
        "A frame to a MAC address that no remote of the VXLAN port has, or to a group: nothing is \
         flooded.";
    VxlanUnresolved, "vxlan_unresolved", Dropped,
        "There is no route to the remote of a VXLAN port, or its next hop did not answer.";
    VxlanTooLarge, "vxlan_too_large", Dropped,
        "A frame that with its outer headers is larger than the MTU towards the remote, or a \
         super-packet that cannot be cut there: lower the VXLAN port's MTU.";
    VxlanNarrow, "vxlan_narrow", Dropped,
        "An ICMP error about an outer packet of a VXLAN port that was too large for a link on its \
         way. It was believed: the port's MTU is lower for a while.";
    SpreadLate, "spread_late", Dropped,
        "A packet of a spread elephant flow that would have overtaken others, or been overtaken: a \
         worker that helps with it was too far behind, or, when a NIC's rule for it was made or \
         removed, the worker that received it before.";
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Reasons of packets that may be known to be of one virtual service: those with which a
    /// service refuses a new session or ends one. Each service counts its packets in this order.
    pub const OF_SERVICE: &'static [Self] = &[
        Self::Martian,
        Self::NoSession,
        Self::NoSessionReset,
        Self::RealGone,
        Self::NoReal,
        Self::RealsFull,
        Self::ServiceFull,
        Self::ServiceRate,
        Self::ClientDenied,
        Self::NatConflict,
        Self::SessionsFull,
        Self::LocalPortsExhausted,
        Self::NoRoute,
    ];

    /// Its place in [`Self::OF_SERVICE`], if it is there.
    pub fn place_of_service(self) -> Option<usize> {
        Self::OF_SERVICE.iter().position(|reason| *reason == self)
    }

    /// The list as a Markdown table, for the documentation.
    pub fn markdown() -> String {
        let mut out = String::from("| reason | packet is | meaning |\n| --- | --- | --- |\n");
        for reason in Self::ALL {
            let fate = match reason.fate() {
                Fate::Dropped => "dropped",
                Fate::Kernel => "given to the kernel",
            };
            out.push_str(&format!("| `{}` | {fate} | {} |\n", reason.name(), reason.text()));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_in_counter_order() {
        let names: HashSet<_> = Reason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Reason::COUNT);
        assert!(Reason::ALL.iter().enumerate().all(|(i, r)| *r as usize == i));
    }
}
