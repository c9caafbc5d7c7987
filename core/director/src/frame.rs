//! What the path needs of a packet buffer, whoever owns it: a DPDK mbuf, a capture record, a
//! fuzzer's byte string.
//!
//! A frame is one contiguous run of bytes that starts at the Ethernet header, with some headroom
//! before it and tailroom behind it. The path only ever holds `&mut` to a frame for the length of
//! one turn, so a buffer that other parties may write (shared-memory ports) must be copied before
//! it is handed to the path.

/// A packet buffer. Implementations must be cheap: every method is called on the packet path.
pub trait Frame {
    /// The frame's bytes, from the first byte of the destination MAC to the end of the payload
    /// (Ethernet padding may follow the IP packet; the frame check sequence is not included).
    fn bytes(&self) -> &[u8];

    /// The same bytes, writable.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Adds `count` bytes of unspecified content at the front. `false`, and nothing changed, when
    /// the headroom is too small.
    ///
    /// A buffer with room of its own keeps what [`Frame::pull_front`] removed until it is written
    /// over, and this brings it back. Who hopes for that looks whether it is what it should be.
    #[must_use]
    fn push_front(&mut self, count: usize) -> bool;

    /// Removes `count` bytes from the front. `false`, and nothing changed, when the frame is
    /// shorter than that.
    #[must_use]
    fn pull_front(&mut self, count: usize) -> bool;

    /// Sets the length by cutting from, or adding unspecified bytes to, the end. `false`, and
    /// nothing changed, when the tailroom is too small.
    #[must_use]
    fn set_len(&mut self, len: usize) -> bool;

    /// What the port that received the frame found out about its checksums.
    fn rx_checksum(&self) -> RxChecksum {
        RxChecksum::default()
    }

    /// Forgets that, and says that the checksums are complete: the frame is not what it was when it
    /// was received, as what came out of a tunnel is not. For no super-packet.
    fn forget_checksums(&mut self) {}

    /// Bytes of data of each segment, if the frame is a *super-packet*: one TCP segment with the
    /// data of many, which whoever sends it is to cut (GSO); 0 for any other. A super-packet's
    /// transport checksum means nothing, and is calculated when it is sent.
    #[inline(always)]
    fn segment_size(&self) -> u16 {
        0
    }

    /// Gives a super-packet's segments another size; for no other frame.
    fn set_segment_size(&mut self, _size: u16) {}

    /// Says that so many bytes are now between an outer IP header and the packet inside: who
    /// finishes the frame when it is sent must know.
    fn set_shim(&mut self, _bytes: u8) {}

    /// Says that the frame is what it is to be: no super-packet, and its checksums are complete.
    fn set_finished(&mut self) {}

    /// Whether the frame's transport checksum covers the pseudo header only, and is completed when
    /// it is sent (see `sluice_wire::offload`). True for all super-packets. Such a frame has been
    /// on no wire since its sender made it, so its checksum says nothing about damage.
    #[inline(always)]
    fn is_unfinished(&self) -> bool {
        false
    }

    /// Completes what is unfinished of a frame that is no super-packet; nothing for any other.
    fn complete_checksum(&mut self) {}

    /// Asks the processor to load the first cache line of the frame's bytes.
    fn prefetch(&self) {}

    /// The same some time before, for a frame that comes from another core: asks for what
    /// [`Frame::prefetch`] itself reads, if that is not in the handle.
    #[inline(always)]
    fn prefetch_far(&self) {
        self.prefetch();
    }
}

/// A receiving port's verdict on one checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checked {
    /// The port did not look.
    #[default]
    Unknown,
    /// The port verified it.
    Good,
    /// The port found it wrong.
    Bad,
}

/// A receiving port's verdict on the checksums of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxChecksum {
    /// The IPv4 header's.
    pub ip: Checked,
    /// The TCP or UDP checksum.
    pub l4: Checked,
}
