//! Frames that a kernel leaves unfinished for whoever sends them: with a transport checksum that
//! covers the pseudo header only, and with the data of many segments behind one header (GSO, GRO).
//!
//! Here they are finished in software, for ports that have nobody to do it: the checksum completed,
//! the frame cut into its segments. What Linux does in `tcp_gso_segment`, `__udp_gso_segment` and
//! `inet_gso_segment` is what a receiver expects: numbers and identifications count on, FIN and PSH
//! are on the last segment, CWR on the first (RFC 3168 6.1.2).

mod join;

use crate::{checksum, ethernet, ipv4, ipv6, shim, tcp, udp};

pub use join::Run;

/// IP headers behind each other that are looked through: that of a packet and of its tunnel's.
const MOST_NETS: usize = 2;
/// Bytes of the longest headers that are repeated before each segment.
pub const MOST_HEADERS: usize = 512;
/// Congestion window reduced, a flag of TCP.
const CWR: u8 = 0x80;
/// Push, a flag of TCP.
const PSH: u8 = 0x08;

/// Where the headers of a frame's TCP segment or UDP datagram are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    nets: [usize; MOST_NETS],
    depth: usize,
    /// What is between the outer IP header and the packet inside, by the protocol that the former
    /// calls it, and where it begins.
    shim: Option<(u8, usize)>,
    /// TCP or UDP.
    pub protocol: u8,
    /// Offset of the transport header.
    pub l4: usize,
    /// Offset of its data.
    pub data: usize,
    /// Where the packet ends; padding may follow.
    pub end: usize,
}

impl Place {
    /// Looks through link-layer tags, extension headers and one tunnel. `None` for all that is no
    /// whole TCP segment or UDP datagram, or has something wrong with a length.
    pub fn of(frame: &[u8]) -> Option<Self> {
        Self::behind(frame, 0)
    }

    /// The same of a frame that has so many bytes between an outer IP header and the packet inside,
    /// if it has any.
    pub fn behind(frame: &[u8], bytes: usize) -> Option<Self> {
        let link = ethernet::payload(frame)?;
        if !matches!(link.ethertype, ethernet::IPV4 | ethernet::IPV6) {
            return None;
        }
        let (mut nets, mut at, mut end) = ([0; MOST_NETS], link.offset, frame.len());
        let mut shim = None;
        for depth in 1..=MOST_NETS {
            let packet = frame.get(at..end)?;
            nets[depth - 1] = at;
            let (protocol, header, total) = match packet.first()? >> 4 {
                4 => {
                    let header = ipv4::Header::parse(packet).ok()?;
                    if header.is_fragment() {
                        return None;
                    }
                    (header.protocol(), header.header_len(), header.total_len())
                }
                _ => {
                    let total = ipv6::Header::parse(packet).ok()?.total_len();
                    let upper = ipv6::walk(packet).ok()?;
                    if upper.fragment.is_some() || upper.routed {
                        return None;
                    }
                    (upper.protocol, upper.offset, total)
                }
            };
            let l4 = at + header;
            end = at + total;
            let own = match protocol {
                _ if bytes > 0 && shim.is_none() => {
                    shim = Some((protocol, l4));
                    at = l4 + bytes;
                    continue;
                }
                ipv4::TCP => tcp::Header::parse(frame.get(l4..end)?)?.header_len(),
                ipv4::UDP => udp::Header::parse(frame.get(l4..end)?).map(|_| udp::HEADER)?,
                ipv4::IPV4 | ipv4::IPV6 => {
                    at = l4;
                    continue;
                }
                _ => return None,
            };
            return Some(Self { nets, depth, shim, protocol, l4, data: l4 + own, end });
        }
        None
    }

    /// Whether there is an outer IP header.
    pub const fn in_tunnel(&self) -> bool {
        self.depth > 1
    }

    /// Whether the (inner) packet is IPv6.
    pub fn is_v6(&self, frame: &[u8]) -> bool {
        frame.get(self.net()).is_some_and(|first| first >> 4 == 6)
    }

    /// Offset of the checksum field from the transport header.
    pub const fn checksum_offset(&self) -> usize {
        if self.protocol == ipv4::TCP { tcp::CHECKSUM } else { udp::CHECKSUM }
    }

    /// How many segments of at most `size` bytes of data the frame is; one at least.
    pub const fn segments(&self, size: u16) -> usize {
        let data = self.end - self.data;
        if size == 0 || data == 0 { 1 } else { data.div_ceil(size as usize) }
    }

    const fn net(&self) -> usize {
        self.nets[self.depth - 1]
    }

    /// The sum over the pseudo header of a packet with so many bytes from the transport header on.
    fn pseudo(&self, frame: &[u8], length: usize) -> Option<u16> {
        pseudo(frame.get(self.net()..)?, self.protocol, length)
    }

    /// Writes lengths and checksums of what is between the outer IP header and the packet inside;
    /// the headers of both, and those of the packet's transport, are written before. `data` is what
    /// follows `frame`.
    fn finish_shim(&self, frame: &mut [u8], data: &[u8]) -> Option<()> {
        let Some((protocol, at)) = self.shim else { return Some(()) };
        let length = frame.len() + data.len() - at;
        let pseudo = pseudo(frame.get(self.nets[0]..)?, protocol, length)?;
        let (front, packet) = frame.split_at_mut_checked(self.net())?;
        // Headers are of an even length.
        let inside = || !checksum::over([checksum::sum(packet), checksum::sum(data), 0]);
        shim::finish(protocol, front.get_mut(at..)?, length, (|| pseudo, inside))
    }

    fn put_checksum(&self, frame: &mut [u8], value: u16) -> Option<()> {
        let at = self.l4 + self.checksum_offset();
        frame.get_mut(at..at + 2)?.copy_from_slice(&value.to_be_bytes());
        Some(())
    }

    /// Puts the pseudo header's sum into the checksum field, for somebody else to complete.
    pub fn begin_checksum(&self, frame: &mut [u8]) -> Option<()> {
        let sum = self.pseudo(frame, self.end - self.l4)?;
        self.put_checksum(frame, sum)
    }

    /// Puts the whole checksum into its field.
    pub fn complete_checksum(&self, frame: &mut [u8]) -> Option<()> {
        self.put_checksum(frame, 0)?;
        let pseudo = self.pseudo(frame, self.end - self.l4)?;
        let value = checksum::over([pseudo, 0, checksum::sum(frame.get(self.l4..self.end)?)]);
        self.put_checksum(frame, self.on_wire(value))?;
        self.finish_shim(frame.get_mut(..self.end)?, &[])
    }

    /// UDP has no checksum of zero (RFC 768).
    const fn on_wire(&self, value: u16) -> u16 {
        if value == 0 && self.protocol == ipv4::UDP { 0xffff } else { value }
    }

    /// Makes the headers those of segment `index` of `count`, which has so many bytes of data;
    /// all but the checksum.
    fn number(&self, headers: &mut [u8], size: u16, (index, count): (usize, usize), data: usize) {
        let end = self.data + data;
        for at in &self.nets[..self.depth] {
            let Some(net) = headers.get_mut(*at..) else { continue };
            set_length(net, end - at, index as u16);
        }
        let Some(header) = headers.get_mut(self.l4..) else { return };
        if self.protocol == ipv4::UDP {
            if let Some(field) = header.get_mut(4..6) {
                field.copy_from_slice(&((udp::HEADER + data) as u16).to_be_bytes());
            }
            return;
        }
        let Some(header) = header.first_chunk_mut::<{ tcp::HEADER }>() else { return };
        let sequence = tcp::Header(header).sequence().wrapping_add(index as u32 * u32::from(size));
        header[4..8].copy_from_slice(&sequence.to_be_bytes());
        if index + 1 < count {
            header[tcp::FLAGS] &= !(tcp::FIN | PSH);
        }
        if index > 0 {
            header[tcp::FLAGS] &= !CWR;
        }
    }
}

/// The sum over the pseudo header of an IP packet, for so many bytes of a protocol.
fn pseudo(packet: &[u8], protocol: u8, length: usize) -> Option<u16> {
    Some(if packet.first()? >> 4 == 6 {
        let header = ipv6::Header(packet.first_chunk()?);
        checksum::pseudo_v6(header.source(), header.destination(), protocol, length)
    } else {
        let header = ipv4::Header(packet.first_chunk()?);
        checksum::pseudo_v4(header.source(), header.destination(), protocol, length)
    })
}

/// Sets the length of an IP packet, and counts an IPv4 identification on.
fn set_length(net: &mut [u8], length: usize, further: u16) {
    if net[0] >> 4 == 6 {
        let payload = (length - ipv6::HEADER) as u16;
        net[ipv6::PAYLOAD_LEN..][..2].copy_from_slice(&payload.to_be_bytes());
        return;
    }
    let header_len = usize::from(net[0] & 0x0f) * 4;
    let id = u16::from_be_bytes([net[4], net[5]]).wrapping_add(further);
    net[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    net[4..6].copy_from_slice(&id.to_be_bytes());
    net[ipv4::CHECKSUM..][..2].fill(0);
    let sum = checksum::full(&net[..header_len]);
    net[ipv4::CHECKSUM..][..2].copy_from_slice(&sum.to_be_bytes());
}

/// Cuts a frame into segments with at most `size` bytes of data each, and hands each to `piece`:
/// its headers from the link layer on, with all lengths, numbers and checksums, and its data. A
/// frame with no more data than that is handed on as the one it is. Stops when `piece` says
/// `false`. Gives how many it took.
///
/// `None`, with nothing handed on, for a frame without a [`Place`], one whose headers are longer
/// than [`MOST_HEADERS`], and for a size of zero.
pub fn cut(frame: &[u8], size: u16, piece: impl FnMut(&[u8], &[u8]) -> bool) -> Option<usize> {
    cut_at(Place::of(frame)?, frame, size, piece)
}

/// [`cut`] of a frame whose place is known.
pub fn cut_at(
    place: Place,
    frame: &[u8],
    size: u16,
    mut piece: impl FnMut(&[u8], &[u8]) -> bool,
) -> Option<usize> {
    if size == 0 {
        return None;
    }
    let mut room = [0; MOST_HEADERS];
    let headers = room.get_mut(..place.data)?;
    let (front, data) = (&frame[..place.data], &frame[place.data..place.end]);
    let count = place.segments(size);
    for index in 0..count {
        let from = index * usize::from(size);
        let part = &data[from..data.len().min(from + usize::from(size))];
        headers.copy_from_slice(front);
        place.number(headers, size, (index, count), part.len());
        place.put_checksum(headers, 0)?;
        let pseudo = place.pseudo(headers, place.data - place.l4 + part.len())?;
        let sums = [pseudo, checksum::sum(&headers[place.l4..]), checksum::sum(part)];
        place.put_checksum(headers, place.on_wire(checksum::over(sums)))?;
        place.finish_shim(headers, part)?;
        if !piece(headers, part) {
            return Some(index);
        }
    }
    Some(count)
}

/// Makes a frame the first of its segments, complete. Gives its length then; `None`, and nothing
/// changed, as for [`cut`].
pub fn keep_first(frame: &mut [u8], size: u16) -> Option<usize> {
    let place = Place::of(frame).filter(|_| size > 0)?;
    let data = (place.end - place.data).min(usize::from(size));
    place.number(frame, size, (0, place.segments(size)), data);
    let first = Place { end: place.data + data, ..place };
    first.complete_checksum(frame)?;
    Some(first.end)
}

#[cfg(test)]
mod tests;
