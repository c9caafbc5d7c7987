//! memif's control socket: whole messages with at most one descriptor each, never blocking.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::message::{MESSAGE_BYTES, Message};
use crate::negotiation::{Refused, refuse};

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 16;

/// Where a control socket is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A file.
    Path(PathBuf),
    /// A name that no file has; each network namespace has its own.
    Abstract(String),
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(out, "{}", path.display()),
            Self::Abstract(name) => write!(out, "@{name}"),
        }
    }
}

impl Address {
    fn system(&self) -> rustix::io::Result<SocketAddrUnix> {
        match self {
            Self::Path(path) => SocketAddrUnix::new(path),
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        }
    }

    fn socket() -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
    }

    /// Connects.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        let socket = Self::socket()?;
        rustix::net::connect(&socket, &self.system()?)?;
        Ok(socket)
    }

    /// Listens. A socket file that nobody listens on any more is replaced.
    pub fn listen(&self) -> io::Result<OwnedFd> {
        let (socket, address) = (Self::socket()?, self.system()?);
        match (rustix::net::bind(&socket, &address), self) {
            (Err(Errno::ADDRINUSE), Self::Path(path)) => {
                if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
                    return Err(io::Error::other("there is a file that is no socket"));
                }
                // A listener that is alive accepts, or is busy.
                if !matches!(self.connect(), Err(e) if e.kind() == io::ErrorKind::ConnectionRefused)
                {
                    return Err(io::Error::other("another program listens on it"));
                }
                std::fs::remove_file(path)?;
                rustix::net::bind(&socket, &address)?;
            }
            (result, _) => result?,
        }
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    }

    /// Takes the file of a listener away.
    pub fn remove(&self) {
        if let Self::Path(path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Accepts a client, if one waits.
pub fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::accept_with(listener, flags).ok()
}

/// Sends a message. A peer that does not read its messages is refused.
pub fn send(socket: &OwnedFd, message: &Message, with: Option<&OwnedFd>) -> Result<(), Refused> {
    let bytes = message.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = with.map(|descriptor| [descriptor.as_fd()]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags) {
        Ok(MESSAGE_BYTES) => Ok(()),
        Ok(_) => refuse("a message was cut"),
        Err(error) => refuse(io::Error::from(error)),
    }
}

/// A received message and the descriptor that rode along.
pub type Received = (Message, Option<OwnedFd>);

/// Receives a message; `None` when there is none now. An end is an error. Descriptors beyond the
/// first are closed.
pub fn receive(socket: &OwnedFd) -> Result<Option<Received>, Refused> {
    // One byte more than a message has, so that a longer one is told.
    let mut bytes = [0; MESSAGE_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = match rustix::net::recvmsg(socket, &mut parts, &mut control, flags) {
        Ok(got) => got,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(error) => return refuse(io::Error::from(error)),
    };
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(all) => Some(all),
        _ => None,
    });
    // All are taken out, so that those that are not wanted are closed.
    let descriptor = descriptors
        .by_ref()
        .flatten()
        .fold(None, |first: Option<OwnedFd>, next| first.or(Some(next)));
    if got.bytes == 0 {
        return refuse("the peer left");
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return refuse("more descriptors than one in a message");
    }
    let message =
        Message::decode(&bytes[..got.bytes]).map_err(|error| Refused(error.to_string()))?;
    Ok(Some((message, descriptor)))
}
