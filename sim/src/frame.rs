//! Frames and the pool they come from.
//!
//! A frame carries what its sender meant along, out of band, so that the checker can compare what
//! the director made of it. Whoever is done with a frame gives it back to the pool; the pool knows
//! how many it has given out, so a frame that gets lost in the director is noticed.

use crate::check::Expected;
use crate::errors::About;
use crate::wire::{self, Packet, Place, Seen};
use sluice_director::Frame;
use sluice_director::frame::{Checked, RxChecksum};
use sluice_director::path::Round;

/// Bytes of a buffer.
const CAPACITY: usize = 1792;
/// Where a fresh frame begins in its buffer: room for a tag and an outer header.
const HEADROOM: usize = 64;

/// What a frame is, as far as its verdict can be foretold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A packet that is right in every field.
    #[default]
    Whole,
    /// A byte of its payload was changed on the way.
    Payload,
    /// The same, and the port that received it noticed.
    Noticed,
    /// A byte of its IPv4 header was changed on the way.
    Header,
    /// It ends early.
    Cut,
    /// It is neither IPv4 nor IPv6.
    Foreign,
    /// It was sent to a group of hosts.
    Group,
}

/// A frame's buffer and its story, which lie side by side, since both are read at once.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Body {
    start: usize,
    len: usize,
    pub packet: Packet,
    /// What the director's output says, once it is sent.
    pub seen: Seen,
    pub kind: Kind,
    /// Which piece of its packet it carries, if not all of it.
    pub place: Option<Place>,
    /// The packet that it is an ICMP error about.
    pub about: Option<Box<About>>,
    /// What the port that received it says about its checksums.
    pub received: RxChecksum,
    /// Source and destination MAC as it was sent.
    pub macs: ([u8; 6], [u8; 6]),
    /// Link that it came by.
    pub link: usize,
    /// What it tells its sender: packets as long as this are too long.
    pub told: Option<u16>,
    /// How often a worker handed it to another.
    pub handed: u8,
    /// The worker that received it.
    pub home: u16,
    /// What the director says that it has behind it.
    pub round: Round,
    /// Whether a worker ended its session so that it opens another.
    pub resumes: bool,
    /// Its number among the frames that ports have received.
    pub arrived: u64,
    /// What it has to become, if it was dealt to a helper.
    pub expected: Option<Box<Expected>>,
    /// Draws for its way through the network.
    pub luck: u64,
    bytes: [u8; CAPACITY],
}

/// A frame, owned.
#[derive(Debug)]
pub(crate) struct Buffer(Box<Body>);

impl std::ops::Deref for Buffer {
    type Target = Body;
    fn deref(&self) -> &Body {
        &self.0
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Body {
        &mut self.0
    }
}

impl Buffer {
    /// Spoils the frame, which was just made, as `luck` says.
    pub fn spoil(&mut self, luck: u64) {
        let data = usize::from(self.packet.payload.len);
        let (v4, len) = (self.packet.is_v4(), self.len);
        let place = |first: usize, count: usize| first + (luck >> 8) as usize % count;
        let bit = 1 << (luck >> 5 & 7);
        let kind = match luck % 6 {
            0 | 1 if data > 16 && self.packet.checksum => {
                self.bytes_mut()[place(len - data + 8, data - 8)] ^= bit;
                if luck & 16 == 0 { Kind::Payload } else { Kind::Noticed }
            }
            2 if v4 => {
                self.bytes_mut()[place(14 + 4, 16)] ^= bit;
                Kind::Header
            }
            3 => {
                self.len = place(0, 14 + 20 + if v4 { 8 } else { 28 });
                Kind::Cut
            }
            4 => {
                self.bytes_mut()[12] ^= 0x40;
                Kind::Foreign
            }
            5 => {
                self.bytes_mut()[0] |= 1;
                Kind::Group
            }
            _ => return,
        };
        self.kind = kind;
        if kind == Kind::Noticed {
            self.received.l4 = Checked::Bad;
        }
    }

    /// Reads a little of its story and of its bytes.
    pub fn touch(&self) -> u64 {
        let bytes = self.bytes();
        let byte = |at| bytes.get(at).map_or(0, |byte| u64::from(*byte));
        self.luck ^ u64::from(self.packet.ttl) ^ byte(0) ^ byte(60)
    }

    /// Whether nothing happened to it.
    pub fn is_whole(&self) -> bool {
        self.kind == Kind::Whole
    }

    /// Tags the frame, as on a VLAN.
    pub fn tag(&mut self, vlan: u16) {
        let ethertype = [self.bytes()[12], self.bytes()[13]];
        let macs: [u8; 12] = self.bytes()[..12].try_into().unwrap_or_default();
        if self.push_front(4) {
            let frame = self.bytes_mut();
            frame[..12].copy_from_slice(&macs);
            wire::set_link(frame, vlan, ethertype);
        }
    }
}

impl Frame for Buffer {
    fn bytes(&self) -> &[u8] {
        &self.0.bytes[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.start..self.start + self.len;
        &mut self.0.bytes[range]
    }

    fn push_front(&mut self, count: usize) -> bool {
        let fits = count <= self.start;
        if fits {
            self.start -= count;
            self.len += count;
        }
        fits
    }

    fn pull_front(&mut self, count: usize) -> bool {
        let fits = count <= self.len;
        if fits {
            self.start += count;
            self.len -= count;
        }
        fits
    }

    fn set_len(&mut self, len: usize) -> bool {
        let fits = self.start + len <= CAPACITY;
        if fits {
            self.len = len;
        }
        fits
    }

    fn rx_checksum(&self) -> RxChecksum {
        self.received
    }

    fn forget_checksums(&mut self) {
        self.received = RxChecksum::default();
    }
}

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    free: Vec<Buffer>,
    /// Buffers in use.
    pub out: usize,
    /// For whole packets on their way to become pieces.
    pub scratch: Vec<u8>,
}

impl Pool {
    fn take(&mut self) -> Buffer {
        self.out += 1;
        self.free.pop().unwrap_or_else(|| {
            Buffer(Box::new(Body {
                start: HEADROOM,
                len: 0,
                packet: Packet::default(),
                seen: Seen::default(),
                kind: Kind::Whole,
                place: None,
                about: None,
                told: None,
                received: RxChecksum::default(),
                macs: ([0; 6], [0; 6]),
                link: 0,
                handed: 0,
                home: 0,
                round: Round::default(),
                resumes: false,
                arrived: 0,
                expected: None,
                luck: 0,
                bytes: [0; CAPACITY],
            }))
        })
    }

    /// The frame of a packet.
    pub fn make(&mut self, packet: &Packet, macs: ([u8; 6], [u8; 6]), luck: u64) -> Buffer {
        let mut frame = self.take();
        let len = wire::frame_len(packet);
        (frame.start, frame.len) = (HEADROOM, len);
        (frame.packet, frame.luck) = (*packet, luck);
        (frame.kind, frame.handed, frame.macs) = (Kind::Whole, 0, macs);
        (frame.received, frame.told, frame.place) = (RxChecksum::default(), None, None);
        frame.about = None;
        frame.resumes = false;
        wire::write(packet, macs, frame.bytes_mut());
        frame
    }

    /// The frame of a piece of a packet; `data` is what it carries.
    pub fn make_piece(
        &mut self,
        packet: &Packet,
        (place, data): (Place, &[u8]),
        macs: ([u8; 6], [u8; 6]),
        luck: u64,
    ) -> Buffer {
        let mut frame = self.take();
        (frame.start, frame.len) = (HEADROOM, wire::piece_len(packet, &place));
        (frame.packet, frame.luck, frame.place) = (*packet, luck, Some(place));
        (frame.kind, frame.handed, frame.macs) = (Kind::Whole, 0, macs);
        (frame.received, frame.told, frame.about) = (RxChecksum::default(), None, None);
        frame.resumes = false;
        wire::write_piece(packet, &place, macs, data, frame.bytes_mut());
        frame
    }

    /// The frame of an ICMP error.
    pub fn make_error(
        &mut self,
        about: About,
        bytes: &[u8],
        macs: ([u8; 6], [u8; 6]),
        luck: u64,
    ) -> Buffer {
        let mut frame = self.take();
        (frame.start, frame.len) = (HEADROOM, bytes.len());
        (frame.packet, frame.luck, frame.place) = (about.carrier(), luck, None);
        (frame.kind, frame.handed, frame.macs) = (Kind::Whole, 0, macs);
        (frame.received, frame.told) = (RxChecksum::default(), None);
        frame.about = Some(Box::new(about));
        let out = frame.bytes_mut();
        out.copy_from_slice(bytes);
        out[..6].copy_from_slice(&macs.1);
        out[6..12].copy_from_slice(&macs.0);
        frame
    }

    /// A copy, as the network makes them.
    pub fn copy(&mut self, of: &Buffer) -> Buffer {
        let mut frame = self.take();
        (frame.start, frame.len) = (of.start, of.len);
        (frame.packet, frame.seen, frame.luck) = (of.packet, of.seen, of.luck);
        (frame.kind, frame.received, frame.handed) = (of.kind, of.received, of.handed);
        (frame.macs, frame.link, frame.told) = (of.macs, of.link, of.told);
        (frame.place, frame.about) = (of.place, of.about.clone());
        frame.resumes = false;
        frame.bytes_mut().copy_from_slice(of.bytes());
        frame
    }

    /// Takes a frame back.
    pub fn put(&mut self, mut frame: Buffer) {
        self.out -= 1;
        frame.expected = None;
        self.free.push(frame);
    }
}
