//! `sluice trace` and `sluice capture`: which packets, and how far.

use std::path::PathBuf;

use clap::Args;
use sluice_api::Endpoint;
use sluice_api::model::{LookRequest, Way};

use super::Asking;

pub const TRACE_EXAMPLES: &str = "\
Examples:
  sluice trace
  sluice trace --filter 'host 203.0.113.9 and tcp port 80' --count 3
  sluice trace --service web --reason dropped
  sluice trace --real 192.0.2.11:80 --direction out --json
  sluice trace --filter 'tcp[tcpflags] & tcp-syn != 0' --seconds 10

The filter is tcpdump's language (man 7 pcap-filter). A packet matches as it was received or as it \
is sent, unless --direction selects one. All given options must match.";

pub const CAPTURE_EXAMPLES: &str = "\
Examples:
  sluice capture -w web.pcapng --service web --seconds 30
  sluice capture -w drops.pcapng --reason dropped
  sluice capture -w - --filter 'udp port 53' | tcpdump -n -r -
  sluice capture -w - --real 192.0.2.11 | tshark -r - -T fields -e frame.comment
  sluice capture -w in.pcapng --direction in --port front --count 1000 --snap 128

Each packet is written as it was received and as it was sent, with its outcome as a comment. The \
filter is tcpdump's language (man 7 pcap-filter).";

/// Which packets.
#[derive(Debug, Args)]
pub struct Packets {
    /// Only packets that match, in tcpdump's language
    #[arg(long, short, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// To this virtual service, or of its sessions
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Of sessions with this real server
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    real: Option<Endpoint>,
    /// Received or sent by this port
    #[arg(long, value_name = "NAME")]
    port: Option<String>,
    /// Dropped, answered or given to the kernel for this reason; may be repeated; `dropped` for
    /// all that drop
    #[arg(long = "reason", value_name = "REASON")]
    reasons: Vec<String>,
    /// Match packets only as received (in), or as sent (out)
    #[arg(long, value_name = "in|out")]
    direction: Option<Way>,
    /// End after this many seconds, 0.1 to 3600
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = LookRequest::SECONDS,
        value_parser = super::interval
    )]
    seconds: f64,
}

impl Packets {
    /// As the director is asked, with a filter that was compiled.
    fn request(self, filter: Option<Vec<[u32; 4]>>) -> LookRequest {
        let Self { service, real, port, reasons, direction, seconds, .. } = self;
        LookRequest {
            filter,
            service,
            real: real.map(|real| real.to_string()),
            port,
            reasons,
            direction,
            seconds: Some(seconds),
            ..LookRequest::default()
        }
    }
}

fn count(text: &str) -> Result<u64, String> {
    within(text, LookRequest::MAX_PACKETS)
}

fn bytes(text: &str) -> Result<u64, String> {
    within(text, LookRequest::MAX_BYTES)
}

fn snap(text: &str) -> Result<u32, String> {
    within(text, LookRequest::MAX_SNAP.into()).map(|snap| snap as u32)
}

fn within(text: &str, most: u64) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("a number from 1 to {most}")),
    }
}

/// What to trace.
#[derive(Debug, Args)]
pub struct Trace {
    /// How to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Which packets.
    #[command(flatten)]
    pub packets: Packets,
    /// End after this many packets
    #[arg(
        long,
        short,
        value_name = "N",
        default_value_t = LookRequest::TRACE_PACKETS,
        value_parser = count
    )]
    count: u64,
}

impl Trace {
    /// As the director is asked.
    pub fn request(self, filter: Option<Vec<[u32; 4]>>) -> LookRequest {
        LookRequest { packets: Some(self.count), ..self.packets.request(filter) }
    }
}

/// What to capture.
#[derive(Debug, Args)]
pub struct Capture {
    /// Control socket of the director, as before the subcommand
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// File to write, in pcapng; `-` for standard output
    #[arg(long, short, value_name = "FILE")]
    pub write: PathBuf,
    /// Which packets.
    #[command(flatten)]
    pub packets: Packets,
    /// End after this many packets
    #[arg(
        long,
        short,
        value_name = "N",
        default_value_t = LookRequest::CAPTURE_PACKETS,
        value_parser = count
    )]
    count: u64,
    /// End after this many bytes of packets
    #[arg(long, value_name = "N", default_value_t = LookRequest::BYTES, value_parser = bytes)]
    bytes: u64,
    /// Keep this many bytes of each packet
    #[arg(long, short, value_name = "N", default_value_t = LookRequest::SNAP, value_parser = snap)]
    snap: u32,
}

impl Capture {
    /// As the director is asked.
    pub fn request(self, filter: Option<Vec<[u32; 4]>>) -> LookRequest {
        let (packets, bytes, snap) = (Some(self.count), Some(self.bytes), Some(self.snap));
        LookRequest { packets, bytes, snap, ..self.packets.request(filter) }
    }
}
