//! `sluice trace`: one packet after the other, a line for each decision.

use sluice_api::model::{LookEnd, LookRequest, PacketFate, TraceLine, TracedPacket};

use super::{BAD, NOTE, TITLE, styled};

/// Columns of a step's name.
const STEP: usize = 10;
const DAY_S: f64 = 86_400.0;

/// What is printed of a line: nothing of what is for the operator only.
pub fn trace(line: &TraceLine) -> String {
    match line {
        TraceLine::Packet(packet) => shown(packet),
        TraceLine::Watching { .. } | TraceLine::End(_) => String::new(),
    }
}

/// What the operator is told beside it.
pub fn trace_remark(line: &TraceLine, request: &LookRequest) -> Option<String> {
    match line {
        TraceLine::Packet(_) => None,
        TraceLine::Watching { workers } => {
            let packets = request.packets.unwrap_or(LookRequest::TRACE_PACKETS);
            let seconds = request.seconds.unwrap_or(LookRequest::SECONDS);
            let workers =
                if *workers == 1 { "1 worker".into() } else { format!("{workers} workers") };
            Some(format!(
                "{workers} will tell the next {packets} packets that fit, for {seconds} s; Ctrl-C \
                 ends it"
            ))
        }
        TraceLine::End(LookEnd { packets, lost, why }) => {
            let lost = if *lost == 0 { String::new() } else { format!(", {lost} lost") };
            let hint = match (packets, why.as_str()) {
                (0, "seconds") => "; nothing fitted (is it the kernel's? then tcpdump sees it)",
                _ => "",
            };
            Some(format!("{packets} told{lost}: {why} used up{hint}"))
        }
    }
}

fn shown(packet: &TracedPacket) -> String {
    let TracedPacket { number, at_unix_s, worker, packet: what, fate, steps, .. } = packet;
    let style = match fate {
        PacketFate::Sent => TITLE,
        PacketFate::Dropped => BAD,
        PacketFate::Answered | PacketFate::Kernel | PacketFate::HandedOff | PacketFate::Waits => {
            NOTE
        }
    };
    let second = at_unix_s % DAY_S;
    let (hours, minutes) = ((second / 3600.0) as u32, (second / 60.0) as u32 % 60);
    let head = format!("{number}  {what}");
    let when = format!("{hours:02}:{minutes:02}:{:09.6} UTC", second % 60.0);
    let mut text = format!("{}  worker {worker}, {when}\n", styled(TITLE, &head));
    for (at, step) in steps.iter().enumerate() {
        let name = format!("{:<STEP$}", step.step);
        let last = at + 1 == steps.len();
        let name = if last { styled(style, &name) } else { name };
        text.push_str(&format!("   {name} {}\n", step.text));
    }
    text.push('\n');
    text
}
