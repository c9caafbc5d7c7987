//! Frames of TCP and UDP over IPv4, right in every field unless a test says otherwise.

use std::net::SocketAddrV4;

use etherparse::{
    EtherType, Ethernet2Header, IpFragOffset, IpNumber, Ipv4Header, Ipv4Options, SingleVlanHeader,
    TcpHeader, UdpHeader, VlanId,
};

/// A frame in the making. Made by [`tcp`] or [`udp`], finished by [`Frame::bytes`].
#[derive(Clone, Debug)]
pub struct Frame {
    source: SocketAddrV4,
    destination: SocketAddrV4,
    macs: ([u8; 6], [u8; 6]),
    vlans: Vec<u16>,
    ip: Ipv4Header,
    transport: Transport,
    payload: Vec<u8>,
    padding: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Transport {
    Tcp(Box<TcpHeader>),
    Udp { checksum: bool },
}

/// A TCP segment from `source` to `destination` (`"192.0.2.1:80"`), with `flags` out of `FSRPAU`.
///
/// # Panics
/// When an endpoint cannot be read or a flag is unknown: the test is wrong.
pub fn tcp(source: &str, destination: &str, flags: &str) -> Frame {
    let (source, destination) = (endpoint(source), endpoint(destination));
    let mut header = TcpHeader::new(source.port(), destination.port(), 1000, 65_535);
    for flag in flags.chars() {
        *match flag {
            'F' => &mut header.fin,
            'S' => &mut header.syn,
            'R' => &mut header.rst,
            'P' => &mut header.psh,
            'A' => &mut header.ack,
            'U' => &mut header.urg,
            other => panic!("no TCP flag is called {other}"),
        } = true;
    }
    Frame::new(source, destination, IpNumber::TCP, Transport::Tcp(Box::new(header)))
}

/// A UDP datagram from `source` to `destination`.
///
/// # Panics
/// When an endpoint cannot be read: the test is wrong.
pub fn udp(source: &str, destination: &str) -> Frame {
    let (source, destination) = (endpoint(source), endpoint(destination));
    Frame::new(source, destination, IpNumber::UDP, Transport::Udp { checksum: true })
}

fn endpoint(text: &str) -> SocketAddrV4 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not like 192.0.2.1:80"))
}

impl Frame {
    fn new(
        source: SocketAddrV4,
        destination: SocketAddrV4,
        protocol: IpNumber,
        transport: Transport,
    ) -> Self {
        let ip = Ipv4Header {
            time_to_live: 64,
            protocol,
            source: source.ip().octets(),
            destination: destination.ip().octets(),
            ..Ipv4Header::default()
        };
        Self {
            source,
            destination,
            macs: ([2, 0, 0, 0, 2, 1], [2, 0, 0, 0, 0, 1]),
            vlans: Vec::new(),
            ip,
            transport,
            payload: Vec::new(),
            padding: Vec::new(),
        }
    }

    /// Source and destination MAC.
    pub fn macs(mut self, source: [u8; 6], destination: [u8; 6]) -> Self {
        self.macs = (source, destination);
        self
    }

    /// One more 802.1Q tag inside of those before.
    pub fn vlan(mut self, id: u16) -> Self {
        self.vlans.push(id);
        self
    }

    /// Time to live; 64 otherwise.
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ip.time_to_live = ttl;
        self
    }

    /// Fragment offset in eight bytes, and whether more fragments follow.
    pub fn fragment(mut self, offset: u16, more: bool) -> Self {
        self.ip.fragment_offset = IpFragOffset::try_new(offset).expect("13 bits");
        self.ip.more_fragments = more;
        self.ip.dont_fragment = false;
        self
    }

    /// IP options: `words` times four bytes of no-operation, at most 10.
    pub fn ip_options(mut self, words: usize) -> Self {
        self.ip.options = Ipv4Options::try_from(&vec![1; words * 4][..]).expect("10 words at most");
        self
    }

    /// TCP sequence and acknowledgement number; nothing for UDP.
    pub fn numbers(mut self, sequence: u32, acknowledgement: u32) -> Self {
        if let Transport::Tcp(header) = &mut self.transport {
            header.sequence_number = sequence;
            header.acknowledgment_number = acknowledgement;
        }
        self
    }

    /// Sends UDP without a checksum (RFC 768); nothing for TCP.
    pub fn no_checksum(mut self) -> Self {
        if let Transport::Udp { checksum } = &mut self.transport {
            *checksum = false;
        }
        self
    }

    /// The data.
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// Bytes behind the IP packet, as Ethernet pads short frames.
    pub fn padding(mut self, padding: &[u8]) -> Self {
        self.padding = padding.to_vec();
        self
    }

    /// The whole frame.
    ///
    /// # Panics
    /// When it does not fit into an IPv4 packet.
    pub fn bytes(&self) -> Vec<u8> {
        let segment = self.segment();
        let mut ip = self.ip.clone();
        ip.set_payload_len(segment.len()).expect("fits into an IPv4 packet");
        ip.header_checksum = ip.calc_header_checksum();
        let mut bytes = Vec::new();
        let types: Vec<_> = self.vlans.iter().map(|_| EtherType::VLAN_TAGGED_FRAME).collect();
        let mut types = types.into_iter().chain([EtherType::IPV4]);
        let ethernet = Ethernet2Header {
            source: self.macs.0,
            destination: self.macs.1,
            ether_type: types.next().expect("at least IPv4"),
        };
        bytes.extend(ethernet.to_bytes());
        for (id, ether_type) in self.vlans.iter().zip(types) {
            let vlan_id = VlanId::try_new(*id).expect("12 bits");
            let tag = SingleVlanHeader { vlan_id, ether_type, ..SingleVlanHeader::default() };
            bytes.extend(tag.to_bytes());
        }
        bytes.extend(ip.to_bytes());
        bytes.extend(segment);
        bytes.extend(&self.padding);
        bytes
    }

    fn segment(&self) -> Vec<u8> {
        let (source, destination) = (self.source.ip().octets(), self.destination.ip().octets());
        match &self.transport {
            Transport::Tcp(header) => {
                let mut header = header.clone();
                let checksum = header.calc_checksum_ipv4_raw(source, destination, &self.payload);
                header.checksum = checksum.expect("fits into an IPv4 packet");
                [&header.to_bytes()[..], &self.payload].concat()
            }
            Transport::Udp { checksum } => {
                let (sport, dport) = (self.source.port(), self.destination.port());
                let header = if *checksum {
                    let ip = &self.ip;
                    UdpHeader::with_ipv4_checksum(sport, dport, ip, &self.payload)
                } else {
                    UdpHeader::without_ipv4_checksum(sport, dport, self.payload.len())
                };
                let header = header.expect("fits into an IPv4 packet");
                [&header.to_bytes()[..], &self.payload].concat()
            }
        }
    }
}
