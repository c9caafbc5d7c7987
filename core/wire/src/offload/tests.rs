//! `etherparse` builds the frames, reads the segments and calculates their checksums its own way.

use super::*;
use etherparse::{IpHeaders, IpNumber, Ipv4Header, Ipv6Header, TcpHeader, UdpHeader};
use proptest::prelude::*;

/// What a frame is made of.
#[derive(Clone, Debug)]
struct Recipe {
    six: bool,
    udp: bool,
    /// An outer header of this version, and what is behind it.
    tunnel: Option<(bool, Shim)>,
    tags: usize,
    options: usize,
    flags: u16,
    sequence: u32,
    id: u16,
    data: Vec<u8>,
}

/// What is between the outer IP header and the packet inside.
#[derive(Clone, Copy, Debug)]
enum Shim {
    Nothing,
    Gue { checksum: bool },
    Gre { checksum: bool, key: Option<u32> },
}

impl Shim {
    /// Its bytes before it is finished, and what the outer header calls it.
    fn bytes(self, six: bool) -> (Vec<u8>, IpNumber) {
        let inner = if six { IpNumber::IPV6 } else { IpNumber::IPV4 };
        match self {
            Self::Nothing => (Vec::new(), inner),
            Self::Gue { checksum } => {
                let sum = if checksum { 0xff } else { 0 };
                let bytes = vec![0xc0, 1, 0x17, 0xc0, 0, 0, sum, sum, 0, inner.0, 0, 0];
                (bytes, IpNumber::UDP)
            }
            Self::Gre { checksum, key } => {
                let (bit, [high, low]) =
                    (u8::from(checksum) << 7, if six { [0x86, 0xdd] } else { [8, 0] });
                let mut bytes = vec![bit | u8::from(key.is_some()) << 5, 0, high, low];
                bytes.extend(if checksum { &[0xbe, 0xef, 0, 0][..] } else { &[] });
                bytes.extend(key.iter().flat_map(|key| key.to_be_bytes()));
                (bytes, IpNumber::GRE)
            }
        }
    }

    /// Takes it off what follows the outer header; fails when a length or a checksum is wrong.
    fn taken_off(self, outer: &IpHeaders, behind: &[u8]) -> Vec<u8> {
        match self {
            Self::Nothing => behind.to_vec(),
            Self::Gue { checksum } => {
                let (udp, data) = UdpHeader::from_slice(behind).unwrap();
                assert_eq!(usize::from(udp.length), behind.len());
                let wanted = if checksum { udp_checksum(outer, &udp, data) } else { 0 };
                assert_eq!(udp.checksum, wanted);
                data[4..].to_vec()
            }
            Self::Gre { checksum, key } => {
                if checksum {
                    let words = behind.chunks(2);
                    let word =
                        |it: &[u8]| u64::from(it[0]) << 8 | it.get(1).map_or(0, |&b| b.into());
                    assert_eq!(words.map(word).sum::<u64>() % 0xffff, 0);
                }
                let length = 4 + 4 * usize::from(checksum) + 4 * usize::from(key.is_some());
                behind[length..].to_vec()
            }
        }
    }
}

fn shim() -> impl Strategy<Value = Shim> {
    prop_oneof![
        Just(Shim::Nothing),
        any::<bool>().prop_map(|checksum| Shim::Gue { checksum }),
        any::<(bool, Option<u32>)>().prop_map(|(checksum, key)| Shim::Gre { checksum, key }),
    ]
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let tunnel = proptest::option::of((any::<bool>(), shim()));
    (
        (any::<bool>(), any::<bool>(), tunnel, 0..3_usize, 0..11_usize),
        (any::<u16>(), any::<u32>(), any::<u16>()),
        proptest::collection::vec(any::<u8>(), 1..5000),
    )
        .prop_map(|((six, udp, tunnel, tags, options), (flags, sequence, id), data)| Recipe {
            six,
            udp,
            tunnel,
            tags,
            options,
            flags,
            sequence,
            id,
            data,
        })
}

fn v4(protocol: IpNumber, length: usize, id: u16) -> Ipv4Header {
    let (source, destination) = ([198, 51, 100, 48], [192, 0, 2, 11]);
    let mut header = Ipv4Header::new(length as u16, 63, protocol, source, destination).unwrap();
    header.identification = id;
    header.header_checksum = header.calc_header_checksum();
    header
}

fn v6(protocol: IpNumber, length: usize) -> Ipv6Header {
    Ipv6Header {
        payload_length: length as u16,
        next_header: protocol,
        hop_limit: 63,
        source: std::array::from_fn(|at| at as u8 + 0x20),
        destination: std::array::from_fn(|at| at as u8 * 3 + 1),
        ..Ipv6Header::default()
    }
}

fn net(six: bool, protocol: IpNumber, length: usize, id: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    match six {
        false => v4(protocol, length, id).write(&mut bytes).unwrap(),
        true => v6(protocol, length).write(&mut bytes).unwrap(),
    }
    bytes
}

impl Recipe {
    /// The frame, with nonsense for a transport checksum.
    fn frame(&self) -> Vec<u8> {
        let mut transport = vec![0x1f, 0x90, 0, 80];
        let protocol = if self.udp {
            transport.extend((8 + self.data.len() as u16).to_be_bytes());
            transport.extend([0xbe, 0xef]);
            IpNumber::UDP
        } else {
            transport.extend(self.sequence.to_be_bytes());
            transport.extend([1, 2, 3, 4, (5 + self.options as u8) << 4]);
            transport.extend([self.flags as u8, 0xff, 0xff, 0xbe, 0xef, 0, 0]);
            transport.extend(std::iter::repeat_n(1, self.options * 4));
            IpNumber::TCP
        };
        let upper = transport.len() + self.data.len();
        let mut inner = net(self.six, protocol, upper, self.id);
        inner.extend(transport);
        let mut packet = Vec::new();
        let mut outer_six = self.six;
        if let Some((six, shim)) = self.tunnel {
            let (shim, protocol) = shim.bytes(self.six);
            packet = net(six, protocol, shim.len() + inner.len() + self.data.len(), !self.id);
            packet.extend(shim);
            outer_six = six;
        }
        packet.extend(inner);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for _ in 0..self.tags {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend(if outer_six { [0x86, 0xdd] } else { [8, 0] });
        frame.extend(packet);
        frame.extend(&self.data);
        frame
    }

    /// Where the headers of a frame that it made are.
    fn place(&self, frame: &[u8]) -> Option<Place> {
        let shim = self.tunnel.map_or(0, |(_, shim)| shim.bytes(self.six).0.len());
        Place::behind(frame, shim)
    }

    fn cut(
        &self,
        frame: &[u8],
        size: u16,
        piece: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Option<usize> {
        cut_at(self.place(frame)?, frame, size, piece)
    }
}

/// What `etherparse` finds in a segment; fails when any checksum or length is wrong.
struct Seen {
    tcp: Option<etherparse::TcpHeader>,
    ids: Vec<u16>,
    data: Vec<u8>,
}

fn see(recipe: &Recipe, frame: &[u8]) -> Seen {
    let mut packet = frame[14 + 4 * recipe.tags..].to_vec();
    let mut tunnel = recipe.tunnel;
    let mut ids = Vec::new();
    loop {
        let (net, payload) = IpHeaders::from_slice(&packet).unwrap();
        if let IpHeaders::Ipv4(header, _) = &net {
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            ids.push(header.identification);
        }
        if let Some((_, shim)) = tunnel.take() {
            packet = shim.taken_off(&net, payload.payload);
            continue;
        }
        let (tcp, data) = match payload.ip_number {
            IpNumber::TCP => {
                let (header, data) = TcpHeader::from_slice(payload.payload).unwrap();
                let wanted = match &net {
                    IpHeaders::Ipv4(net, _) => header.calc_checksum_ipv4(net, data),
                    IpHeaders::Ipv6(net, _) => header.calc_checksum_ipv6(net, data),
                };
                assert_eq!(header.checksum, wanted.unwrap());
                (Some(header), data)
            }
            IpNumber::UDP => {
                let (header, data) = UdpHeader::from_slice(payload.payload).unwrap();
                assert_eq!(header.checksum, udp_checksum(&net, &header, data));
                assert_eq!(usize::from(header.length), 8 + data.len());
                (None, data)
            }
            other => unreachable!("{other:?} is not made"),
        };
        return Seen { tcp, ids, data: data.to_vec() };
    }
}

fn udp_checksum(net: &IpHeaders, header: &UdpHeader, data: &[u8]) -> u16 {
    match net {
        IpHeaders::Ipv4(net, _) => header.calc_checksum_ipv4(net, data),
        IpHeaders::Ipv6(net, _) => header.calc_checksum_ipv6(net, data),
    }
    .unwrap()
}

proptest! {
    /// The segments are complete packets, and together what the super-packet was.
    #[test]
    fn segments_are_whole_packets(recipe in recipe(), size in 1u16..3000, padding in 0..9_usize) {
        let mut frame = recipe.frame();
        frame.extend(vec![0; padding]);
        let mut segments = Vec::new();
        let count = recipe.cut(&frame, size, |headers, data| {
            segments.push([headers, data].concat());
            true
        });
        let expected = recipe.data.len().div_ceil(usize::from(size));
        prop_assert_eq!((count, segments.len()), (Some(expected), expected));
        let (mut together, first) = (Vec::new(), see(&recipe, &segments[0]).ids);
        for (index, segment) in segments.iter().enumerate() {
            let seen = see(&recipe, segment);
            let further = |id: &u16| id.wrapping_add(index as u16);
            prop_assert_eq!(&seen.ids, &first.iter().map(further).collect::<Vec<_>>());
            if let Some(tcp) = seen.tcp {
                let before = together.len() as u32;
                let (last, sent) = (index + 1 == expected, recipe.flags as u8);
                prop_assert_eq!(tcp.sequence_number, recipe.sequence.wrapping_add(before));
                prop_assert_eq!((tcp.fin, tcp.psh), (last && sent & 1 != 0, last && sent & 8 != 0));
                prop_assert_eq!(tcp.cwr, index == 0 && sent & 0x80 != 0);
                let others = (tcp.syn, tcp.rst, tcp.ack, tcp.urg, tcp.ece);
                let bit = |bit: u8| sent & bit != 0;
                prop_assert_eq!(others, (bit(2), bit(4), bit(16), bit(32), bit(64)));
            }
            prop_assert!(seen.data.len() <= usize::from(size));
            together.extend(seen.data);
        }
        prop_assert_eq!(together, recipe.data);
    }

    /// The first segment is the same when it is made in place.
    #[test]
    fn the_first_is_the_first(recipe in recipe(), size in 1u16..3000) {
        let mut frame = recipe.frame();
        let mut first = Vec::new();
        recipe.cut(&frame, size, |headers, data| {
            first = [headers, data].concat();
            false
        });
        // Nobody makes one of a frame that is in a tunnel already.
        prop_assume!(!matches!(recipe.tunnel, Some((_, Shim::Gue { .. } | Shim::Gre { .. }))));
        let length = keep_first(&mut frame, size).unwrap();
        prop_assert_eq!(&frame[..length], &first[..]);
    }

    /// A completed checksum is right; one that was begun is what a device completes by a sum from
    /// the transport header on.
    #[test]
    fn checksums_are_completed(recipe in recipe()) {
        let mut frame = recipe.frame();
        let place = recipe.place(&frame).unwrap();
        prop_assert_eq!(place.in_tunnel(), recipe.tunnel.is_some());
        prop_assert_eq!(place.is_v6(&frame), recipe.six);
        let mut begun = frame.clone();
        place.complete_checksum(&mut frame).unwrap();
        see(&recipe, &frame);
        // What is between the headers may have a checksum over the packet: none is left to devices.
        if !matches!(recipe.tunnel, None | Some((_, Shim::Nothing))) {
            return Ok(());
        }
        place.begin_checksum(&mut begun).unwrap();
        let value = checksum::full(&begun[place.l4..]);
        let value = if value == 0 && recipe.udp { 0xffff } else { value };
        let at = place.l4 + place.checksum_offset();
        begun[at..at + 2].copy_from_slice(&value.to_be_bytes());
        prop_assert_eq!(begun, frame);
    }

    /// Nothing that is cut short or damaged makes it fail.
    #[test]
    fn anything_may_come(recipe in recipe(), at in 0..200_usize, value: u8, keep in 0..6000_usize,
                         size: u16) {
        let mut frame = recipe.frame();
        if let Some(byte) = frame.get_mut(at) {
            *byte = value;
        }
        frame.truncate(keep);
        let mut data = 0;
        recipe.cut(&frame, size, |_, part| {
            data += part.len();
            true
        });
        prop_assert!(data <= frame.len());
        keep_first(&mut frame, size);
        if let Some(place) = recipe.place(&frame) {
            place.complete_checksum(&mut frame);
            place.begin_checksum(&mut frame);
        }
    }
}
