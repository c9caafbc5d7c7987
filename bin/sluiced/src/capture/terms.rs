//! A request for a trace or a capture, checked: names become ids, numbers are in their ranges, and
//! the filter is a program that ends.

use super::names::Names;
use sluice_api::Endpoint;
use sluice_api::model::{LookKind, LookRequest, Way};
use sluice_director::Reason;
use sluice_director::fib::PortId;
use sluice_director::filter::{Instruction, Program};
use sluice_director::plan::ServiceId;
use sluice_director::reason::Fate;
use sluice_state::FieldFault;
use sluice_worker::capture_point::{Form, Limits, Terms};
use std::fmt::Display;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// For all reasons that drop a packet.
const DROPPED: &str = "dropped";
/// Names that a message lists before it says how many more there are.
const LISTED: usize = 20;
/// What one worker may be ahead of the reader, of a trace and of a capture.
const TRACE_RING: (usize, usize) = (1024, 1 << 20);
const CAPTURE_RING: (usize, usize) = (8192, 8 << 20);

/// A request that was checked.
pub struct Asked {
    pub terms: Terms,
    pub limits: Limits,
}

/// Checks a request; says of everything that is wrong what would be right.
pub fn read(
    kind: LookKind,
    request: &LookRequest,
    names: &Names,
) -> Result<Asked, Vec<FieldFault>> {
    let mut faults = Faults(Vec::new());
    let packets = match kind {
        LookKind::Trace => LookRequest::TRACE_PACKETS,
        LookKind::Capture => LookRequest::CAPTURE_PACKETS,
    };
    let (ring_packets, ring_bytes) = match kind {
        LookKind::Trace => TRACE_RING,
        LookKind::Capture => CAPTURE_RING,
    };
    let limits = Limits {
        packets: faults.number("packets", request.packets, packets, LookRequest::MAX_PACKETS),
        bytes: faults.number("bytes", request.bytes, LookRequest::BYTES, LookRequest::MAX_BYTES),
        ring_packets,
        ring_bytes,
    };
    let snap = request.snap.map(u64::from);
    let snap = faults.number("snap", snap, LookRequest::SNAP.into(), LookRequest::MAX_SNAP.into());
    let terms = Terms {
        program: faults.program(request.filter.as_deref()),
        service: faults.service(request.service.as_deref(), names),
        real: faults.real(request.real.as_deref()),
        port: faults.port(request.port.as_deref(), names),
        reasons: faults.reasons(&request.reasons),
        form: request.direction.map(|way| match way {
            Way::In => Form::Received,
            Way::Out => Form::Sent,
        }),
        kernels: kind == LookKind::Capture,
        snap: snap as usize,
        until: Instant::now() + faults.seconds(request.seconds),
    };
    if faults.0.is_empty() { Ok(Asked { terms, limits }) } else { Err(faults.0) }
}

struct Faults(Vec<FieldFault>);

impl Faults {
    fn add(&mut self, field: &str, found: impl Display, hint: impl Into<String>) {
        let (pointer, detail) = (format!("/{field}"), found.to_string());
        self.0.push(FieldFault { pointer, detail, hint: hint.into() });
    }

    fn number(&mut self, field: &str, asked: Option<u64>, usual: u64, most: u64) -> u64 {
        let number = asked.unwrap_or(usual);
        if !(1..=most).contains(&number) {
            let hint = format!("a number from 1 to {most} would be right");
            self.add(field, format!("{number} will not do"), hint);
        }
        number
    }

    fn seconds(&mut self, asked: Option<f64>) -> Duration {
        let (seconds, most) = (asked.unwrap_or(LookRequest::SECONDS), LookRequest::MAX_SECONDS);
        if !(0.1..=most).contains(&seconds) {
            let hint = format!("a number from 0.1 to {most} would be right");
            self.add("seconds", format!("{seconds} will not do"), hint);
            return Duration::ZERO;
        }
        Duration::from_secs_f64(seconds)
    }

    fn program(&mut self, asked: Option<&[[u32; 4]]>) -> Option<Program> {
        let mut instructions = Vec::new();
        for (at, [code, jt, jf, k]) in asked?.iter().enumerate() {
            let read = (u16::try_from(*code), u8::try_from(*jt), u8::try_from(*jf));
            let (Ok(code), Ok(jt), Ok(jf)) = read else {
                let hint = "a code has 16 bits, a jump 8; `tcpdump -ddd` prints such programs";
                self.add(&format!("filter/{at}"), "a number is too large", hint);
                return None;
            };
            instructions.push(Instruction { code, jt, jf, k: *k });
        }
        match Program::new(&instructions) {
            Ok(program) => Some(program),
            Err(wrong) => {
                let hint = "send what `tcpdump -ddd` prints, without its first line";
                self.add("filter", wrong, hint);
                None
            }
        }
    }

    fn service(&mut self, asked: Option<&str>, names: &Names) -> Option<ServiceId> {
        let name = asked?;
        let found = names.service_id(name);
        if found.is_none() {
            self.unknown("service", name, &names.services());
        }
        found
    }

    fn port(&mut self, asked: Option<&str>, names: &Names) -> Option<PortId> {
        let name = asked?;
        let at = names.ports.iter().position(|(known, _)| known == name);
        if at.is_none() {
            let known: Vec<_> = names.ports.iter().map(|(name, _)| name.clone()).collect();
            self.unknown("port", name, &known);
        }
        at.map(|at| PortId(at as u16))
    }

    fn real(&mut self, asked: Option<&str>) -> Option<(IpAddr, Option<u16>)> {
        match asked?.parse::<Endpoint>() {
            Ok(endpoint) => Some((endpoint.address, endpoint.port)),
            Err(wrong) => {
                let hint = format!("right would be {}", wrong.expected);
                self.add("real", format!("{:?} is no endpoint", wrong.found), hint);
                None
            }
        }
    }

    fn reasons(&mut self, asked: &[String]) -> Vec<Reason> {
        let mut wanted = Vec::new();
        for name in asked {
            let of = |reason: &&Reason| {
                reason.name() == name || (name == DROPPED && reason.fate() == Fate::Dropped)
            };
            let before = wanted.len();
            wanted.extend(Reason::ALL.iter().filter(of));
            if wanted.len() == before {
                let hint = format!(
                    "`{DROPPED}` means all that drop; `sluice drops --all` lists the others"
                );
                self.add("reasons", format!("there is no reason {name:?}"), hint);
            }
        }
        wanted
    }

    fn unknown(&mut self, field: &str, name: &str, known: &[String]) {
        let listed = known.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
        let hint = match known.len() {
            0 => "there is none configured".to_owned(),
            count if count > LISTED => format!("there is {listed} and {} more", count - LISTED),
            _ => format!("there is {listed}"),
        };
        self.add(field, format!("there is no {field} {name:?}"), hint);
    }
}
