//! What the kernel says of an unfinished frame, and what it is told: `struct virtio_net_hdr` before
//! each frame of packet sockets (`PACKET_VNET_HDR`) and TAP interfaces (`IFF_VNET_HDR`).
//!
//! An unfinished frame is a TCP segment or UDP datagram whose checksum covers the pseudo header
//! only, and it may be a *super-packet*: a TCP segment with the data of many, and the size of each.
//! Both are marked in the packet buffer as DPDK does for devices that join segments
//! (`RTE_MBUF_F_RX_LRO`, `RTE_MBUF_F_RX_L4_CKSUM_NONE`).
//!
//! Invariant: a marked buffer that comes from here has a [`Place`] outside a tunnel. Whatever else
//! a kernel may leave unfinished (UDP, tunnels, SCTP) is finished here on receipt, so that the
//! packet path never sees it.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;
use sluice_wire::offload::{self, Place, Run};
use sluice_wire::{checksum, ipv4, sctp, tcp, vxlan};

use crate::mbuf::{Marks, Mbuf};
use crate::pool::FramePool;
use crate::queue::BURST;

const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;
/// The flag of TCP that [`GSO_ECN`] is about.
const CWR: u8 = 0x80;
/// Where SCTP's checksum is.
const SCTP_CHECKSUM: u16 = 8;

/// `struct virtio_net_hdr`, in the machine's byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

/// Bytes of the header.
pub(crate) const HEADER: usize = 10;
const _: () = assert!(size_of::<VnetHeader>() == HEADER);

/// What becomes of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Landed {
    /// It goes on with these marks.
    Whole(Marks),
    /// It is cut into segments of this size. So many bytes are between an outer IP header and the
    /// packet inside, if it has one.
    Cut(u16, usize),
    /// Nobody knows how.
    Unknown,
}

/// Frames that were received at once, and those that one became which was cut.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Came {
    /// Packets: each segment counts.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that could not be understood.
    pub errors: u64,
    /// Frames there was no buffer for.
    pub no_buffer: u64,
}

/// Where received frames go.
#[derive(Debug)]
pub(crate) struct Received {
    /// Buffers for what fits them.
    small: FramePool,
    /// The longest frame that does.
    most: usize,
    /// Frames that nobody has taken yet; never more than one frame's segments and a burst.
    ready: VecDeque<Mbuf>,
    pub came: Came,
}

impl Received {
    /// Frames of up to `most` bytes go into buffers of this pool.
    pub fn new(small: FramePool, most: u16) -> Self {
        let ready = VecDeque::with_capacity(2 * BURST);
        Self { small, most: usize::from(most), ready, came: Came::default() }
    }

    fn copy_of(&self, bytes: &[u8]) -> Option<Mbuf> {
        (bytes.len() <= self.most).then(|| self.small.copy_of(bytes)).flatten()
    }

    /// Takes a frame that was read into a buffer of its own. Gives the buffer back if the frame is
    /// in others now.
    pub fn land(&mut self, header: VnetHeader, mut frame: Mbuf) -> Option<Mbuf> {
        match header.judge(frame.bytes_mut()) {
            Landed::Whole(marks) => {
                self.count(frame.bytes(), marks.segment_size);
                let (mut frame, spare) = match self.copy_of(frame.bytes()) {
                    Some(copy) => (copy, Some(frame)),
                    None => (frame, None),
                };
                frame.mark(marks);
                self.ready.push_back(frame);
                spare
            }
            Landed::Cut(size, shim) => {
                self.cut(frame.bytes(), size, shim);
                Some(frame)
            }
            Landed::Unknown => {
                self.came.errors += 1;
                Some(frame)
            }
        }
    }

    /// Takes a frame from memory that it cannot stay in.
    pub fn land_copy(&mut self, header: VnetHeader, bytes: &mut [u8]) {
        match header.judge(bytes) {
            Landed::Whole(Marks { segment_size: 0, partial }) => {
                let Some(mut frame) = self.copy_of(bytes) else {
                    return self.came.no_buffer += 1;
                };
                frame.mark(Marks { segment_size: 0, partial });
                self.count(bytes, 0);
                self.ready.push_back(frame);
            }
            Landed::Whole(Marks { segment_size, .. }) => self.cut(bytes, segment_size, 0),
            Landed::Cut(size, shim) => self.cut(bytes, size, shim),
            Landed::Unknown => self.came.errors += 1,
        }
    }

    fn cut(&mut self, bytes: &[u8], size: u16, shim: usize) {
        let Self { small, ready, came, .. } = self;
        let Some(place) = Place::behind(bytes, shim) else { return came.errors += 1 };
        let done = offload::cut_at(place, bytes, size, |headers, data| {
            let Some(frame) = piece(*small, headers, data) else {
                came.no_buffer += 1;
                return false;
            };
            came.packets += 1;
            came.bytes += frame.bytes().len() as u64;
            ready.push_back(frame);
            true
        });
        came.errors += u64::from(done.is_none());
    }

    fn count(&mut self, bytes: &[u8], size: u16) {
        let (packets, bytes) = carried(Place::of(bytes), bytes.len(), size);
        self.came.packets += packets;
        self.came.bytes += bytes;
    }

    /// Hands on what is ready.
    pub fn give<const N: usize>(&mut self, frames: &mut ArrayVec<Mbuf, N>, most: usize) -> usize {
        let count = self.ready.len().min(most).min(frames.remaining_capacity());
        frames.extend(self.ready.drain(..count));
        count
    }
}

/// A frame of these bytes.
pub(crate) fn piece(pool: FramePool, headers: &[u8], data: &[u8]) -> Option<Mbuf> {
    let mut frame = pool.alloc()?;
    if !frame.set_len(headers.len() + data.len()) {
        return None;
    }
    let (front, back) = frame.bytes_mut().split_at_mut(headers.len());
    front.copy_from_slice(headers);
    back.copy_from_slice(data);
    Some(frame)
}

/// The packets that a frame is on the wire, and their bytes.
pub(crate) fn carried(place: Option<Place>, whole: usize, size: u16) -> (u64, u64) {
    let whole = whole as u64;
    match place.filter(|_| size > 0) {
        Some(place) => {
            let packets = place.segments(size) as u64;
            (packets, whole + (packets - 1) * place.data as u64)
        }
        None => (1, whole),
    }
}

impl VnetHeader {
    /// What a frame with this header is. One whose checksum nobody else would complete gets it.
    fn judge(self, bytes: &mut [u8]) -> Landed {
        let plain = Marks::default();
        if self.flags & NEEDS_CSUM == 0 && self.gso_type == 0 {
            return Landed::Whole(plain);
        }
        let place = Place::of(bytes);
        match (self.gso_type & !GSO_ECN, place) {
            (0, Some(place)) if !place.in_tunnel() && self.is_of(&place) => {
                Landed::Whole(Marks { partial: true, segment_size: 0 })
            }
            (0, _) if self.complete(bytes) => Landed::Whole(plain),
            (GSO_TCPV4 | GSO_TCPV6, Some(place)) if place.protocol == ipv4::TCP => {
                let several = place.segments(self.gso_size) > 1;
                let segment_size = if several { self.gso_size } else { 0 };
                match place.in_tunnel() {
                    false => Landed::Whole(Marks { partial: true, segment_size }),
                    true => Landed::Cut(self.gso_size, 0),
                }
            }
            (GSO_TCPV4 | GSO_TCPV6, Some(place)) if self.is_in_vxlan(bytes, &place) => {
                Landed::Cut(self.gso_size, vxlan::SHIM)
            }
            (GSO_UDP_L4, Some(place)) if place.protocol == ipv4::UDP => {
                Landed::Cut(self.gso_size, 0)
            }
            _ => Landed::Unknown,
        }
    }

    /// Whether it speaks of this transport header's checksum, not of one further in. A tag that was
    /// put back in has moved the header since.
    fn is_of(self, place: &Place) -> bool {
        usize::from(self.csum_offset) == place.checksum_offset()
            && usize::from(self.csum_start) < place.data
    }

    /// Whether it speaks of a TCP segment within a VXLAN packet, whose outer datagram this is: the
    /// kernel does not say which tunnel it is, but where the segment begins.
    fn is_in_vxlan(self, bytes: &[u8], outer: &Place) -> bool {
        let inner = Place::behind(bytes, vxlan::SHIM);
        let is_inner =
            |inner: Place| inner.protocol == ipv4::TCP && usize::from(self.csum_start) == inner.l4;
        outer.protocol == ipv4::UDP && inner.is_some_and(is_inner)
    }

    /// Completes the checksum of whatever it is; `false` if it is not within the frame.
    fn complete(self, bytes: &mut [u8]) -> bool {
        let (start, offset) = (usize::from(self.csum_start), usize::from(self.csum_offset));
        let Some(covered) = bytes.get_mut(start..).filter(|_| start > 0) else { return false };
        if self.csum_offset == SCTP_CHECKSUM {
            let Some(&[a, b, c, d]) = covered.first_chunk() else { return false };
            let ports = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            return sctp::set_ports_and_crc(covered, ports.0, ports.1);
        }
        let value = checksum::full(covered);
        let Some(field) = covered.get_mut(offset..offset + 2) else { return false };
        field.copy_from_slice(&value.to_be_bytes());
        true
    }

    /// As the kernel reads it.
    pub fn bytes(&self) -> &[u8] {
        let header: *const Self = self;
        // SAFETY: the header has no padding (its size says so), and is borrowed as long.
        unsafe { std::slice::from_raw_parts(header.cast(), HEADER) }
    }

    /// Moves what it says behind a tag of four bytes that was put in.
    pub fn behind_tag(mut self) -> Self {
        self.csum_start = self.csum_start.saturating_add(4);
        self
    }

    /// What the kernel is told of joined segments, whose checksum has begun.
    pub fn of_run(run: &Run, is_v6: bool) -> Self {
        let place = run.place();
        Self {
            flags: NEEDS_CSUM,
            gso_type: if is_v6 { GSO_TCPV6 } else { GSO_TCPV4 },
            hdr_len: place.data as u16,
            gso_size: run.size(),
            csum_start: place.l4 as u16,
            csum_offset: place.checksum_offset() as u16,
        }
    }

    /// What the kernel is told of a frame, whose checksum field is made what it expects. `None`
    /// when it has to be cut in software.
    pub fn of(frame: &mut Mbuf) -> Option<Self> {
        let marks = frame.marks();
        let finished = Self { flags: 0, ..Self::default() };
        if marks == Marks::default() {
            return Some(finished);
        }
        let Some(place) = frame.transport() else { return Some(finished) };
        let bytes = frame.bytes_mut();
        let several = place.segments(marks.segment_size) > 1;
        if place.in_tunnel() || place.protocol == ipv4::UDP && several {
            if several {
                return None;
            }
            return place.complete_checksum(bytes).map(|()| finished);
        }
        place.begin_checksum(bytes)?;
        let mut header = Self {
            flags: NEEDS_CSUM,
            csum_start: place.l4 as u16,
            csum_offset: place.checksum_offset() as u16,
            ..Self::default()
        };
        if several {
            let reduced = bytes[place.l4 + tcp::FLAGS] & CWR != 0;
            let kind = if place.is_v6(bytes) { GSO_TCPV6 } else { GSO_TCPV4 };
            header.gso_type = kind | if reduced { GSO_ECN } else { 0 };
            header.gso_size = marks.segment_size;
            header.hdr_len = place.data as u16;
        }
        Some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    const ENDS: ([u8; 4], [u8; 4]) = ([198, 51, 100, 48], [192, 0, 2, 11]);

    fn tcp(data: usize) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ENDS.0, ENDS.1, 64);
        let mut bytes = Vec::new();
        builder.tcp(4000, 80, 7, 1000).write(&mut bytes, &vec![1; data]).unwrap();
        bytes
    }

    fn udp(data: usize) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ENDS.0, ENDS.1, 64);
        let mut bytes = Vec::new();
        builder.udp(4000, 53).write(&mut bytes, &vec![1; data]).unwrap();
        bytes
    }

    /// The packet of a frame in another IPv4 packet.
    fn in_tunnel(frame: &[u8]) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ENDS.0, ENDS.1, 64);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, etherparse::IpNumber::IPV4, &frame[14..]).unwrap();
        bytes
    }

    /// A frame in a VXLAN packet.
    fn in_vxlan(frame: &[u8]) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(ENDS.0, ENDS.1, 64);
        let mut bytes = Vec::new();
        let data = [&vxlan::header(7), frame].concat();
        builder.udp(50_000, vxlan::PORT).write(&mut bytes, &data).unwrap();
        bytes
    }

    fn header(gso_type: u8, gso_size: u16, csum_start: u16, csum_offset: u16) -> VnetHeader {
        VnetHeader { flags: NEEDS_CSUM, gso_type, hdr_len: 0, gso_size, csum_start, csum_offset }
    }

    #[test]
    fn each_kind_is_known() {
        let partial = |segment_size| Landed::Whole(Marks { partial: true, segment_size });
        let cut = Landed::Cut(1000, 0);
        for (header, mut frame, expected) in [
            (VnetHeader::default(), tcp(9), Landed::Whole(Marks::default())),
            (header(0, 0, 34, 16), tcp(9), partial(0)),
            (header(0, 0, 34, 6), udp(9), partial(0)),
            (header(GSO_TCPV4, 1000, 34, 16), tcp(5000), partial(1000)),
            (header(GSO_TCPV4 | GSO_ECN, 1000, 34, 16), tcp(5000), partial(1000)),
            (header(GSO_TCPV4, 1000, 34, 16), tcp(1000), partial(0)),
            (header(GSO_UDP_L4, 1000, 34, 6), udp(5000), cut),
            (header(GSO_TCPV4, 1000, 54, 16), in_tunnel(&tcp(5000)), cut),
            (header(GSO_TCPV4, 1000, 84, 16), in_vxlan(&tcp(5000)), Landed::Cut(1000, 30)),
            (header(GSO_TCPV4, 1000, 54, 16), in_vxlan(&tcp(5000)), Landed::Unknown),
            (header(0, 0, 34, 6), in_vxlan(&udp(9)), partial(0)),
            (header(0, 0, 84, 6), in_vxlan(&udp(9)), Landed::Whole(Marks::default())),
            // Fragments in one (VIRTIO_NET_HDR_GSO_UDP): no kernel makes them any more.
            (header(3, 1000, 34, 6), udp(5000), Landed::Unknown),
            (header(GSO_TCPV4, 1000, 34, 16), udp(5000), Landed::Unknown),
            (header(0, 0, 9000, 16), in_tunnel(&tcp(9)), Landed::Unknown),
        ] {
            assert_eq!(header.judge(&mut frame), expected, "{header:?}");
        }
    }

    /// What the path would not know how to complete is completed on arrival.
    #[test]
    fn a_packet_in_a_tunnel_is_completed() {
        let whole = in_tunnel(&tcp(9));
        let mut begun = whole.clone();
        let place = Place::of(&begun).unwrap();
        place.begin_checksum(&mut begun).unwrap();
        assert_ne!(begun, whole);
        let landed = header(0, 0, 54, 16).judge(&mut begun);
        assert_eq!((landed, begun), (Landed::Whole(Marks::default()), whole));
    }

    /// The kernel completes the outer checksum when it leaves an inner one to others.
    #[test]
    fn a_datagram_in_vxlan_is_completed() {
        let whole = in_vxlan(&udp(9));
        let mut begun = whole.clone();
        let place = Place::behind(&begun, vxlan::SHIM).unwrap();
        place.begin_checksum(&mut begun).unwrap();
        assert_ne!(begun, whole);
        let landed = header(0, 0, 84, 6).judge(&mut begun);
        assert_eq!((landed, begun), (Landed::Whole(Marks::default()), whole));
    }
}
