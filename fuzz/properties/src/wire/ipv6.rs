//! IPv6 headers and the walk behind them, beside `etherparse`, one header at a time.

use etherparse::{IpAuthHeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice};
use etherparse::{IpNumber, Ipv6RawExtHeaderSlice};
use sluice_wire::ipv6::{self, Upper};

/// Reads the bytes as an IPv6 packet; gives where its upper layer is.
pub fn packet(data: &[u8]) -> Option<Upper> {
    let theirs = Ipv6HeaderSlice::from_slice(data);
    let ours = ipv6::Header::parse(data).ok()?;
    let theirs = theirs.expect("what we take for a header is one");
    assert!(ours.total_len() <= data.len());
    assert_eq!(ours.payload_len(), usize::from(theirs.payload_length()));
    assert_eq!(ours.next_header(), theirs.next_header().0);
    assert_eq!(ours.hop_limit(), theirs.hop_limit());
    assert_eq!(ours.traffic_class(), theirs.traffic_class());
    assert_eq!(ours.flow_label(), theirs.flow_label().value());
    assert_eq!(ours.source().to_be_bytes(), theirs.source());
    assert_eq!(ours.destination().to_be_bytes(), theirs.destination());
    let address = theirs.source_addr();
    if ipv6::is_unicast_source(ours.source()) {
        assert!(!address.is_unspecified() && !address.is_loopback() && !address.is_multicast());
        assert!(address.to_ipv4_mapped().is_none());
    }
    assert_eq!(ipv6::is_link_local(ours.source()), address.is_unicast_link_local());
    let upper = ipv6::walk(data).ok()?;
    walk(&data[..ours.total_len()], upper);
    Some(upper)
}

/// Goes the same way with another's readers.
fn walk(packet: &[u8], upper: Upper) {
    let (mut next, mut at, mut later, mut headers) = (packet[6], ipv6::HEADER, false, 0);
    while is_extension(next) && !later {
        let rest = &packet[at..];
        let length;
        (next, length) = match next {
            ipv6::FRAGMENT => {
                let header = Ipv6FragmentHeaderSlice::from_slice(rest).expect("a fragment header");
                let ours = upper.fragment.expect("we saw it");
                assert_eq!((ours.at, ours.more), (at, header.more_fragments()));
                assert_eq!(ours.offset, header.fragment_offset().byte_offset());
                assert_eq!(ours.id, header.identification());
                later = ours.offset != 0;
                (header.next_header().0, ipv6::FRAGMENT_HEADER)
            }
            ipv6::AUTHENTICATION => {
                assert!(upper.authenticated);
                // A length of less than its own fixed part is no header to them; to us it is.
                let length = (usize::from(rest[1]) + 2) * 4;
                if let Ok(header) = IpAuthHeaderSlice::from_slice(rest) {
                    assert_eq!(length, header.slice().len());
                }
                (rest[0], length)
            }
            _ => {
                let header = Ipv6RawExtHeaderSlice::from_slice(rest).expect("a header");
                assert!(next != ipv6::ROUTING || rest[3] == 0 || upper.routed);
                (header.next_header().0, header.slice().len())
            }
        };
        at += length;
        headers += 1;
    }
    assert_eq!((upper.protocol, upper.offset), (next, at));
    assert!(headers <= ipv6::MOST_HEADERS && at <= packet.len());
}

fn is_extension(next: u8) -> bool {
    // To them mobility is one, behind which nothing comes; and what is encrypted; and experiments.
    let ends = matches!(next, ipv6::MOBILITY | ipv6::ESP | 253 | 254);
    IpNumber(next).is_ipv6_ext_header_value() && !ends
}
