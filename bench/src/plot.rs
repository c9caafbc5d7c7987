//! Results as SVG, each figure beside what others have published or what was measured of them.

mod chart;
mod page;
mod published;
mod results;

use crate::args::Plot;
use crate::error::BenchError;
use crate::report::quantile;
use chart::{Bar, Bars, Lines, Series, Spread};
use published::{CONNECTIONS, ELEPHANT, MEMORY, MODES, SCALING, TIME_BY_SESSIONS};
use results::{Results, number, text};
use serde_json::Value;
use sluice_director::path::Stage;
use std::fs;

/// A plot's file, and how it is made: `None` where there is no result for it.
type Made = (&'static str, fn(&Results) -> Result<Option<String>, BenchError>);

const ALL: [Made; 9] = [
    ("time-by-sessions.svg", time_by_sessions),
    ("memory-by-sessions.svg", memory_by_sessions),
    ("time-by-stage.svg", time_by_stage),
    ("modes.svg", modes),
    ("connections.svg", connections),
    ("elephant.svg", elephant),
    ("scaling.svg", scaling),
    ("latency.svg", latency),
    ("churn.svg", churn),
];

/// Renders all plots that there are results for. Gives the files' names.
pub fn run(args: &Plot) -> Result<String, BenchError> {
    let results = Results::read(&args.results)?;
    let file = |what: &std::path::Path| {
        let what = what.display().to_string();
        move |source| BenchError::Machine { what, source }
    };
    fs::create_dir_all(&args.out).map_err(file(&args.out))?;
    let mut names = String::new();
    for (name, make) in ALL {
        let Some(svg) = make(&results)? else { continue };
        let path = args.out.join(name);
        fs::write(&path, svg).map_err(file(&path))?;
        names.push_str(&format!("{}\n", path.display()));
    }
    let parent = args.page.parent().unwrap_or(std::path::Path::new(""));
    let plots = args.out.strip_prefix(parent).unwrap_or(&args.out);
    fs::write(&args.page, page::page(&results, &plots.display().to_string()))
        .map_err(file(&args.page))?;
    names.push_str(&format!("{}\n", args.page.display()));
    Ok(names)
}

/// Nanoseconds for ticks of a result.
fn ns(result: &Value, ticks: f64) -> f64 {
    ticks / number(result, "tsc_ghz")
}

/// Where and how our part of a plot was measured.
fn ours(results: &[&Value]) -> Vec<String> {
    let Some(first) = results.first() else { return Vec::new() };
    let commands: Vec<_> = results.iter().map(|result| text(result, "command_line")).collect();
    let command = match commands.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("{} and {} more", several[0], several.len() - 1),
    };
    let tsc = number(first, "tsc_ghz");
    let cpu = text(&first["machine"], "cpu_model");
    vec![
        format!(
            "Sluice: {}; {cpu}, TSC {tsc:.2} GHz, commit {}.",
            text(first, "what"),
            text(first, "commit")
        ),
        format!("Command: {command}. Medians; thin lines: all runs."),
    ]
}

/// Rows of all results of a command, each with its result.
fn rows<'a>(results: &'a [&'a Value]) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    let of = |result: &'a Value| result["rows"].as_array().into_iter().flatten();
    results.iter().flat_map(move |result| of(result).map(move |row| (*result, row)))
}

/// The least and the greatest of a list of figures, each made something else of.
fn spread(of: &Value, name: &str, make: impl Fn(f64) -> f64) -> Spread {
    let figures: Vec<f64> = of[name].as_array()?.iter().filter_map(Value::as_f64).collect();
    let ends = [0.0, 1.0].map(|part| make(quantile(&figures, part)));
    (figures.len() > 1).then_some(ends)
}

/// A series for each family, of a figure and its runs in the rows of all results; `make` makes
/// what is shown of it.
fn by_family(results: &[&Value], name: &str, make: impl Fn(&Value, f64) -> f64) -> Vec<Series> {
    let runs = format!("{name}_runs");
    let of = |family: u64| {
        let here = rows(results).filter(|(_, row)| row["family"] == family);
        let points = here.map(|(result, row)| {
            let make = |figure| make(result, figure);
            (number(row, "sessions"), make(number(row, name)), spread(row, &runs, make))
        });
        let name = format!("Sluice fnat IPv{family}");
        Series::new(name, points.collect(), true)
    };
    [4, 6].map(of).into_iter().filter(|series| !series.points.is_empty()).collect()
}

fn time_by_sessions(results: &Results) -> Result<Option<String>, BenchError> {
    let all = results.of("memory");
    let mut series = by_family(&all, "cycles_per_packet", ns);
    if series.is_empty() {
        return Ok(None);
    }
    series.extend(TIME_BY_SESSIONS.iter().map(published::series));
    let mut notes = ours(&all);
    notes.extend(published::notes(&TIME_BY_SESSIONS));
    let lines = Lines {
        title: "Time a packet takes on one core, by open sessions",
        x: "sessions",
        y: "ns a packet",
        x_name: chart::short,
        series,
        notes,
    };
    lines.svg().map(Some)
}

fn memory_by_sessions(results: &Results) -> Result<Option<String>, BenchError> {
    let all = results.of("memory");
    let mut series = by_family(&all, "bytes_per_session", |_, bytes| bytes);
    if series.is_empty() {
        return Ok(None);
    }
    series.extend(MEMORY.iter().map(published::series));
    let mut notes = ours(&all);
    notes.extend(published::notes(&MEMORY));
    let lines = Lines {
        title: "Resident memory a session, all in",
        x: "sessions",
        y: "bytes a session",
        x_name: chart::short,
        series,
        notes,
    };
    lines.svg().map(Some)
}

/// Where the cycles of IPv4 packets go, beside what the two lines cost that each needs.
fn time_by_stage(results: &Results) -> Result<Option<String>, BenchError> {
    let all = results.of("memory");
    let here = || rows(&all).filter(|(_, row)| row["family"] == 4);
    let of = |name: &str, of: &dyn Fn(&Value) -> f64, ours: bool| {
        let points = here().map(|(_, row)| (number(row, "sessions"), of(row), None));
        Series::new(name.to_owned(), points.collect(), ours)
    };
    let stage = |stage: Stage| {
        let cycles = |row: &Value| number(&row["stage_cycles_per_packet"], stage.name());
        of(stage.name(), &cycles, true)
    };
    let mut series: Vec<_> = Stage::ALL.map(stage).into();
    // One worker has nothing of some, and of others too little to be seen.
    series.retain(|series| series.points.iter().any(|(_, cycles, _)| *cycles >= 0.5));
    if series.is_empty() {
        return Ok(None);
    }
    let floor = |row: &Value| 2.0 * number(row, "floor_cycles_per_line");
    series.push(of("two random lines by themselves", &floor, false));
    let lines = Lines {
        title: "Where the time goes, by open sessions: Full NAT, IPv4",
        x: "sessions",
        y: "TSC cycles a packet, means of timed bursts",
        x_name: chart::short,
        series,
        notes: ours(&all),
    };
    lines.svg().map(Some)
}

/// A plot of bars, ours first, with what was published behind.
fn bars(
    title: &str,
    (unit, digits): (&str, usize),
    mine: Vec<Bar>,
    published: &[published::Figure],
    results: &[&Value],
) -> Result<Option<String>, BenchError> {
    if mine.is_empty() {
        return Ok(None);
    }
    let others = published.iter().map(|figure| Bar {
        label: format!("{}: {}", figure.who, figure.of),
        value: figure.value,
        spread: None,
        ours: false,
    });
    let bars = mine.into_iter().chain(others).collect();
    let mut notes = ours(results);
    if !published.is_empty() {
        notes.push(published::ELSEWHERE.into());
    }
    Bars { title, unit, digits, bars, notes }.svg().map(Some)
}

fn modes(results: &Results) -> Result<Option<String>, BenchError> {
    let all = results.of("matrix");
    let cells = all.iter().flat_map(|result| result["cells"].as_array().into_iter().flatten());
    let alone = cells.filter(|cell| cell["workers"].as_u64().is_none_or(|workers| workers == 1));
    let plain = alone.filter(|cell| ["rr", "-"].contains(&text(cell, "scheduler")));
    let bar = |cell: &Value| Bar {
        label: format!("Sluice {} IPv{}", text(cell, "mode"), cell["family"]),
        value: number(cell, "mpps"),
        spread: spread(cell, "mpps_runs", |mpps| mpps),
        ours: true,
    };
    let mine = plain.map(bar).collect();
    bars("Packets on one core by mode, 1 M sessions", ("Mpps", 1), mine, &MODES, &all)
}

fn connections(results: &Results) -> Result<Option<String>, BenchError> {
    let all = results.of("cps");
    let bar = |result: &&Value| Bar {
        label: format!("Sluice {} IPv{}", text(result, "mode"), result["family"]),
        value: number(result, "connections_per_s") / 1e6,
        spread: None,
        ours: true,
    };
    let mine = all.iter().map(bar).collect();
    let title = "TCP connections a second on one core, opened to deleted";
    bars(title, ("M/s", 2), mine, &CONNECTIONS, &all)
}

fn elephant(results: &Results) -> Result<Option<String>, BenchError> {
    let all = results.of("elephant");
    let bar = |(_, row): (&Value, &Value)| Bar {
        label: format!("Sluice, one worker: share {}", number(row, "share")),
        value: number(row, "mpps"),
        spread: spread(row, "mpps_runs", |mpps| mpps),
        ours: true,
    };
    let mine = rows(&all).map(bar).collect();
    let title = "Packets when one flow has a share of them all";
    bars(title, ("Mpps", 1), mine, &ELEPHANT, &all)
}

fn scaling(results: &Results) -> Result<Option<String>, BenchError> {
    let all = results.of("scaling");
    let bar = |(_, row): (&Value, &Value)| {
        let (workers, handed) = (&row["workers"], number(row, "handed_over_share_of_all") * 100.0);
        let handed = match row["hand_off_cycles"].as_f64() {
            Some(cycles) => format!(", {handed} % handed over ({cycles:.0} cycles each)"),
            None => String::new(),
        };
        let ratio = number(row, "ratio_to_one");
        Bar {
            label: format!("Sluice, workers: {workers}{handed} ({ratio:.2}×)"),
            value: number(row, "mpps"),
            spread: spread(row, "mpps_runs", |mpps| mpps),
            ours: true,
        }
    };
    let mine = rows(&all).map(bar).collect();
    bars("Packets by workers", ("Mpps", 1), mine, &SCALING, &all)
}

fn latency(results: &Results) -> Result<Option<String>, BenchError> {
    let all = results.of("latency");
    let loads = all.iter().flat_map(|result| result["loads"].as_array().into_iter().flatten());
    let points = |load: &Value, quiet: &str| {
        [("p50", 2.0), ("p90", 10.0), ("p99", 100.0), ("p99_9", 1e3), ("p99_99", 1e4)]
            .map(|(name, x)| {
                let name = format!("{quiet}{name}_ns");
                let runs = spread(load, &format!("{name}_runs"), |ns| ns / 1e3);
                (x, number(load, &name) / 1e3, runs)
            })
            .to_vec()
    };
    let series = |load: &Value| {
        let (share, mpps) = (number(load, "load") * 100.0, number(load, "mpps"));
        [("", "all rounds"), ("quiet_", "quiet")].map(|(quiet, which)| {
            let name = format!("{share:.0} %, {mpps:.1} Mpps, {which}");
            Series::new(name, points(load, quiet), quiet.is_empty())
        })
    };
    let series: Vec<_> = loads.filter(|load| load["load"].is_f64()).flat_map(series).collect();
    if series.is_empty() {
        return Ok(None);
    }
    let mut notes = ours(&all);
    notes.push("Load: share of the highest rate that the same loop keeps up.".into());
    notes.push("From the moment on the schedule (open loop) until it is sent.".into());
    notes.push("Quiet: rounds in which the kernel ran nothing else on the worker's core.".into());
    notes.push("Others have published nothing that compares.".into());
    let lines = Lines {
        title: "Time of a frame in the worker's loop",
        x: "percentile",
        y: "µs",
        x_name: chart::percentile,
        series,
        notes,
    };
    lines.svg().map(Some)
}

fn churn(results: &Results) -> Result<Option<String>, BenchError> {
    let all = results.of("churn");
    let pair = |result: &&Value| {
        let rate = chart::short(number(result, "came_per_s_uninterrupted"));
        let loss = number(result, "established_loss") * 100.0;
        let of = |side: &str, label: String| Bar {
            label,
            value: number(&result[side], "established_mpps"),
            spread: None,
            ours: true,
        };
        [
            of("without", "Sluice, established traffic alone".into()),
            of("with", format!("Sluice, {rate} sessions a second open and end (−{loss:.0} %)")),
        ]
    };
    let mine = all.iter().flat_map(pair).collect();
    let title = "Established traffic beside sessions that open and end";
    bars(title, ("Mpps", 1), mine, &[], &all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn about(command: &str) -> Value {
        json!({"command": command, "command_line": format!("sluice-bench {command}"),
               "tsc_ghz": 2.0, "what": "in memory", "commit": "c0ffee",
               "machine": {"cpu_model": "Some <CPU>"}})
    }

    #[test]
    fn every_plot_names_its_command_and_the_others() {
        let with = |command: &str, more: Value| crate::runs::merge([about(command), more]);
        let results = Results(vec![
            with(
                "memory",
                json!({"rows": [
                {"family": 4, "sessions": 10_000, "cycles_per_packet": 80, "bytes_per_session": 60,
                 "stage_cycles_per_packet": {"parse": 20, "track": 40},
                 "floor_cycles_per_line": 5},
                {"family": 4, "sessions": 1_000_000, "cycles_per_packet": 90,
                 "bytes_per_session": 51}]}),
            ),
            with(
                "matrix",
                json!({"cells": [
                {"mode": "dr", "family": 6, "scheduler": "rr", "mpps": 12.5},
                {"mode": "dr", "family": 6, "scheduler": "mh", "mpps": 77}]}),
            ),
            with("cps", json!({"mode": "nat", "family": 4, "connections_per_s": 1.5e6})),
            with("elephant", json!({"rows": [{"share": 0.5, "mpps": 30}]})),
            with(
                "scaling",
                json!({"rows": [{"workers": 2, "ratio_to_one": 1.9, "mpps": 50,
                "handed_over_share_of_all": 0.05, "hand_off_cycles": 44}]}),
            ),
            with(
                "latency",
                json!({"loads": [{"load": null}, {"load": 0.5, "mpps": 10,
                "quiet_p50_ns": 900, "p50_ns": 1000, "p90_ns": 2000, "p99_ns": 3000,
                "p99_9_ns": 4000, "p99_99_ns": 5000}]}),
            ),
            with(
                "churn",
                json!({"came_per_s_uninterrupted": 1e6, "established_loss": 0.1,
                "without": {"established_mpps": 20}, "with": {"established_mpps": 18}}),
            ),
        ]);
        for ((name, make), expected) in ALL.into_iter().zip([
            "VPP",
            "Katran",
            "two random lines",
            "Sluice dr IPv6",
            "HDSLB",
            "DLB",
            "44 cycles",
            "99.9",
            "−10 %",
        ]) {
            let svg = make(&results).unwrap().unwrap_or_else(|| panic!("{name}"));
            assert!(svg.starts_with("<svg") && svg.contains(expected), "{name}: {svg}");
            assert!(svg.contains("Command: sluice-bench"), "{name}");
            assert!(svg.contains("Some &lt;CPU&gt;"), "{name}");
            assert!(!svg.contains("77.0 Mpps") && !svg.contains("NaN"), "{name}: {svg}");
            assert!(make(&Results(Vec::new())).unwrap().is_none(), "{name} of nothing");
        }
    }
}
