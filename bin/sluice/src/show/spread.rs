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
        ]);
    }
    Shown::new(table.within(width))
}
