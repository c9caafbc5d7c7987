//! Sending by a packet socket: a burst with one system call, unfinished frames as they are. What no
//! kernel finishes (super-packets in tunnels) is cut here.

use std::io;
use std::mem::zeroed;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;

use super::Packet;
use crate::mbuf::Mbuf;
use crate::queue::BURST;
use crate::vnet::{VnetHeader, carried};

/// Times that the rest of a cut frame is tried again.
const TRIES: usize = 64;

impl Packet {
    /// Sends frames, from the front; those that were taken leave the vector.
    pub fn tx<const N: usize>(&self, queue: u16, frames: &mut ArrayVec<Mbuf, N>) -> usize {
        let fd = self.fd(queue);
        let mut done = 0;
        while done < frames.len() {
            match self.run(fd, &mut frames[done..]) {
                Run::Sent(count) => done += count,
                Run::Cut => {
                    self.cut(fd, &frames[done]);
                    done += 1;
                }
                Run::Refused => {
                    self.counts.tx_errors.fetch_add(1, Ordering::Relaxed);
                    done += 1;
                }
                Run::Full => break,
            }
        }
        frames.drain(..done);
        done
    }

    /// Sends the frames at the front that go as they are.
    fn run(&self, fd: RawFd, frames: &mut [Mbuf]) -> Run {
        let mut headers = [VnetHeader::default(); BURST];
        // SAFETY: all zero bytes are valid messages and vectors: they name no memory.
        let (mut messages, mut parts): ([libc::mmsghdr; BURST], [[libc::iovec; 2]; BURST]) =
            unsafe { (zeroed(), zeroed()) };
        let slots = frames.iter_mut().zip(&mut headers).zip(messages.iter_mut().zip(&mut parts));
        let mut asked = 0;
        for ((frame, header), (message, part)) in slots {
            let Some(known) = VnetHeader::of(frame) else { break };
            *header = known;
            *part = [vector(header.bytes()), vector(frame.bytes())];
            message.msg_hdr.msg_iov = part.as_mut_ptr();
            message.msg_hdr.msg_iovlen = part.len() as _;
            asked += 1;
        }
        if asked == 0 {
            return Run::Cut;
        }
        // SAFETY: as many messages as are said, whose vectors are of memory that is only read and
        // lives until the call returns.
        let sent = unsafe { libc::sendmmsg(fd, messages.as_mut_ptr(), asked, SEND as _) };
        let Ok(sent) = usize::try_from(sent) else { return Run::failed() };
        let (mut packets, mut bytes) = (0, 0);
        for frame in &frames[..sent] {
            let carried = carried(frame.transport(), frame.bytes().len(), frame.segment_size());
            packets += carried.0;
            bytes += carried.1;
        }
        self.counts.tx_packets.fetch_add(packets, Ordering::Relaxed);
        self.counts.tx_bytes.fetch_add(bytes, Ordering::Relaxed);
        Run::Sent(sent)
    }

    /// Cuts a frame and sends its segments. What the kernel does not take for long is lost.
    #[cold]
    fn cut(&self, fd: RawFd, frame: &Mbuf) {
        let header = VnetHeader::default();
        let (mut packets, mut bytes) = (0, 0);
        let cut = frame.cut(|headers, data| {
            let mut parts = [vector(header.bytes()), vector(headers), vector(data)];
            // SAFETY: all zero bytes are a valid message, without parts.
            let mut message: libc::msghdr = unsafe { zeroed() };
            message.msg_iov = parts.as_mut_ptr();
            message.msg_iovlen = parts.len() as _;
            // SAFETY: the vectors are of memory that is only read and lives until the call returns.
            let send = || unsafe { libc::sendmsg(fd, &message, SEND) } >= 0;
            let sent = (0..TRIES).any(|_| send() || matches!(Run::failed(), Run::Refused));
            packets += 1;
            bytes += (headers.len() + data.len()) as u64;
            sent
        });
        let errors = u64::from(cut.is_none_or(|taken| taken < packets as usize));
        self.counts.tx_errors.fetch_add(errors, Ordering::Relaxed);
        self.counts.tx_packets.fetch_add(packets - errors.min(packets), Ordering::Relaxed);
        self.counts.tx_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

const SEND: libc::c_int = libc::MSG_DONTWAIT;

/// What became of the frames at the front.
enum Run {
    /// So many were taken.
    Sent(usize),
    /// The first must be cut.
    Cut,
    /// The kernel will never take the first.
    Refused,
    /// There is no room, or no link.
    Full,
}

impl Run {
    /// What the last error means for the first frame.
    fn failed() -> Self {
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EMSGSIZE | libc::EINVAL | libc::EPROTO | libc::EIO) => Self::Refused,
            _ => Self::Full,
        }
    }
}

fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
