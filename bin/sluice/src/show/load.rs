//! `sluice stages` and `sluice elephants`.

use sluice_api::model::{Elephants, Rate, Stages, WorkerStages};

use super::figures::{bits, count, percent, percent_of};
use super::table::{Align, Table};
use super::{NOTE, Shown, styled};

/// What the workers did between two answers, `seconds` apart.
pub fn stages(before: &Stages, after: &Stages, seconds: f64) -> Shown {
    let between: Vec<_> = after
        .workers
        .iter()
        .filter_map(|worker| {
            let earlier = before.workers.iter().find(|one| one.worker == worker.worker)?;
            Some(difference(earlier, worker))
        })
        .collect();
    let mut text = summary(&between, seconds);
    let timed = between.iter().any(|worker| worker.timed_packets > 0);
    if timed {
        text.push('\n');
        text.push_str(&costs(&between, after.ticks_per_s));
    }
    let remark = (!timed).then(|| {
        "no burst was timed: there was little traffic, or none; --interval looks longer".to_owned()
    });
    Shown { text, remark }
}

/// What was counted between two answers; a director that was restarted meanwhile counts afresh.
pub(crate) fn difference(before: &WorkerStages, after: &WorkerStages) -> WorkerStages {
    let stages = after.stages.iter().enumerate().map(|(at, stage)| {
        let mut stage = stage.clone();
        let earlier = before.stages.get(at).map_or(0, |stage| stage.ticks);
        stage.ticks = stage.ticks.saturating_sub(earlier);
        stage
    });
    WorkerStages {
        worker: after.worker,
        core: after.core,
        packets: after.packets.saturating_sub(before.packets),
        bursts: after.bursts.saturating_sub(before.bursts),
        timed_packets: after.timed_packets.saturating_sub(before.timed_packets),
        timed_bursts: after.timed_bursts.saturating_sub(before.timed_bursts),
        looked_up: after.looked_up.saturating_sub(before.looked_up),
        found: after.found.saturating_sub(before.found),
        stages: stages.collect(),
    }
}

fn summary(workers: &[WorkerStages], seconds: f64) -> String {
    use Align::Right;
    let mut table = Table::new([
        ("WORKER", Right),
        ("CORE", Right),
        ("PACKETS/S", Right),
        ("BURST FILL", Right),
        ("TIMED", Right),
        ("HIT RATE", Right),
    ]);
    for worker in workers {
        let fill = match worker.bursts {
            0 => "-".to_owned(),
            bursts => format!("{:.1}", ratio(worker.packets, bursts)),
        };
        let hits = match worker.looked_up {
            0 => "-".to_owned(),
            all => percent_of(worker.found, all),
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
        let per_s = (ratio(worker.packets, 1) / seconds).round() as u64;
        table.row([
            worker.worker.to_string().into(),
            worker.core.to_string().into(),
            count(per_s).into(),
            fill.into(),
            count(worker.timed_packets).into(),
            hits.into(),
        ]);
    }
    table.text()
}

/// One row a stage of each worker that timed any, and their sum.
fn costs(workers: &[WorkerStages], ticks_per_s: u64) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("WORKER", Right),
        ("STAGE", Left),
        ("CYCLES A PACKET", Right),
        ("NS", Right),
        ("SHARE", Right),
    ]);
    for worker in workers.iter().filter(|worker| worker.timed_packets > 0) {
        let all: u64 = worker.stages.iter().map(|stage| stage.ticks).sum();
        let cost = |name: &str, ticks: u64| {
            let cycles = ratio(ticks, worker.timed_packets);
            let ns = match ticks_per_s {
                0 => "-".to_owned(),
                hz => format!("{:.1}", cycles * 1e9 / ratio(hz, 1)),
            };
            [
                worker.worker.to_string().into(),
                name.into(),
                format!("{cycles:.1}").into(),
                ns.into(),
                percent(ratio(ticks, all)).into(),
            ]
        };
        // What a worker has nothing of is no stage of its bursts.
        for stage in worker.stages.iter().filter(|stage| stage.ticks > 0) {
            table.row(cost(&stage.stage.replace('_', " "), stage.ticks));
        }
        table.row(cost("all", all));
    }
    table.text()
}

#[allow(clippy::cast_precision_loss)] // some digits are shown
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// The sessions with the most traffic.
pub fn elephants(elephants: &Elephants, width: Option<usize>) -> Shown {
    use Align::{Left, Name, Right};
    let mut table = Table::new([
        ("PROTOCOL", Left),
        ("CLIENT", Left),
        ("VIRTUAL", Left),
        ("REAL", Left),
        ("PACKETS/S IN", Right),
        ("BITS/S IN", Right),
        ("PACKETS/S OUT", Right),
        ("BITS/S OUT", Right),
        ("ERROR", Right),
        ("WORKER", Right),
        ("SERVICE", Name),
    ]);
    let of = |rate: Rate| (count(rate.packets_per_s), bits(rate.bytes_per_s));
    for elephant in &elephants.elephants {
        let session = &elephant.session;
        let (inbound, outbound) = (of(elephant.inbound), of(elephant.outbound));
        let error = 1.0 / f64::from(elephant.samples.max(1)).sqrt();
        table.row([
            session.protocol.name().into(),
            session.client.to_string().into(),
            session.virtual_.to_string().into(),
            session.real.to_string().into(),
            inbound.0.into(),
            inbound.1.into(),
            outbound.0.into(),
            outbound.1.into(),
            format!("±{}", percent(error)).into(),
            session.worker.to_string().into(),
            session.service.as_str().into(),
        ]);
    }
    let mut shown = match elephants.elephants.is_empty() {
        true => Shown {
            text: String::new(),
            remark: Some(styled(NOTE, "no session had much traffic in the last second")),
        },
        false => Shown::new(table.within(width)),
    };
    if !elephants.spread.is_empty() {
        let apart = if shown.text.is_empty() { "" } else { "\n" };
        shown.text = shown.text + apart + &super::spread(&elephants.spread, width).text;
    }
    shown
}
