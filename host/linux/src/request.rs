//! A netlink socket to ask the kernel things on: requests that are acknowledged, and dumps.
//!
//! The kernel works a request off inside `send`, so its answer waits when `send` returns, and a
//! dump goes on inside each `recv`. Nothing here ever sleeps on the socket: no answer at once is
//! no answer.

use std::io;

use netlink_sys::{Socket, SocketAddr};

use crate::attributes::{Attributes, Message, Messages, Request, i32_at, text};
use crate::error::Error;

/// The kernel fills up to 32 KiB at a time into a dump; larger single messages are dealt with by
/// growing.
const BUFFER_BYTES: usize = 64 * 1024;
/// Attribute of an error message: its text (`NLMSGERR_ATTR_MSG`).
const ERROR_TEXT: u16 = 1;
/// `nlmsghdr` of the refused request inside an error message.
const ECHOED_HEADER_END: usize = 4 + 16;

/// How a dump ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dump {
    /// It is one consistent picture.
    Whole,
    /// The tables changed meanwhile (`NLM_F_DUMP_INTR`): something may be missing.
    Interrupted,
}

/// The socket and its receive buffer.
#[derive(Debug)]
pub(crate) struct Requester {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
}

/// Turns an I/O error into ours.
pub(crate) fn socket_error(action: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Socket { action, source }
}

impl Requester {
    /// Opens a socket of a netlink family (`NETLINK_ROUTE`, `NETLINK_GENERIC`).
    pub fn open(protocol: isize) -> Result<Self, Error> {
        let mut socket = Socket::new(protocol).map_err(socket_error("open a socket"))?;
        socket.bind_auto().map_err(socket_error("bind a socket"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(socket_error("connect to the kernel"))?;
        // Error texts and short echoes are a convenience: an old kernel may lack them.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        Ok(Self { socket, buffer: Vec::with_capacity(BUFFER_BYTES), sequence: 0 })
    }

    /// Sends a request and waits for its acknowledgement; `seen` gets the messages that answer
    /// it, if any. `action` completes "the kernel refused to …".
    pub fn ask(
        &mut self,
        request: Request,
        action: &str,
        mut seen: impl FnMut(Message<'_>),
    ) -> Result<(), Error> {
        let sequence = self.send(request)?;
        loop {
            self.receive(action)?;
            for message in Messages(&self.buffer) {
                if message.sequence != sequence {
                    continue; // The rest of an earlier answer that was given up on.
                }
                if i32::from(message.kind) == libc::NLMSG_ERROR {
                    return verdict(&message, action);
                }
                seen(message);
            }
        }
    }

    /// Sends a dump request and hands over every message of the answer.
    pub fn dump(
        &mut self,
        request: Request,
        action: &str,
        mut seen: impl FnMut(Message<'_>),
    ) -> Result<Dump, Error> {
        let sequence = self.send(request)?;
        let mut dump = Dump::Whole;
        loop {
            if !self.receive(action)? {
                dump = Dump::Interrupted;
            }
            for message in Messages(&self.buffer) {
                if message.sequence != sequence {
                    continue;
                }
                if i32::from(message.flags) & libc::NLM_F_DUMP_INTR != 0 {
                    dump = Dump::Interrupted;
                }
                match i32::from(message.kind) {
                    libc::NLMSG_ERROR => return verdict(&message, action).map(|()| dump),
                    libc::NLMSG_DONE => {
                        // The body, where there is one, is the dump's errno.
                        return match i32_at(message.body, 0) {
                            Some(code) if code < 0 => verdict(&message, action).map(|()| dump),
                            _ => Ok(dump),
                        };
                    }
                    _ => seen(message),
                }
            }
        }
    }

    fn send(&mut self, request: Request) -> Result<u32, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence);
        loop {
            match self.socket.send(&bytes, 0) {
                Ok(_) => return Ok(self.sequence),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { action: "send a request", source }),
            }
        }
    }

    /// Reads one datagram. `false`: it was larger than the buffer, which has grown since, and its
    /// end is lost.
    fn receive(&mut self, action: &str) -> Result<bool, Error> {
        loop {
            self.buffer.clear();
            let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
            match self.socket.recv(&mut self.buffer, flags) {
                Ok(len) => {
                    let whole = len <= self.buffer.len();
                    self.buffer.reserve(len.saturating_sub(self.buffer.len()));
                    return Ok(whole);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(Error::NoAnswer { action: action.to_owned() });
                }
                Err(source) => return Err(Error::Socket { action: "receive", source }),
            }
        }
    }
}

/// What an error message (or the end of a dump) says.
fn verdict(message: &Message<'_>, action: &str) -> Result<(), Error> {
    let code = i32_at(message.body, 0).unwrap_or(-libc::EBADMSG);
    if code == 0 {
        return Ok(());
    }
    let attributes =
        if i32::from(message.kind) == libc::NLMSG_DONE { 4 } else { ECHOED_HEADER_END };
    let detail = Attributes(message.body.get(attributes..).unwrap_or_default())
        .find(|&(kind, _)| kind == ERROR_TEXT)
        .and_then(|(_, value)| text(value))
        .map(|text| format!(" ({text})"))
        .unwrap_or_default();
    Err(Error::Refused {
        action: action.to_owned(),
        source: io::Error::from_raw_os_error(code.saturating_neg()),
        detail,
    })
}
