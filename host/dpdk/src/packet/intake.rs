//! Receiving by a packet socket: a burst with one system call, each frame into a large buffer of
//! its own. Small frames are copied out at once, so that a large buffer is held by a large frame
//! only and lies in the cache for the next burst.

use std::mem::zeroed;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;

use super::Packet;
use crate::mbuf::Mbuf;
use crate::pool::FramePool;
use crate::vnet::{Came, HEADER, Received, VnetHeader};

/// Frames of one system call.
const SLOTS: usize = 32;
/// Bytes beside a large buffer: the longest frame of all has 65,549.
const SPILL: usize = 1024;
/// Bytes that a frame may have in memory that it cannot stay in, with a tag before it.
const SCRATCH: usize = 4 + 65536 + SPILL;
/// Bytes of control messages: one with `tpacket_auxdata`.
const CONTROL: usize = 64;
/// Bytes of the two addresses in front of a tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;
const VLAN: u16 = 0x8100;

/// What a receive queue has of its own.
#[derive(Debug)]
pub(crate) struct Intake {
    received: Received,
    large: Option<FramePool>,
    /// Each from where frames begin to its end.
    buffers: [Option<Mbuf>; SLOTS],
    headers: [VnetHeader; SLOTS],
    control: Box<[Control; SLOTS]>,
    spill: Box<[[u8; SPILL]]>,
    /// For a frame that no large buffer is there for, or that is longer than one.
    scratch: Box<[u8]>,
}

/// Room for control messages, aligned as they are.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct Control([u8; CONTROL]);

impl Intake {
    /// Frames of up to `most` bytes go into small buffers.
    pub fn new((small, large): (FramePool, Option<FramePool>), most: u16) -> Self {
        Self {
            received: Received::new(small, most),
            large,
            buffers: [const { None }; SLOTS],
            headers: [VnetHeader::default(); SLOTS],
            control: Box::new([Control([0; CONTROL]); SLOTS]),
            spill: vec![[0; SPILL]; SLOTS].into(),
            scratch: vec![0; SCRATCH].into(),
        }
    }

    /// Puts large buffers wherever there is none, the first ones first. Gives how many there are
    /// from the first on.
    fn refill(&mut self) -> usize {
        let Some(large) = self.large else { return 0 };
        for slot in 0..SLOTS {
            if self.buffers[slot].is_some() {
                continue;
            }
            self.buffers[slot] = match large.alloc() {
                Some(buffer) => Some(whole(buffer)),
                // The last one does as well here.
                None => self.buffers[slot + 1..].iter_mut().rev().find_map(Option::take),
            };
            if self.buffers[slot].is_none() {
                return slot;
            }
        }
        SLOTS
    }
}

/// A buffer that is all data from where frames begin.
fn whole(mut buffer: Mbuf) -> Mbuf {
    let room = buffer.tailroom() + buffer.bytes().len();
    let fits = buffer.set_len(room);
    debug_assert!(fits, "a frame can grow by its tailroom");
    buffer
}

impl Packet {
    /// Appends the frames that wait in a queue, `most` at most.
    pub fn rx<const N: usize>(
        &self,
        queue: u16,
        intake: &mut Intake,
        frames: &mut ArrayVec<Mbuf, N>,
        most: usize,
    ) -> usize {
        let fd = self.fd(queue);
        let (count, came) = intake.rx(
            |intake| match intake.refill() {
                0 => intake.receive_one(fd),
                buffers => intake.receive(fd, most.min(buffers)),
            },
            frames,
            most,
        );
        self.count(came);
        count
    }

    fn count(&self, came: Came) {
        if came.packets | came.errors | came.no_buffer == 0 {
            return;
        }
        self.counts.rx_packets.fetch_add(came.packets, Ordering::Relaxed);
        self.counts.rx_bytes.fetch_add(came.bytes, Ordering::Relaxed);
        self.counts.rx_errors.fetch_add(came.errors, Ordering::Relaxed);
        self.counts.rx_no_buffer.fetch_add(came.no_buffer, Ordering::Relaxed);
    }
}

impl Intake {
    /// Appends frames, `most` at most: those that are ready, or else what is received. Says what
    /// came besides.
    pub fn rx<const N: usize>(
        &mut self,
        receive: impl FnOnce(&mut Self),
        frames: &mut ArrayVec<Mbuf, N>,
        most: usize,
    ) -> (usize, Came) {
        let given = self.received.give(frames, most);
        if given > 0 {
            return (given, Came::default());
        }
        receive(self);
        (self.received.give(frames, most), std::mem::take(&mut self.received.came))
    }

    /// Reads frames from a TAP interface, a burst at most.
    pub fn read(&mut self, fd: RawFd) {
        for _ in 0..SLOTS {
            let mut header = VnetHeader::default();
            if self.buffers[0].is_none() {
                self.buffers[0] = self.large.and_then(|large| large.alloc()).map(whole);
            }
            let spill = &mut self.spill[0];
            let frame = match &mut self.buffers[0] {
                Some(buffer) => vector(buffer.bytes_mut()),
                None => vector(&mut self.scratch[TAG..]),
            };
            // SAFETY: the vectors are of memory that is not touched until the call returns.
            let length = unsafe {
                let all = [header_vector(&mut header), frame, vector(spill)];
                libc::readv(fd, all.as_ptr(), all.len() as libc::c_int)
            };
            let length = usize::try_from(length).ok().and_then(|all| all.checked_sub(HEADER));
            let Some(length) = length else { return };
            if self.buffers[0].is_some() {
                self.headers[0] = header;
                self.land(0, length, None);
            } else {
                self.land_scratch(header, length, None);
            }
        }
    }

    /// Receives what waits, `wanted` frames at most, into as many large buffers.
    fn receive(&mut self, fd: RawFd, wanted: usize) {
        // SAFETY: all zero bytes are valid messages and vectors: they name no memory.
        let (mut messages, mut parts): ([libc::mmsghdr; SLOTS], [[libc::iovec; 3]; SLOTS]) =
            unsafe { (zeroed(), zeroed()) };
        let buffers = self.buffers.iter_mut().flatten();
        let rooms = self.headers.iter_mut().zip(&mut *self.control).zip(&mut *self.spill);
        let slots = messages.iter_mut().zip(&mut parts).zip(buffers).zip(rooms);
        for (((message, part), buffer), ((header, control), spill)) in slots.take(wanted) {
            *part = [header_vector(header), vector(buffer.bytes_mut()), vector(spill)];
            message.msg_hdr = message_of(part, control);
        }
        // SAFETY: as many messages as are said, each with vectors of memory that lives in `self`
        // and is not touched otherwise until the call returns.
        let count = unsafe {
            let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
            libc::recvmmsg(fd, messages.as_mut_ptr(), wanted as _, flags as _, null_mut())
        };
        // None, or the interface is down, which shows elsewhere.
        let Ok(count) = usize::try_from(count) else { return };
        for (slot, message) in messages[..count].iter().enumerate() {
            let length = (message.msg_len as usize).saturating_sub(HEADER);
            self.land(slot, length, tag_of(&message.msg_hdr));
        }
    }

    /// Takes the frame of a slot.
    fn land(&mut self, slot: usize, length: usize, tag: Option<[u8; TAG]>) {
        let Some(mut buffer) = self.buffers[slot].take() else { return };
        let (room, mut header) = (buffer.bytes().len(), self.headers[slot]);
        if length > room {
            self.scratch[TAG..][..room].copy_from_slice(buffer.bytes());
            let spilt = (length - room).min(SPILL);
            self.scratch[TAG + room..][..spilt].copy_from_slice(&self.spill[slot][..spilt]);
            self.buffers[slot] = Some(buffer);
            return self.land_scratch(header, length, tag);
        }
        let fits = buffer.set_len(length);
        debug_assert!(fits, "it was received into it");
        let tag = tag.filter(|_| buffer.push_front(TAG));
        if let Some(tag) = tag {
            put_tag(buffer.bytes_mut(), tag);
            header = header.behind_tag();
        }
        self.buffers[slot] = self.received.land(header, buffer).map(|mut buffer| {
            let moved = tag.is_none() || buffer.pull_front(TAG);
            debug_assert!(moved, "the tag is still there");
            whole(buffer)
        });
    }

    /// Receives one frame that goes into small buffers, since there are no large ones.
    fn receive_one(&mut self, fd: RawFd) {
        let mut header = VnetHeader::default();
        let [control, ..] = &mut *self.control;
        let mut part = [header_vector(&mut header), vector(&mut self.scratch[TAG..])];
        let mut message = message_of(&mut part, control);
        // SAFETY: the message's vectors are of memory that is not touched until the call returns.
        let length =
            unsafe { libc::recvmsg(fd, &mut message, libc::MSG_DONTWAIT | libc::MSG_TRUNC) };
        if let Some(length) = usize::try_from(length).ok().and_then(|all| all.checked_sub(HEADER)) {
            let tag = tag_of(&message);
            self.land_scratch(header, length, tag);
        }
    }

    /// Takes the frame that is in the scratch memory, behind room for a tag.
    fn land_scratch(&mut self, header: VnetHeader, length: usize, tag: Option<[u8; TAG]>) {
        let Some(bytes) = self.scratch.get_mut(..TAG + length) else {
            return self.received.came.errors += 1;
        };
        match tag {
            Some(tag) => {
                put_tag(bytes, tag);
                self.received.land_copy(header.behind_tag(), bytes);
            }
            None => self.received.land_copy(header, &mut bytes[TAG..]),
        }
    }
}

/// Puts a tag behind the addresses, which are four bytes further on than they are to be.
fn put_tag(bytes: &mut [u8], tag: [u8; TAG]) {
    if bytes.len() >= TAG + ADDRESSES {
        bytes.copy_within(TAG..TAG + ADDRESSES, 0);
        bytes[ADDRESSES..][..TAG].copy_from_slice(&tag);
    }
}

fn vector(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

fn header_vector(header: &mut VnetHeader) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::from_mut(header).cast(), iov_len: HEADER }
}

fn message_of(parts: &mut [libc::iovec], control: &mut Control) -> libc::msghdr {
    // SAFETY: all zero bytes are a valid message, without parts.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len() as _;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL as _;
    message
}

/// The VLAN tag that the kernel took off a frame.
fn tag_of(message: &libc::msghdr) -> Option<[u8; TAG]> {
    // SAFETY: the kernel has filled in the control messages, of which the macros find the first;
    // its data is read if it is as long as what is read, wherever it lies.
    let data = unsafe {
        let first = libc::CMSG_FIRSTHDR(message).as_ref()?;
        let length = libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as u32) as usize;
        let is = (first.cmsg_level, first.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA);
        if !is || (first.cmsg_len as usize) < length {
            return None;
        }
        libc::CMSG_DATA(first).cast::<libc::tpacket_auxdata>().read_unaligned()
    };
    if data.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = data.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let kind = if known { data.tp_vlan_tpid } else { VLAN };
    let ([a, b], [c, d]) = (kind.to_be_bytes(), data.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}
