//! `sluice config`, `service` and `pool`: the desired state, changes of it, its history.

use sluice_api::model::{Changed, HistoryPage};
use sluice_config::document::{Document, to_toml};
use sluice_state::{Change, Epoch, Kind, Override, View};

use super::Shown;
use crate::advice::Reached;

use super::figures::span;
use super::table::{Align, Table};

/// The desired state as a file would have it; with who owns what, if that is wanted.
pub fn config(view: &View, origin: bool, reached: &Reached) -> Shown {
    let remark = |section: &str, table: &Document| {
        let kind = Kind::NAMED.into_iter().find(|kind| kind.name() == section);
        let name = table.get("name").and_then(|name| name.as_str());
        let entry = view.objects.iter().find(|entry| match kind {
            Some(kind) => entry.key.kind == kind && name == Some(&entry.key.name),
            None => entry.key.kind == Kind::Section && entry.key.name == section,
        })?;
        let mut lines: Vec<String> =
            origin.then(|| format!("owner: {}", entry.owner)).into_iter().collect();
        for placed in &entry.overrides {
            lines.push(format!("override of {}: {}", placed.real, said(&placed.over)));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    };
    let text = to_toml(&view.document(), &remark);
    let mut remarks = Vec::new();
    if view.differs_from_file {
        let command = reached.sluice("config diff FILE");
        remarks.push(format!(
            "this is not what the file says: `{command}` tells, a reload uses the file"
        ));
    }
    if !view.durable {
        let text = "changes made at run time do not survive a restart: state_dir cannot be used";
        remarks.push(text.to_owned());
    }
    Shown { text, remark: (!remarks.is_empty()).then(|| remarks.join("\n")) }
}

/// An override in words.
pub(super) fn said(over: &Override) -> String {
    let weight = over.weight.map(|weight| format!("weight {weight}"));
    let state = over.state.map(|state| state.name().to_owned());
    weight.into_iter().chain(state).collect::<Vec<_>>().join(", ")
}

/// The last epochs.
pub fn history(page: &HistoryPage, now_unix_s: u64) -> Shown {
    use Align::{Left, Right};
    let mut table =
        Table::new([("EPOCH", Right), ("AGO", Right), ("AUTHOR", Left), ("CHANGE", Left)]);
    for line in &page.epochs {
        table.row([
            line.epoch.to_string().into(),
            ago(line.at_unix_ms, now_unix_s).into(),
            line.author.to_string().into(),
            line.summary.as_str().into(),
        ]);
    }
    let remark = format!(
        "epoch {} is in force; one can go back as far as {}",
        page.epoch, page.reaches_back_to
    );
    Shown { text: table.text(), remark: Some(remark) }
}

fn ago(at_unix_ms: u64, now_unix_s: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // seconds of an age
    span(now_unix_s.saturating_sub(at_unix_ms / 1000) as f64)
}

/// One epoch in full.
pub fn epoch(epoch: &Epoch, now_unix_s: u64) -> Shown {
    let head = format!(
        "epoch {}, {} ago, by {}: {}\n",
        epoch.epoch,
        ago(epoch.at_unix_ms, now_unix_s),
        epoch.author,
        epoch.summary
    );
    Shown::new(head + &lines(&epoch.changes))
}

/// What a change did, or would do.
pub fn changed(changed: &Changed) -> Shown {
    let Changed { epoch, dry_run, durable, changes, .. } = changed;
    let head = match (changes.is_empty(), dry_run) {
        (true, _) => return Shown::new(format!("nothing to change (epoch {epoch})\n")),
        (false, true) => "would change:\n".to_owned(),
        (false, false) => format!("epoch {epoch}:\n"),
    };
    let forgotten = !durable && !dry_run;
    Shown {
        text: head + &lines(changes),
        remark: forgotten.then(|| "this does not survive a restart".to_owned()),
    }
}

/// What a reload would change.
pub fn diff(changes: &[Change]) -> Shown {
    match changes.is_empty() {
        true => Shown::new("no difference\n".to_owned()),
        false => Shown::new(lines(changes)),
    }
}

fn lines(changes: &[Change]) -> String {
    changes.iter().flat_map(Change::lines).map(|line| format!("  {line}\n")).collect()
}
