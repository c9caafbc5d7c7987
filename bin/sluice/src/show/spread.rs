//! Flows that several workers process.

use sluice_api::model::{FlowLoad, SpreadFlow};

use super::figures::{bits, count, percent};
use super::table::{Align, Table};
use super::{NOTE, Shown, styled};

/// The flows that several workers process.
pub fn spread(flows: &[SpreadFlow], width: Option<usize>) -> Shown {
    use Align::{Left, Right};
    if flows.is_empty() {
        let remark = Some(styled(NOTE, "no flow is spread over several workers"));
        return Shown { text: String::new(), remark };
    }
    let mut table = Table::new([
        ("SPREAD", Left),
        ("CLIENT", Left),
        ("VIRTUAL", Left),
        ("DIRECTION", Left),
        ("OWNER", Right),
        ("HELPERS", Left),
        ("BY", Left),
        ("FOR", Right),
        ("PACKETS/S BEFORE", Right),
        ("PACKETS/S NOW", Right),
        ("BITS/S BEFORE", Right),
        ("BITS/S NOW", Right),
        ("OWNER BUSY BEFORE", Right),
        ("OWNER BUSY NOW", Right),
        ("DEALT", Right),
        ("OWN", Right),
        ("KEPT", Right),
        ("LATE", Right),
        ("REDIRECT", Left),
    ]);
    for flow in flows {
        let helpers: Vec<String> = flow.helpers.iter().map(u16::to_string).collect();
        let [before, now] = [flow.before, flow.now].map(load);
        table.row([
            flow.protocol.name().into(),
            flow.client.to_string().into(),
            flow.virtual_.to_string().into(),
            flow.direction.name().into(),
            flow.worker.to_string().into(),
            helpers.join(",").into(),
            if flow.pinned { "operator" } else { "policy" }.into(),
            format!("{:.0} s", flow.for_s).into(),
            before[0].as_str().into(),
            now[0].as_str().into(),
            before[1].as_str().into(),
            now[1].as_str().into(),
            before[2].as_str().into(),
            now[2].as_str().into(),
            count(flow.dealt).into(),
            count(flow.own).into(),
            count(flow.kept).into(),
            count(flow.late).into(),
            match &flow.redirect_reason {
                Some(why) => format!("{} ({why})", flow.redirect.name()),
                None => flow.redirect.name().to_owned(),
            }
            .into(),
        ]);
    }
    Shown::new(table.within(width))
}

/// Packets and bits a second, and how busy the owner is.
fn load(load: Option<FlowLoad>) -> [String; 3] {
    let known = |FlowLoad { packets_per_s, bytes_per_s, owner_busy_share }| {
        [count(packets_per_s), bits(bytes_per_s), percent(owner_busy_share)]
    };
    load.map_or_else(|| ["-"; 3].map(str::to_owned), known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::model::{FlowDirection, Protocol, Redirect};

    fn flow(port: u16, redirect: Redirect, redirect_reason: Option<&str>) -> SpreadFlow {
        SpreadFlow {
            protocol: Protocol::Udp,
            client: ([203, 0, 113, 9], port).into(),
            virtual_: ([198, 51, 100, 200], 53).into(),
            direction: FlowDirection::Inbound,
            network: None,
            worker: 1,
            helpers: vec![0, 2],
            pinned: true,
            for_s: 7.0,
            dealt: 1000,
            own: 1,
            kept: 2,
            late: 3,
            before: None,
            now: None,
            redirect,
            redirect_reason: redirect_reason.map(str::to_owned),
        }
    }

    #[test]
    fn a_flow_says_what_brings_it_to_its_owner() {
        let why = "not needed: one queue";
        let flows = [flow(1, Redirect::Hardware, None), flow(2, Redirect::Software, Some(why))];
        let shown = anstream::adapter::strip_str(&spread(&flows, None).text).to_string();
        let lines: Vec<&str> = shown.lines().map(str::trim_end).collect();
        assert!(lines[0].ends_with("REDIRECT"), "{shown}");
        assert!(lines[1].ends_with(" hardware"), "{shown}");
        assert!(lines[2].ends_with(" software (not needed: one queue)"), "{shown}");
    }

    /// What it came to before, and what it comes to.
    #[test]
    fn a_flow_says_what_was_gained() {
        let load = |packets_per_s, bytes_per_s, owner_busy_share| {
            Some(FlowLoad { packets_per_s, bytes_per_s, owner_busy_share })
        };
        let known = SpreadFlow {
            before: load(1_000_000, 125_000_000, 1.0),
            now: load(2_500_000, 312_500_000, 0.5),
            ..flow(1, Redirect::Hardware, None)
        };
        let flows = [known, flow(2, Redirect::Hardware, None)];
        let shown = anstream::adapter::strip_str(&spread(&flows, None).text).to_string();
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect())
            .collect();
        let at = lines[0].iter().position(|title| *title == "PACKETS/S BEFORE").expect("a column");
        let of = |line: usize| lines[line][at..at + 6].to_vec();
        let known = ["1,000,000", "2,500,000", "1.0 Gbit/s", "2.5 Gbit/s", "100.0 %", "50.0 %"];
        assert_eq!(of(1), known, "{shown}");
        assert_eq!(of(2), ["-"; 6], "{shown}");
    }
}
