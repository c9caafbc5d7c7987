//! Sockets: generic netlink messages and the options of `IPPROTO_IP`.
//!
//! Unsafe: messages and buffers are pointers of the program's, as the kernel gets them.

use std::ffi::c_void;
use std::ptr::NonNull;

use libc::{c_int, iovec, msghdr, size_t, sockaddr, sockaddr_nl, socklen_t, ssize_t};
use sluice_ipvs::abi::genl::{self, Outcome};
use sluice_ipvs::abi::{Number, sockopt};

use crate::{director, errno, next, pending};

/// Messages to IPVS are small; what is longer is the kernel's.
const SENT_LIMIT_BYTES: usize = 1 << 16;
/// `UIO_MAXIOV`.
const PIECES_LIMIT: usize = 1024;
/// `SOCK_TYPE_MASK`'s complement: `SOCK_NONBLOCK` and `SOCK_CLOEXEC` are above.
const KINDS: c_int = 0xf;

/// Stands before `socket(2)`.
///
/// # Safety
/// None is needed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: it takes any numbers.
    let fd = unsafe { next::socket(domain, kind, protocol) };
    let raw = [libc::SOCK_RAW, libc::SOCK_DGRAM].contains(&(kind & KINDS));
    if fd >= 0 && domain == libc::AF_NETLINK && protocol == libc::NETLINK_GENERIC && raw {
        errno::kept(|| pending::opened(fd));
    }
    fd
}

/// What becomes of bytes that are sent by a netlink socket: true when they have been answered.
fn is_answered(fd: c_int, sent: &[u8]) -> bool {
    if pending::with(fd, |_| ()).is_none() {
        return false;
    }
    match genl::answer(sent, director::is_netlink_hidden(), &mut director::ask) {
        Outcome::Kernel => false,
        Outcome::Before(answers) => {
            pending::with(fd, |waiting| waiting.extend(answers));
            false
        }
        Outcome::Answered(answers) => {
            pending::with(fd, |waiting| waiting.extend(answers)).is_some()
        }
    }
}

/// How many bytes were sent, if they were ours.
fn sent(fd: c_int, bytes: &[u8]) -> Option<ssize_t> {
    let length = ssize_t::try_from(bytes.len()).ok()?;
    let answered = errno::told(|| Ok(is_answered(fd, bytes)));
    match answered {
        Ok(true) => Some(length),
        Ok(false) => None,
        Err(()) => Some(-1),
    }
}

/// Whether a message is for the kernel, as opposed to another socket.
///
/// # Safety
/// `to` is null or points to an address of `length` bytes.
unsafe fn is_to_kernel(to: *const sockaddr, length: socklen_t) -> bool {
    if to.is_null() {
        return true;
    }
    if usize::try_from(length).is_ok_and(|length| length < size_of::<sockaddr_nl>()) {
        return false;
    }
    // SAFETY: there are so many bytes, and any of them are an address; it need not be aligned.
    let to = unsafe { to.cast::<sockaddr_nl>().read_unaligned() };
    c_int::from(to.nl_family) == libc::AF_NETLINK && to.nl_pid == 0
}

/// Stands before `sendmsg(2)`.
///
/// # Safety
/// What `sendmsg` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if pending::may_be(fd)
        && let Some(message) = NonNull::new(message.cast_mut())
    {
        // SAFETY: the program gives a message to read.
        let message = unsafe { message.as_ref() };
        // SAFETY: as the program says by the message's own fields.
        let bytes = unsafe {
            is_to_kernel(message.msg_name.cast(), message.msg_namelen)
                .then(|| gathered(message))
                .flatten()
        };
        if let Some(done) = bytes.and_then(|bytes| sent(fd, &bytes)) {
            return done;
        }
    }
    // SAFETY: the caller's.
    unsafe { next::sendmsg(fd, message, flags) }
}

/// The pieces of a message as one, unless they are too many.
///
/// # Safety
/// The message's pieces can be read.
unsafe fn gathered(message: &msghdr) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    // SAFETY: the caller's.
    for piece in unsafe { pieces(message) } {
        if all.len().checked_add(piece.iov_len)? > SENT_LIMIT_BYTES {
            return None;
        }
        if !piece.iov_base.is_null() {
            // SAFETY: it can be read, says the caller.
            let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast(), piece.iov_len) };
            all.extend_from_slice(bytes);
        }
    }
    Some(all)
}

/// The places where a message's bytes are, or go to.
///
/// # Safety
/// The message is as its caller should have made it.
unsafe fn pieces(message: &msghdr) -> &[iovec] {
    if message.msg_iov.is_null() || message.msg_iovlen > PIECES_LIMIT {
        return &[];
    }
    // SAFETY: it points to so many of them, says the caller.
    unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) }
}

/// Stands before `sendto(2)`.
///
/// # Safety
/// What `sendto` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> ssize_t {
    // SAFETY: the caller's: there are so many bytes, and an address or none.
    unsafe {
        if pending::may_be(fd)
            && is_to_kernel(to, to_length)
            && let Some(done) = sent_at(fd, bytes, length)
        {
            return done;
        }
        next::sendto(fd, bytes, length, flags, to, to_length)
    }
}

/// Stands before `send(2)`.
///
/// # Safety
/// What `send` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    fd: c_int,
    bytes: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's: there are so many bytes.
    unsafe {
        if pending::may_be(fd)
            && let Some(done) = sent_at(fd, bytes, length)
        {
            return done;
        }
        next::send(fd, bytes, length, flags)
    }
}

/// # Safety
/// There are `length` bytes to read.
unsafe fn sent_at(fd: c_int, bytes: *const c_void, length: size_t) -> Option<ssize_t> {
    if bytes.is_null() || length > SENT_LIMIT_BYTES {
        return None;
    }
    // SAFETY: the caller's.
    sent(fd, unsafe { std::slice::from_raw_parts(bytes.cast(), length) })
}

/// An answer on its way to the program.
struct Received {
    /// How much of it the program got.
    copied: usize,
    /// How long it is.
    length: usize,
}

impl Received {
    /// What the call returns.
    fn result(&self, flags: c_int) -> ssize_t {
        let length = if flags & libc::MSG_TRUNC == 0 { self.copied } else { self.length };
        ssize_t::try_from(length).unwrap_or(ssize_t::MAX)
    }
}

/// Gives the next answer that waits for a socket, if one does, to where the program wants it.
///
/// # Safety
/// The places can be written to.
unsafe fn received(fd: c_int, flags: c_int, places: &[iovec]) -> Option<Received> {
    let answer = errno::kept(|| {
        pending::with(fd, |answers| match flags & libc::MSG_PEEK {
            0 => answers.pop_front(),
            _ => answers.front().cloned(),
        })
    })??;
    let mut left = &answer[..];
    for place in places.iter().filter(|place| !place.iov_base.is_null()) {
        let (now, later) = left.split_at(left.len().min(place.iov_len));
        // SAFETY: so many bytes fit there, says the caller, and what is copied is our own.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), place.iov_base.cast(), now.len()) };
        left = later;
    }
    Some(Received { copied: answer.len() - left.len(), length: answer.len() })
}

/// Writes where an answer comes from: the kernel. Gives the length of the address.
///
/// # Safety
/// `from` is null or `room` bytes can be written there.
unsafe fn from_kernel(from: *mut c_void, room: socklen_t) -> socklen_t {
    // SAFETY: an address is numbers, of which all are 0 but one.
    let mut kernel: sockaddr_nl = unsafe { std::mem::zeroed() };
    // AF_NETLINK is 16.
    kernel.nl_family = libc::AF_NETLINK as _;
    let length = size_of::<sockaddr_nl>();
    let room = usize::try_from(room).unwrap_or(0).min(length);
    if !from.is_null() {
        // SAFETY: there is room for so many, and the address has no fewer.
        unsafe { std::ptr::copy_nonoverlapping((&raw const kernel).cast(), from, room) };
    }
    socklen_t::try_from(length).unwrap_or(0)
}

/// Stands before `recvmsg(2)`.
///
/// # Safety
/// What `recvmsg` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if pending::may_be(fd)
        && let Some(mut message) = NonNull::new(message)
    {
        // SAFETY: the program gives a message to read and write, which nobody else does meanwhile.
        let message = unsafe { message.as_mut() };
        // SAFETY: its pieces can be written to, says the program.
        let received = unsafe { received(fd, flags, pieces(message)) };
        if let Some(received) = received {
            // SAFETY: there is room for an address as the program says, or none at all.
            let length = unsafe { from_kernel(message.msg_name, message.msg_namelen) };
            message.msg_namelen = if message.msg_name.is_null() { 0 } else { length };
            message.msg_controllen = 0;
            let whole = received.copied == received.length;
            message.msg_flags = if whole { 0 } else { libc::MSG_TRUNC };
            return received.result(flags);
        }
    }
    // SAFETY: the caller's.
    unsafe { next::recvmsg(fd, message, flags) }
}

/// Stands before `recvfrom(2)`.
///
/// # Safety
/// What `recvfrom` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    bytes: *mut c_void,
    length: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> ssize_t {
    if pending::may_be(fd) {
        let place = [iovec { iov_base: bytes, iov_len: length }];
        // SAFETY: so many bytes can be written there, says the program.
        if let Some(received) = unsafe { received(fd, flags, &place) } {
            // SAFETY: the program gives room for an address and its length, or neither.
            unsafe {
                if !from_length.is_null() {
                    *from_length = from_kernel(from.cast(), *from_length);
                }
            }
            return received.result(flags);
        }
    }
    // SAFETY: the caller's.
    unsafe { next::recvfrom(fd, bytes, length, flags, from, from_length) }
}

/// Stands before `recv(2)`.
///
/// # Safety
/// What `recv` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(
    fd: c_int,
    bytes: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    if pending::may_be(fd) {
        let place = [iovec { iov_base: bytes, iov_len: length }];
        // SAFETY: so many bytes can be written there, says the program.
        if let Some(received) = unsafe { received(fd, flags, &place) } {
            return received.result(flags);
        }
    }
    // SAFETY: the caller's.
    unsafe { next::recv(fd, bytes, length, flags) }
}

/// Stands before `getsockopt(2)`.
///
/// # Safety
/// What `getsockopt` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    if level != libc::IPPROTO_IP || !sockopt::is_ours(name) || value.is_null() || length.is_null() {
        // SAFETY: the caller's.
        return unsafe { next::getsockopt(fd, level, name, value, length) };
    }
    let done = errno::told(|| {
        // SAFETY: the program gives a length to read and write.
        let room = usize::try_from(unsafe { *length }).map_err(|_| Number::INVAL)?;
        let input = sockopt::input_bytes(name).min(room);
        // SAFETY: so many bytes can be written there, and what the option takes is written already.
        let input = unsafe { std::slice::from_raw_parts(value.cast(), input) };
        let (answer, says) = sockopt::get(name, input, room, &mut director::ask)?;
        let copied = answer.len().min(room);
        // SAFETY: there is room for so many bytes; the answer is our own.
        unsafe {
            std::ptr::copy_nonoverlapping(answer.as_ptr(), value.cast(), copied);
            *length = socklen_t::try_from(says.min(room)).unwrap_or(0);
        }
        Ok(())
    });
    done.map_or(-1, |()| 0)
}

/// Stands before `setsockopt(2)`.
///
/// # Safety
/// What `setsockopt` wants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if level != libc::IPPROTO_IP || !sockopt::is_ours(name) {
        // SAFETY: the caller's.
        return unsafe { next::setsockopt(fd, level, name, value, length) };
    }
    let done = errno::told(|| {
        let length = usize::try_from(length).map_err(|_| Number::INVAL)?;
        let value: &[u8] = match value.is_null() {
            true => &[],
            // SAFETY: there are so many bytes to read, says the program.
            false => unsafe { std::slice::from_raw_parts(value.cast(), length) },
        };
        sockopt::set(name, value, &mut director::ask)
    });
    done.map_or(-1, |()| 0)
}
