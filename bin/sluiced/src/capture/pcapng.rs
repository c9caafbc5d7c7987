//! A capture as pcapng (draft-ietf-opsawg-pcapng): an interface for each port, an Enhanced Packet
//! Block for each form of a packet with its direction and what became of it as its comment, and
//! statistics at the end.

use super::names::Names;
use super::text::comment;
use super::{Caught, Teller, wants};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::block_common::PcapNgBlock;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness};
use sluice_api::model::LookEnd;
use sluice_director::fib::PortId;
use sluice_worker::capture_point::{Came, Catch, Form, Kept};
use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::warn;

/// Flags of a packet's block: its direction.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A capture.
pub struct Pcapng {
    names: Names,
    form: Option<Form>,
    snap: usize,
    writer: Option<PcapNgWriter<Vec<u8>>>,
    told: u64,
}

impl Pcapng {
    pub const fn new(names: Names, form: Option<Form>, snap: usize) -> Self {
        Self { names, form, snap, writer: None, told: 0 }
    }

    fn write<'a>(&mut self, block: impl PcapNgBlock<'a>) {
        let Some(writer) = &mut self.writer else { return };
        if let Err(error) = writer.write_pcapng_block(block) {
            // Memory takes everything; so a block was wrong, and the others are not.
            warn!(%error, "a packet is missing from a capture");
        }
    }

    /// A port's interface; what is of no port has one of its own.
    fn interface(&self, port: PortId) -> u32 {
        (usize::from(port.0)).min(self.names.ports.len()) as u32
    }

    fn packet(&mut self, catch: &Catch, way: (PortId, u32), kept: Kept, bytes: &[u8]) {
        let comment = CommonOption::Comment(Cow::Owned(comment(&self.names, catch)));
        let block = EnhancedPacketBlock {
            interface_id: self.interface(way.0),
            timestamp: Duration::from_nanos(catch.at_ns),
            original_len: kept.length,
            data: Cow::Borrowed(bytes),
            options: vec![
                EnhancedPacketOption::Common(comment),
                EnhancedPacketOption::Flags(way.1),
            ],
        };
        self.write(block);
    }
}

impl Teller for Pcapng {
    fn begin(&mut self, _: usize) {
        let program = concat!("sluiced ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            endianness: Endianness::native(),
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(program))],
            ..SectionHeaderBlock::default()
        };
        self.writer = PcapNgWriter::with_section_header(Vec::new(), section)
            .inspect_err(|error| warn!(%error, "a capture cannot begin"))
            .ok();
        let none = ("none".to_owned(), "of no port that there was at the beginning".to_owned());
        for (name, device) in self.names.ports.clone().into_iter().chain([none]) {
            self.write(InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: self.snap as u32,
                options: vec![
                    InterfaceDescriptionOption::IfName(Cow::Owned(name)),
                    InterfaceDescriptionOption::IfDescription(Cow::Owned(device)),
                    InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
                ],
            });
        }
    }

    fn tell(&mut self, Caught { catch, received, sent }: &Caught) {
        // Whoever it was handed to has it all; and what waited was written when it came.
        if catch.goes_on() {
            return;
        }
        self.told += 1;
        let told = matches!(catch.came, Came::Parked(_));
        if let Some(kept) = catch.received.filter(|_| !told && wants(self.form, Form::Received)) {
            self.packet(catch, (catch.port, INBOUND), kept, received);
        }
        if let (Some(kept), Some(port)) = (catch.sent, catch.sent_by)
            && wants(self.form, Form::Sent)
        {
            self.packet(catch, (port, OUTBOUND), kept, sent);
        }
    }

    fn end(&mut self, end: &LookEnd) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = format!(
            "ended by: {}; packets: {}; lost because the reader was slow: {}",
            end.why, end.packets, end.lost
        );
        let comment = InterfaceStatisticsOption::Common(CommonOption::Comment(Cow::Owned(text)));
        // All of them stand at the first, which there always is.
        self.write(InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: now,
            options: vec![
                comment,
                InterfaceStatisticsOption::IsbFilterAccept(end.packets + end.lost),
                InterfaceStatisticsOption::IsbOsDrop(end.lost),
                InterfaceStatisticsOption::IsbUsrDeliv(end.packets),
            ],
        });
    }

    fn take(&mut self) -> Vec<u8> {
        self.writer.as_mut().map(|writer| std::mem::take(writer.get_mut())).unwrap_or_default()
    }

    fn told(&self) -> u64 {
        self.told
    }
}
