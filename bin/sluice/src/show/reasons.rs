//! `sluice drops`.

use sluice_api::model::{Drops, Fate};

use super::Shown;
use super::figures::count;
use super::table::{Align, Table};

/// Reasons, the most frequent first; those that never happened only if `all`. Explanations are
/// broken to fit `width` columns.
pub fn drops(drops: &Drops, all: bool, width: Option<usize>) -> Shown {
    let mut reasons: Vec<_> =
        drops.drops.iter().filter(|reason| all || reason.packets > 0).collect();
    // Stable: equals stay in the director's order.
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.packets));
    let mut table = Table::new([
        ("REASON", Align::Left),
        ("PACKETS", Align::Right),
        ("FATE", Align::Left),
        ("MEANING", Align::Left),
    ]);
    for reason in &reasons {
        let fate = match reason.fate {
            Fate::Dropped => "dropped",
            Fate::Kernel => "to kernel",
        };
        table.row([
            reason.reason.as_str().into(),
            count(reason.packets).into(),
            fate.into(),
            reason.meaning.as_str().into(),
        ]);
    }
    if reasons.is_empty() {
        let remark = "nothing was dropped or handed to the kernel; see all reasons with --all";
        return Shown { text: String::new(), remark: Some(remark.to_owned()) };
    }
    Shown::new(table.flowing(width))
}
