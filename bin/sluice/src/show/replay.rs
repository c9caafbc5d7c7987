//! `sluice replay`: what came of it, in short.

use std::path::Path;

use sluice::replay::{Balanced, Report, RulesReport, ServiceReport, Summary};
use sluice_api::model::{Drop, Drops};
use sluice_director::Reason;

use super::balance::{endpoint, real_port};
use super::figures::{count, traffic};
use super::table::{Align, Cell, Table};
use super::{Shown, reasons};

/// A summary of a replay whose output is in `out_dir`.
pub fn replay(summary: &Summary, out_dir: &Path, width: Option<usize>) -> Shown {
    let report = &summary.report;
    let mut parts = vec![ports(report, out_dir)];
    if !report.services.is_empty() {
        parts.push(services(&report.services));
    }
    parts.extend(summary.rules.iter().map(rules));
    let sessions = &report.sessions;
    parts.push(format!(
        "{} sessions opened, {} closed, {} expired, {} open at the end\n",
        count(sessions.created),
        count(sessions.closed),
        count(sessions.expired),
        count(sessions.live)
    ));
    parts.push(reasons::drops(&drops(report), false, width).text);
    parts.retain(|part| !part.is_empty());
    let counters = out_dir.join("counters.json");
    let text = format!("{}\nAll counters are in {}.\n", parts.join("\n"), counters.display());
    let cut = summary.cut;
    let remark = (cut > 0).then(|| {
        let cut = count(cut);
        format!("{cut} packets are cut short in the captures: capture whole ones (tcpdump -s 0)")
    });
    Shown { text, remark }
}

fn ports(report: &Report, out_dir: &Path) -> String {
    use Align::{Left, Right};
    let mut table =
        Table::new([("PORT", Left), ("RECEIVED", Right), ("SENT", Right), ("FILE", Left)]);
    for port in &report.ports {
        let file = out_dir.join(format!("{}.pcap", port.name));
        table.row([
            port.name.as_str().into(),
            count(port.received).into(),
            count(port.sent).into(),
            file.display().to_string().into(),
        ]);
    }
    table.text()
}

/// Packets by the rule that takes them; rules that took none are only counted.
fn rules(report: &RulesReport) -> String {
    use Align::{Left, Right};
    let mut table =
        Table::new([("RULE", Left), ("MATCHES", Left), ("PORT", Left), ("PACKETS", Right)]);
    for rule in &report.rules {
        let inside = |name: &String| format!("{} (network {name})", rule.matches);
        let matches = rule.network.as_ref().map_or_else(|| rule.matches.clone(), inside);
        for (port, hits) in &rule.hits {
            let cells = [rule.kind.into(), matches.as_str().into(), port.as_str().into()];
            let [kind, matches, port] = cells;
            table.row([kind, matches, port, count(*hits).into()]);
        }
    }
    for (port, hits) in &report.unmatched {
        table.row(["-".into(), "no rule".into(), port.as_str().into(), count(*hits).into()]);
    }
    let idle = report.rules.iter().filter(|rule| rule.hits.is_empty()).count();
    let idle = format!("{} of {} rules took no packet\n", idle, report.rules.len());
    table.text() + &idle
}

fn services(services: &[ServiceReport]) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("SERVICE", Left),
        ("REAL", Left),
        ("SESSIONS", Right),
        ("PACKETS IN", Right),
        ("PACKETS OUT", Right),
        ("BYTES IN", Right),
        ("BYTES OUT", Right),
    ]);
    for service in services {
        table.row(with_counts(&service.name, String::new(), &service.counted));
        for real in &service.reals {
            let port = real_port(real.port);
            let at = match real.address.parse() {
                Ok(address) => endpoint(address, port),
                Err(_) => format!("{}:{port}", real.address),
            };
            table.row(with_counts("", at, &real.counted));
        }
    }
    table.text()
}

fn with_counts(service: &str, real: String, counted: &Balanced) -> [Cell; 7] {
    let Balanced { sessions, packets, bytes, .. } = counted;
    [
        service.into(),
        real.into(),
        count(*sessions).into(),
        count(packets.inbound).into(),
        count(packets.outbound).into(),
        traffic(bytes.inbound).into(),
        traffic(bytes.outbound).into(),
    ]
}

/// The report's reasons with what they mean.
fn drops(report: &Report) -> Drops {
    let counted = |reason: &Reason| {
        let packets = report.reasons.get(reason.name())?.as_u64()?;
        Some(Drop {
            reason: reason.name().to_owned(),
            fate: reason.fate().into(),
            packets,
            meaning: reason.text().to_owned(),
        })
    };
    Drops { drops: Reason::ALL.iter().filter_map(counted).collect() }
}
