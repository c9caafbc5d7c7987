//! Joining TCP segments that follow each other into one super-packet, for a port whose kernel cuts
//! it again later than here: what Linux does on receipt (`tcp_gro_receive`), on the way out.
//!
//! Segments are joined only if cutting gives exactly them again: all headers are alike but for
//! lengths, sequence numbers, IPv4's identification where fragmenting is forbidden (RFC 6864: it
//! has no meaning then) and PSH on the last. Each one's checksum is verified first, for the
//! super-packet gets a new one: a segment that was damaged stays alone, and damaged.

use super::{MOST_HEADERS, PSH, Place, set_length};
use crate::{checksum, ipv4, ipv6, tcp};

/// The most bytes of a super-packet with its headers; below what IP's length can say.
const MOST: usize = 64_000;
/// Do not fragment, in the first byte of IPv4's fragment field.
const DONT_FRAGMENT: u8 = 0x40;

/// Segments that follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Where the first one's headers are.
    place: Place,
    /// Bytes of data of each but the last.
    size: usize,
    /// Bytes of data of all.
    data: usize,
    /// How many there are.
    count: usize,
    /// Whether no other may follow.
    closed: bool,
    /// Whether the last one is pushed.
    pushed: bool,
}

impl Run {
    /// Whether a frame may begin a run.
    pub fn begin(frame: &[u8]) -> Option<Self> {
        let place = Place::of(frame)?;
        let size = place.end - place.data;
        let net = frame.get(place.net()..)?;
        let whole = place.is_v6(frame) || net.get(6)? & DONT_FRAGMENT != 0;
        let plain = frame.get(place.l4 + tcp::FLAGS)? == &tcp::ACK;
        let fits = place.protocol == ipv4::TCP && !place.in_tunnel() && place.data <= MOST_HEADERS;
        (fits && whole && plain && size > 0).then_some(Self {
            place,
            size,
            data: size,
            count: 1,
            closed: false,
            pushed: false,
        })
    }

    /// Takes the next frame if it follows. `first` is the one that the run began with.
    pub fn takes(&mut self, first: &[u8], next: &[u8]) -> bool {
        self.follows(first, next).is_some_and(|size| {
            self.data += size;
            self.count += 1;
            self.pushed = next[self.place.l4 + tcp::FLAGS] & PSH != 0;
            self.closed = size < self.size || self.pushed;
            true
        })
    }

    /// The bytes of data of a frame that follows.
    fn follows(&self, first: &[u8], next: &[u8]) -> Option<usize> {
        if self.closed {
            return None;
        }
        let Place { l4, data, .. } = self.place;
        // In the order of what tells strangers apart soonest.
        let sequence = |frame: &[u8]| frame.get(l4 + 4..l4 + 8)?.first_chunk().copied();
        let due = u32::from_be_bytes(sequence(first)?).wrapping_add(self.data as u32);
        if u32::from_be_bytes(sequence(next)?) != due || !self.alike(first, next) {
            return None;
        }
        let place = Place::of(next)?;
        let size = place.end - place.data;
        let same = Place { end: self.place.end, ..place } == self.place;
        if !same || size == 0 || size > self.size || data + self.data + size > MOST {
            return None;
        }
        let sound = place.is_sound(next) && (self.count > 1 || self.place.is_sound(first));
        sound.then_some(size)
    }

    /// Whether the headers are alike but for what differs between segments.
    fn alike(&self, first: &[u8], next: &[u8]) -> bool {
        let Place { l4, data, .. } = self.place;
        let net = self.place.net();
        let same = |range: std::ops::Range<usize>| {
            first.get(range.clone()).is_some_and(|part| next.get(range) == Some(part))
        };
        let flags = |frame: &[u8]| frame.get(l4 + tcp::FLAGS).map(|flags| flags & !PSH);
        let of_net = if self.place.is_v6(first) {
            same(net..net + ipv6::PAYLOAD_LEN) && same(net + ipv6::PAYLOAD_LEN + 2..l4)
        } else {
            same(net..net + 2) && same(net + 6..net + ipv4::CHECKSUM) && same(net + 12..l4)
        };
        same(0..net)
            && of_net
            && same(l4..l4 + 4)
            && same(l4 + 8..l4 + tcp::FLAGS)
            && flags(first) == flags(next)
            && same(l4 + 14..l4 + tcp::CHECKSUM)
            && same(l4 + 18..data)
    }

    /// How many segments there are.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Bytes of data of each segment but the last.
    pub const fn size(&self) -> u16 {
        self.size as u16
    }

    /// Where the super-packet's headers are.
    pub const fn place(&self) -> Place {
        Place { end: self.place.data + self.data, ..self.place }
    }

    /// The data of one of the segments.
    pub fn data<'a>(&self, segment: &'a [u8]) -> &'a [u8] {
        let end = Place::of(segment).map_or(self.place.data, |place| place.end);
        segment.get(self.place.data..end).unwrap_or_default()
    }

    /// Makes the first one's headers those of the super-packet, with a checksum that somebody else
    /// completes: `headers` are the bytes up to its data.
    pub fn finish(&self, headers: &mut [u8]) -> Option<()> {
        let place = self.place();
        set_length(headers.get_mut(place.net()..)?, place.end - place.net(), 0);
        if self.pushed {
            *headers.get_mut(place.l4 + tcp::FLAGS)? |= PSH;
        }
        place.begin_checksum(headers)
    }
}

impl Place {
    /// Whether the transport's checksum is right.
    fn is_sound(&self, frame: &[u8]) -> bool {
        let segment = frame.get(self.l4..self.end);
        let pseudo = self.pseudo(frame, self.end - self.l4);
        segment.zip(pseudo).is_some_and(|(segment, pseudo)| {
            checksum::over([pseudo, checksum::sum(segment), 0]) == 0
        })
    }
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;
    use crate::offload;

    /// Segment `index` of a stream with `size` bytes each, of the family.
    fn segment(v6: bool, index: u32, size: usize, push: bool) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let net = match v6 {
            true => link.ipv6([1; 16], [2; 16], 64),
            false => link.ipv4([198, 51, 100, 48], [192, 0, 2, 11], 64),
        };
        let data: Vec<u8> = (0..size).map(|at| (at as u32 * 7 + index) as u8).collect();
        let mut step = net.tcp(4000, 80, 7_u32.wrapping_add(index * 1000), 1000).ack(5);
        if push {
            step = step.psh();
        }
        let mut bytes = Vec::new();
        step.write(&mut bytes, &data).unwrap();
        bytes
    }

    fn join(frames: &[Vec<u8>]) -> Option<(Run, Vec<u8>)> {
        let mut run = Run::begin(&frames[0])?;
        let count = frames[1..].iter().take_while(|next| run.takes(&frames[0], next)).count();
        assert_eq!(run.count(), count + 1);
        let mut whole = frames[0][..run.place().data].to_vec();
        run.finish(&mut whole)?;
        for frame in &frames[..run.count()] {
            whole.extend(run.data(frame));
        }
        Some((run, whole))
    }

    /// Cutting what was joined gives the segments again, byte for byte but for IPv4's
    /// identification.
    #[test]
    fn what_was_joined_is_cut_into_the_same() {
        for v6 in [false, true] {
            let last = segment(v6, 5, 300, true);
            let mut frames: Vec<_> = (0..5).map(|index| segment(v6, index, 1000, false)).collect();
            frames.push(last);
            let (run, whole) = join(&frames).expect("they follow each other");
            assert_eq!((run.count(), run.size()), (6, 1000));
            let mut again = Vec::new();
            offload::cut(&whole, run.size(), |headers, data| {
                again.push([headers, data].concat());
                true
            });
            if !v6 {
                for (index, frame) in (0..).zip(&mut frames) {
                    set_length(&mut frame[14..], again[index].len() - 14, index as u16);
                }
            }
            assert_eq!(again, frames);
        }
    }

    #[test]
    fn what_does_not_follow_is_not_joined() {
        let first = segment(false, 0, 1000, false);
        let good = segment(false, 1, 1000, false);
        let changed = |at: usize, value: u8| {
            let mut frame = good.clone();
            frame[at] = value;
            if let Some(place) = Place::of(&frame) {
                set_length(&mut frame[14..], place.end - 14, 0);
                place.complete_checksum(&mut frame);
            }
            frame
        };
        let mut damaged = good.clone();
        damaged[100] ^= 1;
        for (what, next) in [
            ("another MAC", changed(0, 9)),
            ("another TTL", changed(22, 63)),
            ("may be fragmented", changed(20, 0)),
            ("another client", changed(29, 1)),
            ("another port", changed(35, 1)),
            ("another number", changed(41, 1)),
            ("another acknowledgement", changed(45, 1)),
            ("a flag", changed(47, tcp::ACK | tcp::FIN)),
            ("another window", changed(49, 1)),
            ("longer", segment(false, 1, 1001, false)),
            ("without data", segment(false, 1, 0, false)),
            ("damaged", damaged),
            ("nothing", Vec::new()),
        ] {
            let mut run = Run::begin(&first).unwrap();
            assert!(!run.takes(&first, &next), "{what}");
            assert_eq!(run.count(), 1);
        }
        let mut run = Run::begin(&first).unwrap();
        assert!(run.takes(&first, &good));
        let mut bad = first.clone();
        bad[200] ^= 1;
        let mut run = Run::begin(&bad).unwrap();
        assert!(!run.takes(&bad, &good), "the first one is damaged");
        for (what, none) in [
            ("pushed", segment(false, 0, 1000, true)),
            ("no data", segment(false, 0, 0, false)),
            ("may be fragmented", {
                let mut frame = first.clone();
                frame[20] = 0;
                frame
            }),
        ] {
            assert!(Run::begin(&none).is_none(), "{what}");
        }
    }

    /// A shorter or pushed segment is the last; and IP's length is the end of all.
    #[test]
    fn a_run_ends() {
        let first = segment(false, 0, 1000, false);
        let mut run = Run::begin(&first).unwrap();
        assert!(run.takes(&first, &segment(false, 1, 1000, true)));
        assert!(!run.takes(&first, &segment(false, 2, 1000, false)));
        let mut run = Run::begin(&first).unwrap();
        let taken = (1..100).take_while(|at| run.takes(&first, &segment(false, *at, 1000, false)));
        assert_eq!(taken.count(), 62);
    }
}
