//! Which XDP program an interface carries, and taking it off: rtnetlink.
//!
//! Only the few attributes that matter are read; a message that makes no sense reads as "no
//! program".

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

const MESSAGE_HEADER: usize = 16;
const LINK_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

const IFLA_IFNAME: u16 = 3;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const NESTED: u16 = 1 << 15;

/// Attached by the driver.
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// Attached by the kernel's generic code.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;

/// How a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the driver.
    Native,
    /// By the kernel's generic code.
    Generic,
}

/// An interface and the XDP program on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub name: String,
    pub program: Option<(u32, Mode)>,
}

/// Asks the kernel about an interface.
pub(crate) fn query(index: u32) -> io::Result<Link> {
    let answer = exchange(request(libc::RTM_GETLINK, libc::NLM_F_REQUEST, index, &[]))?;
    let body = answer.get(MESSAGE_HEADER + LINK_HEADER..).unwrap_or_default();
    Ok(read(body))
}

/// Takes the program off an interface.
pub(crate) fn detach(index: u32, mode: Mode) -> io::Result<()> {
    let flags = match mode {
        Mode::Native => XDP_FLAGS_DRV_MODE,
        Mode::Generic => XDP_FLAGS_SKB_MODE,
    };
    let mut nested = attribute(IFLA_XDP_FD, &(-1_i32).to_ne_bytes());
    nested.extend(attribute(IFLA_XDP_FLAGS, &flags.to_ne_bytes()));
    let xdp = attribute(IFLA_XDP | NESTED, &nested);
    let asked = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    exchange(request(libc::RTM_SETLINK, asked, index, &xdp)).map(drop)
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (ATTRIBUTE_HEADER + value.len()) as u16;
    let mut bytes = Vec::with_capacity(usize::from(len).next_multiple_of(4));
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn request(kind: u16, flags: i32, index: u32, attributes: &[u8]) -> Vec<u8> {
    let len = (MESSAGE_HEADER + LINK_HEADER + attributes.len()) as u32;
    let mut bytes = Vec::with_capacity(len as usize);
    bytes.extend(len.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags as u16).to_ne_bytes());
    bytes.extend([0; 8]);
    // struct ifinfomsg: family, padding, type, index, flags, change.
    bytes.extend([0; 4]);
    bytes.extend(index.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(attributes);
    bytes
}

/// Sends a request and returns the one message that answers it.
fn exchange(request: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    let kind = u16_at(&answer, 4).unwrap_or_default();
    if i32::from(kind) == libc::NLMSG_ERROR {
        let code = u32_at(&answer, MESSAGE_HEADER).unwrap_or_default().cast_signed();
        if code != 0 {
            return Err(io::Error::from_raw_os_error(-code));
        }
    }
    Ok(answer)
}

/// Reads the attributes of a link message.
fn read(attributes: &[u8]) -> Link {
    let mut link = Link::default();
    for (kind, value) in Attributes(attributes) {
        match kind & !NESTED {
            IFLA_IFNAME => {
                let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
                link.name = String::from_utf8_lossy(&value[..end]).into_owned();
            }
            IFLA_XDP => link.program = program(value),
            _ => {}
        }
    }
    link
}

fn program(attributes: &[u8]) -> Option<(u32, Mode)> {
    let id = |wanted: u16| {
        Attributes(attributes)
            .find(|(kind, _)| *kind == wanted)
            .and_then(|(_, value)| u32_at(value, 0))
            .filter(|id| *id != 0)
    };
    id(IFLA_XDP_DRV_PROG_ID)
        .map(|id| (id, Mode::Native))
        .or_else(|| id(IFLA_XDP_SKB_PROG_ID).map(|id| (id, Mode::Generic)))
        .or_else(|| id(IFLA_XDP_PROG_ID).map(|id| (id, Mode::Native)))
}

/// The attributes in a run of bytes; ends at the first that is cut short.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)?;
        let value = self.0.get(ATTRIBUTE_HEADER..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link_attributes() -> Vec<u8> {
        let mut xdp = attribute(2, &[1]);
        xdp.extend(attribute(IFLA_XDP_PROG_ID, &7_u32.to_ne_bytes()));
        xdp.extend(attribute(IFLA_XDP_SKB_PROG_ID, &7_u32.to_ne_bytes()));
        let mut all = attribute(IFLA_IFNAME, b"front\0");
        all.extend(attribute(IFLA_XDP | NESTED, &xdp));
        all
    }

    #[test]
    fn a_link_message_tells_the_name_and_the_program() {
        let expected = Link { name: "front".to_owned(), program: Some((7, Mode::Generic)) };
        assert_eq!(read(&link_attributes()), expected);
    }

    #[test]
    fn an_interface_without_a_program_has_none() {
        let unattached = attribute(IFLA_XDP, &attribute(2, &[0]));
        assert_eq!(read(&unattached).program, None);
    }

    #[test]
    fn a_message_cut_short_reads_as_less() {
        let whole = link_attributes();
        for len in 0..whole.len() {
            let found = read(&whole[..len]);
            assert!(found.name.is_empty() || found.name == "front", "{len}: {found:?}");
            assert_eq!(found.program, None, "{len} bytes");
        }
        assert_eq!(read(&[0; 8]), Link::default(), "an attribute of no length ends the reading");
    }

    #[test]
    fn every_process_has_a_loopback_interface_without_a_program() {
        let found = query(1).expect("rtnetlink answers without privileges");
        assert_eq!(found, Link { name: "lo".to_owned(), program: None });
        assert!(query(0x7fff_fff0).is_err(), "no such interface");
    }
}
