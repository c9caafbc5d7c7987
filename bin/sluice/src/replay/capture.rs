//! Captures: pcap (micro- and nanoseconds, either byte order) and pcapng in; pcap with nanoseconds
//! out.
//!
//! Read packet by packet, so that a capture may be larger than memory. Whatever is wrong is told
//! with the file and the packet's number.

use std::fs::File;
use std::io::{BufReader, BufWriter, Chain, Cursor, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapTsResolution, PcapWriter};
use pcap_file::pcapng::{Block, PcapNgReader, PcapNgState};
use pcap_file::{DataLink, Endianness};

use super::error::ReplayError;

/// Longest packet that is written; what other tools take for the limit too.
const SNAPLEN: u32 = 262_144;
/// Bytes of the reader's buffer: the longest packet or block that can be read.
const BUFFER: usize = 1 << 20;

/// One packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Time since 1970.
    pub at: Duration,
    /// The frame from the Ethernet header on.
    pub bytes: Vec<u8>,
    /// The capture holds only the frame's beginning.
    pub cut: bool,
}

type Source = Chain<Cursor<Vec<u8>>, BufReader<File>>;

enum Format {
    Pcap(Box<PcapReader<Source>>),
    PcapNg(Box<PcapNgReader<Source>>),
}

/// A capture being read.
pub struct Capture {
    path: PathBuf,
    format: Format,
    number: u64,
}

impl Capture {
    /// Opens a capture of Ethernet frames.
    ///
    /// # Errors
    /// When it cannot be opened or is no capture of Ethernet frames.
    pub fn open(path: &Path) -> Result<Self, ReplayError> {
        let file = File::open(path).map_err(ReplayError::file(path))?;
        // No more than a small file can fill: zeroing the buffer takes longer than reading.
        let most = file.metadata().ok().filter(std::fs::Metadata::is_file);
        let most = most.and_then(|metadata| usize::try_from(metadata.len()).ok());
        let buffer = most.map_or(BUFFER, |length| (length + 4096).min(BUFFER));
        let mut start = Vec::new();
        let mut file = BufReader::new(file);
        file.by_ref().take(4).read_to_end(&mut start).map_err(ReplayError::file(path))?;
        let refuse = |why: String| ReplayError::NotACapture { path: path.to_owned(), why };
        let format = match start[..] {
            [0x0a, 0x0d, 0x0d, 0x0a] => {
                let source = Cursor::new(start).chain(file);
                Format::PcapNg(Box::new(
                    PcapNgReader::with_capacity(source, buffer)
                        .map_err(|e| refuse(format!("not a pcapng: {e}")))?,
                ))
            }
            [0x1f, 0x8b, ..] => return Err(refuse("compressed: unpack it first".to_owned())),
            _ => {
                let source = Cursor::new(start).chain(file);
                let reader = PcapReader::with_capacity(source, buffer)
                    .map_err(|e| refuse(format!("neither pcap nor pcapng: {e}")))?;
                ethernet(reader.header().datalink).map_err(refuse)?;
                Format::Pcap(Box::new(reader))
            }
        };
        Ok(Self { path: path.to_owned(), format, number: 0 })
    }

    /// The capture's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many packets were read: the number of the last one.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The next packet, `None` at the end.
    ///
    /// # Errors
    /// When the file ends within a packet, or a packet is no Ethernet frame or has no time.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReplayError> {
        let number = self.number + 1;
        let record = match &mut self.format {
            Format::Pcap(reader) => next_pcap(reader),
            Format::PcapNg(reader) => next_pcapng(reader),
        };
        match record {
            Ok(record) => {
                self.number += u64::from(record.is_some());
                Ok(record)
            }
            Err(why) => Err(ReplayError::Packet { path: self.path.clone(), number, why }),
        }
    }
}

fn ethernet(link: DataLink) -> Result<(), String> {
    match link {
        DataLink::ETHERNET => Ok(()),
        other => Err(format!("link type {other:?}, expected Ethernet frames")),
    }
}

fn next_pcap(reader: &mut PcapReader<Source>) -> Result<Option<Record>, String> {
    let Some(packet) = reader.next_packet() else { return Ok(None) };
    let packet = packet.map_err(|e| e.to_string())?;
    Ok(Some(Record {
        at: packet.timestamp(),
        cut: packet.orig_len() > packet.len(),
        bytes: packet.into_data().into_owned(),
    }))
}

fn next_pcapng(reader: &mut PcapNgReader<Source>) -> Result<Option<Record>, String> {
    while let Some(block) = reader.next_block() {
        let (block, state) = block.map_err(|e| e.to_string())?;
        match block {
            Block::EnhancedPacket(packet) => {
                ethernet_interface(state, packet.interface_id)?;
                let bytes = packet.data.into_owned();
                let cut = (packet.original_len as usize) > bytes.len();
                return Ok(Some(Record { at: packet.timestamp, bytes, cut }));
            }
            Block::Packet(packet) => {
                ethernet_interface(state, packet.interface_id.into())?;
                let bytes = packet.data.into_owned();
                let cut = (packet.original_len as usize) > bytes.len();
                return Ok(Some(Record { at: packet.timestamp, bytes, cut }));
            }
            Block::SimplePacket(_) => {
                return Err("a simple packet block has no time stamp".to_owned());
            }
            _ => {}
        }
    }
    Ok(None)
}

fn ethernet_interface(state: &PcapNgState, id: u32) -> Result<(), String> {
    match state.interfaces().get(id as usize) {
        Some(interface) => ethernet(interface.linktype),
        None => Err(format!("names interface {id}, which the capture does not describe")),
    }
}

/// A capture being written.
pub struct Output {
    path: PathBuf,
    writer: PcapWriter<BufWriter<File>>,
    packets: u64,
}

impl Output {
    /// Makes an empty capture, or empties the one there is. Always little-endian, so that the
    /// same input gives the same bytes on every machine.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn create(path: &Path) -> Result<Self, ReplayError> {
        let file = File::create(path).map_err(ReplayError::file(path))?;
        let header = PcapHeader {
            endianness: Endianness::Little,
            ts_resolution: PcapTsResolution::NanoSecond,
            snaplen: SNAPLEN,
            datalink: DataLink::ETHERNET,
            ..PcapHeader::default()
        };
        let writer = PcapWriter::with_header(BufWriter::new(file), header);
        let writer = writer.map_err(|e| Self::failed(path, 0, &e))?;
        Ok(Self { path: path.to_owned(), writer, packets: 0 })
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// When it is too long or too late (after the year 2106) for the format, or the disk is full.
    pub fn write(&mut self, at: Duration, bytes: &[u8]) -> Result<(), ReplayError> {
        self.packets += 1;
        let whole = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let packet = PcapPacket::new(at, whole, bytes)
            .map_err(|e| Self::failed(&self.path, self.packets, &e))?;
        let written = self.writer.write_packet(&packet);
        written.map(drop).map_err(|e| Self::failed(&self.path, self.packets, &e))
    }

    /// Writes out what is buffered; gives the number of packets.
    ///
    /// # Errors
    /// When the disk is full.
    pub fn finish(mut self) -> Result<u64, ReplayError> {
        let flushed = self.writer.flush();
        flushed.map_err(|e| Self::failed(&self.path, self.packets, &e))?;
        Ok(self.packets)
    }

    fn failed(path: &Path, number: u64, why: &dyn std::error::Error) -> ReplayError {
        ReplayError::Packet { path: path.to_owned(), number, why: why.to_string() }
    }
}
