//! Flows that several workers process.

use sluice_api::model::SpreadFlow;

use super::figures::count;
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
        ("DEALT", Right),
        ("OWN", Right),
        ("KEPT", Right),
        ("LATE", Right),
        ("REDIRECT", Left),
    ]);
    for flow in flows {
        let helpers: Vec<String> = flow.helpers.iter().map(u16::to_string).collect();
        table.row([
            flow.protocol.name().into(),
            flow.client.to_string().into(),
            flow.virtual_.to_string().into(),
            flow.direction.name().into(),
            flow.worker.to_string().into(),
            helpers.join(",").into(),
            if flow.pinned { "operator" } else { "policy" }.into(),
            format!("{:.0} s", flow.for_s).into(),
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
}
