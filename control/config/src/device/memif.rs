//! A memif interface: `memif:SOCKET[,id=N][,role=client|server][,mode=ethernet|ip]
//! [,secret_file=PATH][,ring=N][,buffer=BYTES]
//! [,copy=cpu|dma][,dma_device=DEVICE][,dma_from=BYTES]`.

use std::fmt;

use super::{check_printable, check_socket_path, options};
use crate::Fault;
use crate::errors::quoted;
use crate::suggest::did_you_mean;

/// Descriptors of a ring unless the file says otherwise.
const RING: u16 = 2048;
/// Fewest and most descriptors of a ring.
const RINGS: std::ops::RangeInclusive<u16> = 256..=16_384;
/// Smallest and largest buffer in bytes; a multiple of 64.
const BUFFERS: std::ops::RangeInclusive<u16> = 256..=16_384;
/// Bytes of a frame from which on a copy engine copies it, unless the file says otherwise.
const DMA_FROM: u32 = 256;
/// What it may be.
const DMA_FROMS: std::ops::RangeInclusive<u32> = 1..=65_535;
/// Longest name of an abstract socket in bytes (`sun_path` less the zero in front).
const NAME_BYTES: usize = 107;

/// A memif interface.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Memif {
    /// The control socket: an absolute path of at most 107 bytes, or `@` and the name of an
    /// abstract socket.
    pub socket: String,
    /// Which interface of the socket.
    pub id: u32,
    /// Who made the socket.
    pub role: MemifRole,
    /// What it carries.
    pub mode: MemifMode,
    /// A file with the secret that a client must know; `None`: none is asked for.
    pub secret_file: Option<String>,
    /// Descriptors of a ring at most, a power of two from 256 to 16,384.
    pub ring: u16,
    /// Bytes of a buffer that a client lends, a multiple of 64 from 256 to 16,384; `None`: what a
    /// frame of the port's MTU needs, and 2,048 at least.
    pub buffer: Option<u16>,
    /// The engine that copies frames; `None`: the processor does.
    pub dma: Option<Dma>,
}

/// A copy engine (`copy=dma`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dma {
    /// By DPDK's name: a PCI address, a work queue's name (`wq0.0`), or `dma_skeleton`.
    pub device: String,
    /// Bytes of a frame from which on it copies, 1 to 65,535.
    pub from: u32,
}

/// Who made a memif's control socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemifRole {
    /// The peer did; the director connects.
    #[default]
    Client,
    /// The director does; the peer connects.
    Server,
}

/// What a memif carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemifMode {
    /// Ethernet frames.
    #[default]
    Ethernet,
    /// IP packets without Ethernet headers.
    Ip,
}

impl Memif {
    /// An interface of a socket with everything else as it is unless the file says otherwise.
    pub fn new(socket: impl Into<String>) -> Self {
        Self {
            socket: socket.into(),
            id: 0,
            role: MemifRole::default(),
            mode: MemifMode::default(),
            secret_file: None,
            ring: RING,
            buffer: None,
            dma: None,
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let (socket, rest) = match text.split_once(',') {
            Some((socket, rest)) => (socket, Some(rest)),
            None => (text, None),
        };
        match socket.strip_prefix('@') {
            Some(name) => check_name(name)?,
            None => check_socket_path(socket)?,
        }
        let mut new = Self::new(socket);
        let known = &[
            "id",
            "role",
            "mode",
            "secret_file",
            "ring",
            "buffer",
            "copy",
            "dma_device",
            "dma_from",
        ];
        let (mut by_dma, mut engine, mut from) = (false, None, None);
        for option in rest.into_iter().flat_map(|rest| options(rest, known)) {
            let (key, value) = option?;
            match key {
                "id" => new.id = number(value, "an interface id", 0..=u32::MAX)?,
                "role" => new.role = parse_role(value)?,
                "mode" => new.mode = parse_mode(value)?,
                "secret_file" => {
                    check_socket_path(value).map_err(|fault| {
                        Fault::new(fault.message, "use the absolute path of a file with the secret")
                    })?;
                    new.secret_file = Some(value.to_owned());
                }
                "ring" => new.ring = size(value, "a number of descriptors", RINGS, 0)?,
                "copy" => by_dma = parse_copy(value)?,
                "dma_device" => {
                    check_printable(value)?;
                    engine = Some(value.to_owned());
                }
                "dma_from" => from = Some(number(value, "a size of copies", DMA_FROMS)?),
                _ => new.buffer = Some(size(value, "a size of buffers", BUFFERS, 64)?),
            }
        }
        new.dma = dma(by_dma, engine, from)?;
        if new.dma.is_some() && new.mode == MemifMode::Ip {
            return Err(Fault::new(
                "copies by DMA do not go with the mode ip of a memif",
                "use mode=ethernet or copy=cpu",
            ));
        }
        Ok(new)
    }
}

fn number(value: &str, what: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, Fault> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|number| digits && range.contains(number)).ok_or_else(|| {
        Fault::new(
            format!("{} is not {what} of a memif", quoted(value)),
            format!("use an integer from {} to {}", range.start(), range.end()),
        )
    })
}

/// A number in a range that is a multiple of `step`, or a power of two if that is 0.
fn size(
    value: &str,
    what: &str,
    range: std::ops::RangeInclusive<u16>,
    step: u32,
) -> Result<u16, Fault> {
    let (least, most) = (*range.start(), *range.end());
    let number = number(value, what, u32::from(least)..=u32::from(most))?;
    let (fits, rule) = match step {
        0 => (number.is_power_of_two(), "a power of two".to_owned()),
        _ => (number.is_multiple_of(step), format!("a multiple of {step}")),
    };
    u16::try_from(number).ok().filter(|_| fits).ok_or_else(|| {
        Fault::new(
            format!("{} is not {what} of a memif", quoted(value)),
            format!("use {rule} from {least} to {most}"),
        )
    })
}

fn parse_role(value: &str) -> Result<MemifRole, Fault> {
    match value {
        "client" => Ok(MemifRole::Client),
        "server" => Ok(MemifRole::Server),
        _ => Err(Fault::new(
            format!("{} is not a role of a memif", quoted(value)),
            format!("use one of: client, server{}", did_you_mean(value, ["client", "server"])),
        )),
    }
}

fn parse_mode(value: &str) -> Result<MemifMode, Fault> {
    match value {
        "ethernet" => Ok(MemifMode::Ethernet),
        "ip" => Ok(MemifMode::Ip),
        _ => Err(Fault::new(
            format!("{} is not a mode of a memif", quoted(value)),
            format!("use one of: ethernet, ip{}", did_you_mean(value, ["ethernet", "ip"])),
        )),
    }
}

fn parse_copy(value: &str) -> Result<bool, Fault> {
    match value {
        "cpu" => Ok(false),
        "dma" => Ok(true),
        _ => Err(Fault::new(
            format!("{} does not copy for a memif", quoted(value)),
            format!("use one of: cpu, dma{}", did_you_mean(value, ["cpu", "dma"])),
        )),
    }
}

const NAMES_OF_ENGINES: &str = "say dma_device=DEVICE: the PCI address of a DSA (0000:6a:01.0), a \
     work queue (wq0.0), or dma_skeleton for trials";

/// What the options of copy engines say together.
fn dma(by_dma: bool, device: Option<String>, from: Option<u32>) -> Result<Option<Dma>, Fault> {
    match (by_dma, device) {
        (true, Some(device)) => Ok(Some(Dma { device, from: from.unwrap_or(DMA_FROM) })),
        (true, None) => {
            Err(Fault::new("copies of a memif by DMA need an engine", NAMES_OF_ENGINES))
        }
        (false, None) if from.is_none() => Ok(None),
        (false, _) => Err(Fault::new(
            "a memif has a copy engine that it does not use",
            "say copy=dma too, or leave dma_device and dma_from out",
        )),
    }
}

fn check_name(name: &str) -> Result<(), Fault> {
    if name.is_empty() || name.len() > NAME_BYTES {
        return Err(Fault::new(
            format!("{} is not the name of an abstract socket", quoted(name)),
            format!("use `@` and 1 to {NAME_BYTES} bytes, such as @sluice"),
        ));
    }
    check_printable(name)
}

impl fmt::Display for Memif {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { socket, id, role, mode, secret_file, ring, buffer, dma } = self;
        write!(out, "{socket},id={id},role={role}")?;
        if *mode == MemifMode::Ip {
            write!(out, ",mode=ip")?;
        }
        if let Some(file) = secret_file {
            write!(out, ",secret_file={file}")?;
        }
        if *ring != RING {
            write!(out, ",ring={ring}")?;
        }
        if let Some(bytes) = buffer {
            write!(out, ",buffer={bytes}")?;
        }
        if let Some(Dma { device, from }) = dma {
            write!(out, ",copy=dma,dma_device={device}")?;
            if *from != DMA_FROM {
                write!(out, ",dma_from={from}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for MemifRole {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_and_given_back() {
        let text = "@vpp,id=3,role=server,mode=ip,secret_file=/etc/sluice/key,ring=256,buffer=9088";
        let memif = Memif::parse(text).unwrap();
        assert_eq!((memif.ring, memif.buffer), (256, Some(9088)));
        assert_eq!(memif.secret_file.as_deref(), Some("/etc/sluice/key"));
        assert_eq!(memif.to_string(), text);
        assert_eq!(Memif::parse("/run/m.sock").unwrap(), Memif::new("/run/m.sock"));
        for (text, from) in [("wq0.0", 256), ("wq0.0,dma_from=512", 512)] {
            let text = format!("/m,id=0,role=client,copy=dma,dma_device={text}");
            let memif = Memif::parse(&text).unwrap();
            assert_eq!(memif.dma, Some(Dma { device: "wq0.0".into(), from }));
            assert_eq!(memif.to_string(), text);
        }
        assert_eq!(Memif::parse("/m,copy=cpu").unwrap(), Memif::new("/m"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_would_be_right() {
        for (text, message, hint) in [
            ("@", "name of an abstract", "such as @sluice"),
            ("run/m.sock", "not the path of a socket", "absolute"),
            ("/m,ring=1000", "`1000` is not a number of desc", "power of two from 256 to 16384"),
            ("/m,ring=128", "not a number of desc", "from 256 to 16384"),
            ("/m,buffer=2000", "not a size of buffers", "a multiple of 64 from 256 to 16384"),
            ("/m,buffer=65536", "not a size of buffers", "from 256 to 16384"),
            ("/m,id=-1", "not an interface id", "from 0 to 4294967295"),
            ("/m,role=master", "not a role", "client, server"),
            ("/m,mode=punt", "not a mode", "ethernet, ip"),
            ("/m,secret_file=key", "is not the path", "absolute path of a file"),
            ("/m,secret=x", "not an option", "secret_file"),
            ("/m,copy=dsa", "`dsa` does not copy", "cpu, dma"),
            ("/m,copy=dma", "need an engine", "dma_device=DEVICE"),
            ("/m,copy=dma,dma_device=", "has no value", "dma_device=VALUE"),
            ("/m,dma_device=wq0.0", "does not use", "copy=dma"),
            ("/m,copy=cpu,dma_from=99", "does not use", "leave"),
            ("/m,copy=dma,dma_device=x,dma_from=0", "not a size of copies", "from 1 to 65535"),
            ("/m,mode=ip,copy=dma,dma_device=x", "do not go with the mode ip", "copy=cpu"),
        ] {
            let fault = Memif::parse(text).unwrap_err();
            let message = message.replace('`', "\"");
            assert!(fault.message.contains(&message), "{text}: {}", fault.message);
            assert!(fault.hint.contains(hint), "{text}: {}", fault.hint);
        }
    }
}
