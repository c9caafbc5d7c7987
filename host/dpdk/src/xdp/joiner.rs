//! Sending TCP segments that follow each other as one super-packet.
//!
//! An AF_XDP socket in copy mode costs the kernel as much for each segment as the whole way through
//! its stack. A packet socket takes 64 KB of them at once (GSO): the interface, or its other end,
//! cuts them later or never. So what is a stream by the time it leaves goes by a packet socket, and
//! all else by the rings. The segments were received one by one, before the kernel could have
//! joined them, which is what XDP costs a stream.
//!
//! Both ways are emptied by the thread that calls, in order, before it goes on; so frames of a flow
//! do not overtake each other where both end in the same queue of the interface. Therefore only
//! ports with one queue, in copy mode, join; and while the kernel leaves frames in the ring, all go
//! there.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_director::frame::Frame;
use sluice_wire::offload::{MOST_HEADERS, Run};
use sluice_xdp::Sender;

use crate::mbuf::Mbuf;
use crate::queue::BURST;
use crate::vnet::VnetHeader;

/// Frames below this length are not looked at: acknowledgements and requests.
const SHORTEST: usize = 512;
/// Bytes that may be on their way out, as the kernel counts.
const SOCKET_ROOM: libc::c_int = 32 << 20;

/// A way out for streams.
#[derive(Debug)]
pub(crate) struct Joiner {
    socket: Arc<OwnedFd>,
    /// Whether the kernel has refused a super-packet: then none is made any more.
    refused: bool,
}

/// What became of a run.
enum Fate {
    Sent,
    /// The kernel has no room now.
    Full,
    /// It does not take such packets.
    Refused,
}

impl Joiner {
    /// For the interface of this index.
    pub fn open(index: u32) -> io::Result<Self> {
        // SAFETY: opens a socket, owned at once. Without a protocol it receives nothing.
        let socket = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            let fd = libc::socket(libc::AF_PACKET, kind, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let fd = socket.as_raw_fd();
        set(fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        // With less room it works too.
        let _ = set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_ROOM);
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as libc::c_ushort,
            sll_protocol: 0,
            sll_ifindex: index as libc::c_int,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: the address has the length given.
        let status = unsafe {
            let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            libc::bind(fd, (&raw const address).cast(), length)
        };
        if status < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { socket: Arc::new(socket), refused: false })
    }

    /// The socket, for whoever is to close it: that takes the kernel ten milliseconds and more, in
    /// which a worker has better things to do.
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    /// Sends frames from the front: runs as super-packets, others by `sender`. Returns how many.
    #[inline]
    pub fn send(&mut self, sender: &mut Sender, frames: &[Mbuf]) -> usize {
        // Frames before `from` are sent; those before `at` are no run.
        let (mut from, mut at) = (0, 0);
        while at < frames.len() {
            let Some(run) = (!self.refused).then(|| run(&frames[at..])).flatten() else {
                at += 1;
                continue;
            };
            if from < at {
                from += sender.send(frames[from..at].iter().map(Frame::bytes));
                if from < at {
                    return from;
                }
            }
            if sender.has_unsent() {
                break;
            }
            let joined = &frames[at..at + run.count()];
            match self.send_run(&run, joined) {
                Fate::Sent => {
                    let bytes = joined.iter().map(|frame| frame.bytes().len() as u64).sum();
                    sender.count(joined.len() as u64, bytes);
                    at += run.count();
                    from = at;
                }
                Fate::Full => return from,
                Fate::Refused => self.refused = true,
            }
        }
        if from < frames.len() {
            from += sender.send(frames[from..].iter().map(Frame::bytes));
        }
        from
    }

    #[cold]
    #[inline(never)]
    fn send_run(&self, run: &Run, frames: &[Mbuf]) -> Fate {
        let Some(first) = frames.first().map(Frame::bytes) else { return Fate::Sent };
        let mut headers = [0; MOST_HEADERS];
        let end = run.place().data;
        let Some(headers) = headers.get_mut(..end) else { return Fate::Refused };
        headers.copy_from_slice(&first[..end]);
        if run.finish(headers).is_none() {
            return Fate::Refused;
        }
        let vnet = VnetHeader::of_run(run, run.place().is_v6(headers));
        let mut parts = ArrayVec::<libc::iovec, { BURST + 2 }>::new();
        parts.push(vector(vnet.bytes()));
        parts.push(vector(headers));
        parts.extend(frames.iter().map(|frame| vector(run.data(frame.bytes()))));
        // SAFETY: all zero bytes are a valid message, without parts.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the vectors are of memory that is only read and lives until the call returns.
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &message, libc::MSG_DONTWAIT) };
        if sent >= 0 {
            return Fate::Sent;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EMSGSIZE | libc::EINVAL | libc::EPROTO | libc::EIO) => Fate::Refused,
            _ => Fate::Full,
        }
    }
}

/// The run that frames begin with, if two at least follow each other.
#[inline]
fn run(frames: &[Mbuf]) -> Option<Run> {
    let [first, second, ..] = frames else { return None };
    let (first, second) = (first.bytes(), second.bytes());
    // Most bursts have no two neighbours that could follow each other: seen at little cost.
    if first.len() < SHORTEST || second.len() > first.len() {
        return None;
    }
    let mut run = Run::begin(first)?;
    for next in frames[1..].iter().take(BURST - 1) {
        if !run.takes(first, next.bytes()) {
            break;
        }
    }
    (run.count() > 1).then_some(run)
}

fn set(fd: libc::c_int, level: libc::c_int, option: libc::c_int, value: i32) -> io::Result<()> {
    // SAFETY: the value has the length given, and the kernel copies it.
    let status = unsafe {
        let length = size_of::<i32>() as libc::socklen_t;
        libc::setsockopt(fd, level, option, (&raw const value).cast(), length)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}
