//! A memif interface as a port: `sluice-memif`'s link with packet buffers around it.
//!
//! DPDK has a driver for it (net_memif, still to be had as `dpdk:net_memif0,...`). This one is ours
//! because that one trusts its peer: it can crash the process when a peer leaves under traffic.

use std::hash::{DefaultHasher, Hash, Hasher};

use sluice_director::frame::Frame;
use sluice_memif::{
    Address, Addresses, Buffer, Link, LinkConfig, Mode, OffloadReceiver, OffloadSender, Receiver,
    Role, SECRET_BYTES, Sender,
};

use crate::device::{Memif as Wanted, MemifRole};
use crate::dma::Engine;
use crate::ends::{RxEnd, TxEnd};
use crate::interface::PortState;
use crate::mbuf::Mbuf;
use crate::port::{CopyStats, PortStats};
use crate::{Error, PortConfig, Result};

/// The MTU unless the configuration names another: nothing behind the port says one.
const MTU: u16 = 1500;
/// Bytes of an Ethernet header with two tags.
const LINK_HEADER: u32 = 22;
/// Smallest buffer that is lent when nobody says a size: others refuse less.
const BUFFER_BYTES: u32 = 2048;

/// An open interface.
#[derive(Debug)]
pub(crate) struct Memif {
    link: Link,
    pub mac: [u8; 6],
    pub mtu: u16,
    /// Whether a copy engine copies its frames.
    pub offloads: bool,
}

/// The ends of its queues.
pub(crate) type Ends = Vec<(RxEnd, TxEnd)>;

// SAFETY: an mbuf's data lies in a pool that is never freed, wherever the handle is, and has one
// owner (the type's invariant).
unsafe impl Buffer for Mbuf {
    fn room(&mut self) -> &mut [u8] {
        self.whole()
    }

    fn bytes(&self) -> &[u8] {
        Frame::bytes(self)
    }
}

impl Memif {
    /// Opens the interface. Its peer may come later.
    pub fn open(config: &PortConfig, wanted: &Wanted) -> Result<(Self, Ends)> {
        let mtu = config.mtu.unwrap_or(MTU);
        let fits = (u32::from(mtu) + LINK_HEADER).next_multiple_of(64).max(BUFFER_BYTES);
        let socket = match wanted.socket.strip_prefix('@') {
            Some(name) => Address::Abstract(name.to_owned()),
            None => Address::Path(wanted.socket.clone().into()),
        };
        let mac = config.mac.unwrap_or_else(|| mac_of(config, wanted));
        let link = LinkConfig {
            name: config.name.clone(),
            socket,
            id: wanted.id,
            role: match wanted.role {
                MemifRole::Client => Role::Client,
                MemifRole::Server => Role::Server,
            },
            mode: if wanted.ip {
                // The other end of the same link, as it were.
                let theirs =
                    mac_of(config, &Wanted { role: wanted.role.other(), ..wanted.clone() });
                Mode::Ip(Addresses { ours: mac, theirs })
            } else {
                Mode::Ethernet
            },
            secret: secret(config, wanted)?,
            queues: config.queues,
            log2: wanted.ring.ilog2() as u8,
            buffer_bytes: wanted.buffer.map_or(fits, u32::from),
        };
        let (link, ends) = Link::open(link).map_err(|source| Error::System {
            context: format!("{}: open {}", config.name, config.device),
            source,
        })?;
        let ends = ends.into_iter().map(|ends| with_copier(config, wanted, ends));
        let offloads = wanted.copies.is_some();
        Ok((Self { link, mac, mtu, offloads }, ends.collect::<Result<_>>()?))
    }

    /// What was left to a copy engine, if there is one.
    pub fn copies(&self) -> CopyStats {
        let stats = self.link.stats();
        CopyStats {
            offloaded: stats.copies_offloaded,
            full: stats.copies_full,
            failed: stats.copies_failed,
        }
    }

    pub fn state(&self) -> PortState {
        if self.link.is_up() { PortState::Up } else { PortState::Down }
    }

    /// Why no peer is there.
    pub fn trouble(&self) -> Option<String> {
        Some(self.link.trouble()).filter(|trouble| !trouble.is_empty())
    }

    /// What was carried since the port was opened.
    pub fn stats(&self) -> PortStats {
        let stats = self.link.stats();
        PortStats {
            rx_frames: stats.rx_frames,
            tx_frames: stats.tx_frames,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_missed: 0,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            rx_no_buffer: stats.rx_no_buffer,
        }
    }
}

/// Gives the ends of a queue their copy engine, if there is to be one.
fn with_copier(
    config: &PortConfig,
    wanted: &Wanted,
    (receiver, sender): (Receiver, Sender),
) -> Result<(RxEnd, TxEnd)> {
    let Some(copies) = &wanted.copies else {
        return Ok((RxEnd::Memif(receiver), TxEnd::Memif(sender)));
    };
    if wanted.ip {
        let problem = "copies by DMA need Ethernet mode: IP mode adds a header to each packet";
        return Err(Error::Config { port: config.name.clone(), problem: problem.into() });
    }
    let engine = Engine::open(&config.name, &copies.device)?;
    let [rx, tx] = [(); 2].map(|()| Box::new(engine.channel()));
    Ok((
        RxEnd::Offload(OffloadReceiver::new(receiver, rx, copies.from)),
        TxEnd::Offload(OffloadSender::new(sender, tx, copies.from)),
    ))
}

/// A locally administered address that stays the same from start to start.
fn mac_of(config: &PortConfig, wanted: &Wanted) -> [u8; 6] {
    let mut hash = DefaultHasher::new();
    (&config.name, &wanted.socket, wanted.id, wanted.role == MemifRole::Client).hash(&mut hash);
    let [a, b, c, d, e, ..] = hash.finish().to_le_bytes();
    [2, a, b, c, d, e]
}

/// Reads the secret.
fn secret(config: &PortConfig, wanted: &Wanted) -> Result<[u8; SECRET_BYTES]> {
    let mut secret = [0; SECRET_BYTES];
    let Some(file) = &wanted.secret_file else { return Ok(secret) };
    let problem = |problem| Err(Error::Config { port: config.name.clone(), problem });
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) => return problem(format!("read the secret in {}: {error}", file.display())),
    };
    let text = text.trim_ascii_end();
    match secret.get_mut(..text.len()) {
        Some(room) if !text.is_empty() => room.copy_from_slice(text),
        _ => {
            let file = file.display();
            return problem(format!("the secret in {file} has not 1 to {SECRET_BYTES} bytes"));
        }
    }
    Ok(secret)
}
