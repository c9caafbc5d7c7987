//! From two samples to what is shown: rates where something counts, states where it does not.
//!
//! Counters that went back are those of a director that was restarted: there is no rate then, and
//! it is not guessed.

use std::collections::HashMap;
use std::time::Duration;

use sluice_api::model::{Balanced, Fate, PortState, Real, RealState, Service, WorkerStages};

use super::grid::{Cell, Grid, Tone, short};
use super::sample::Sample;
use crate::show::{endpoint, percent, percent_of, real_port, span};

/// The views, in the order of their keys.
pub const VIEWS: [&str; 6] = ["Services", "Real servers", "Workers", "Drops", "Elephants", "Ports"];

/// Everything that can be shown of a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Board {
    /// The director, in a line.
    pub title: String,
    /// Its rates, in a line.
    pub summary: String,
    /// Sessions and memory, in a line.
    pub sessions: String,
    /// One for each of [`VIEWS`].
    pub grids: Vec<Grid>,
    /// What lies below a row, by view and key: more rows, or words.
    pub details: HashMap<(usize, String), Vec<(String, String)>>,
}

/// What was counted in a span.
struct Span<'s> {
    before: Option<&'s Sample>,
    now: &'s Sample,
    seconds: f64,
}

impl Span<'_> {
    /// A rate of a counter; `None` when it cannot be known.
    fn rate(&self, before: Option<u64>, now: u64) -> Option<f64> {
        #[allow(clippy::cast_precision_loss)] // three digits are shown
        let counted = now.checked_sub(before?)? as f64;
        (self.seconds > 0.0).then(|| counted / self.seconds)
    }

    /// A rate of a counter of the whole director.
    fn of(&self, counter: impl Fn(&Sample) -> u64) -> Option<f64> {
        self.rate(self.before.map(&counter), counter(self.now))
    }
}

/// New sessions, packets and bits each way: the rates of a service, a real server or a rule.
fn balanced(span: &Span<'_>, before: Option<&Balanced>, now: &Balanced) -> [Option<f64>; 5] {
    let rate = |of: fn(&Balanced) -> u64| span.rate(before.map(of), of(now));
    let bits = |rate: Option<f64>| rate.map(|bytes| bytes * 8.0);
    [
        rate(|it| it.sessions_total),
        rate(|it| it.packets.inbound),
        bits(rate(|it| it.bytes.inbound)),
        rate(|it| it.packets.outbound),
        bits(rate(|it| it.bytes.outbound)),
    ]
}

impl Board {
    /// What two samples show; with one there are no rates.
    pub fn of(before: Option<&Sample>, now: &Sample) -> Self {
        // Another process counts afresh.
        let before = before.filter(|before| before.status.pid == now.status.pid);
        let seconds = before.map_or(Duration::ZERO, |before| now.at - before.at).as_secs_f64();
        let span = Span { before, now, seconds };
        let mut board = Self::default();
        board.head(&span);
        board.services(&span);
        board.workers(&span);
        board.drops(&span);
        board.elephants(now);
        board.ports(&span);
        board
    }

    fn head(&mut self, span: &Span<'_>) {
        let status = &span.now.status;
        self.title = format!(
            "sluiced {}  up {}  epoch {}",
            status.version,
            span_of(status.uptime_s),
            status.config_epoch
        );
        let sum = |of: fn(&Balanced) -> u64| {
            span.of(move |sample| {
                let services = sample.services.services.iter().map(|it| &it.counted);
                let rules = sample.services.snat.iter().map(|it| &it.counted);
                services.chain(rules).map(of).sum()
            })
        };
        let text = |rate: Option<f64>| rate.map_or("-".to_owned(), short);
        let bits = |rate: Option<f64>| text(rate.map(|bytes| bytes * 8.0));
        let dropped = span.of(|sample| {
            let dropped = sample.drops.drops.iter().filter(|it| it.fate == Fate::Dropped);
            dropped.map(|drop| drop.packets).sum()
        });
        self.summary = format!(
            "in {} pps {} bit/s  out {} pps {} bit/s  new {}/s  dropped {}/s",
            text(sum(|it| it.packets.inbound)),
            bits(sum(|it| it.bytes.inbound)),
            text(sum(|it| it.packets.outbound)),
            bits(sum(|it| it.bytes.outbound)),
            text(span.of(|sample| sample.status.sessions.created)),
            text(dropped)
        );
        let sessions = &status.sessions;
        #[allow(clippy::cast_precision_loss)] // three digits are shown
        let [live, capacity] = [sessions.live, sessions.capacity].map(|it| short(it as f64));
        let share = percent_of(sessions.live, sessions.capacity);
        self.sessions = format!("sessions {live} of {capacity} ({share})");
    }

    fn services(&mut self, span: &Span<'_>) {
        let mut services = Grid::new(&[
            "SERVICE",
            "ADDRESS",
            ">UP",
            ">SESSIONS",
            "*>NEW/S",
            ">PPS IN",
            ">BIT/S IN",
            ">PPS OUT",
            ">BIT/S OUT",
        ]);
        let mut reals = Grid::new(&[
            "SERVICE",
            "REAL SERVER",
            "STATE",
            ">WEIGHT",
            ">SESSIONS",
            "*>NEW/S",
            ">SHARE",
            ">PPS IN",
            ">BIT/S IN",
            ">PPS OUT",
            ">BIT/S OUT",
        ]);
        let earlier =
            |name: &str| span.before?.services.services.iter().find(|service| service.name == name);
        for service in &span.now.services.services {
            let before = earlier(&service.name);
            let rates = balanced(span, before.map(|it| &it.counted), &service.counted);
            let up = service.reals.iter().filter(|real| real.state == RealState::Up).count();
            let all = service.reals.len();
            #[allow(clippy::cast_precision_loss)] // a share
            let share = up as f64 / all.max(1) as f64;
            let tone = if up == 0 { Tone::Bad } else { Tone::Note };
            let at = endpoint(service.vip, &service.ports);
            let mut cells = vec![
                Cell::word(&service.name),
                Cell::word(format!("{} {at}", service.protocol.name())),
                Cell::number(share, format!("{up}/{all}")).tone_if(up < all, tone),
                count(service.counted.sessions_active),
            ];
            cells.extend(rates.map(Cell::rate));
            services.row(&service.name, cells);
            for real in &service.reals {
                let (key, cells) = of_real(span, service, real, before, rates[0]);
                reals.row(key, cells);
            }
        }
        for rule in &span.now.services.snat {
            let before = span
                .before
                .and_then(|it| it.services.snat.iter().find(|earlier| earlier.name == rule.name));
            let rates = balanced(span, before.map(|it| &it.counted), &rule.counted);
            let mut cells = vec![
                Cell::word(&rule.name),
                Cell::word(format!("snat {}", rule.pool)),
                Cell::number(1.0, "-"),
                count(rule.counted.sessions_active),
            ];
            cells.extend(rates.map(Cell::rate));
            services.row(&rule.name, cells);
        }
        self.grids.extend([services, reals]);
    }

    fn workers(&mut self, span: &Span<'_>) {
        let mut grid = Grid::new(&[
            "WORKER",
            ">CORE",
            "*>BUSY",
            ">PPS",
            ">FILL",
            ">CYC/PKT",
            ">HIT",
            ">SESSIONS",
            ">FULL",
            ">HELD",
        ]);
        let stages = |sample: &Sample, number: u16| -> Option<WorkerStages> {
            sample.stages.workers.iter().find(|it| it.worker == number).cloned()
        };
        for worker in &span.now.status.workers {
            let now = stages(span.now, worker.worker).unwrap_or_default();
            let before = span.before.and_then(|it| stages(it, worker.worker));
            let done = before.as_ref().map(|before| crate::show::difference(before, &now));
            let packets = span.rate(before.map(|it| it.packets), now.packets);
            let of = |part: fn(&WorkerStages) -> u64, whole: fn(&WorkerStages) -> u64| {
                let done = done.as_ref().filter(|done| whole(done) > 0)?;
                #[allow(clippy::cast_precision_loss)] // three digits are shown
                Some(part(done) as f64 / whole(done) as f64)
            };
            let ticks = |it: &WorkerStages| it.stages.iter().map(|stage| stage.ticks).sum();
            let hits = of(|it| it.found, |it| it.looked_up);
            let key = worker.worker.to_string();
            grid.row(
                &key,
                vec![
                    Cell::number(-f64::from(worker.worker), &key),
                    Cell::number(worker.core.into(), worker.core.to_string()),
                    Cell::number(worker.busy_share, percent(worker.busy_share))
                        .tone_if(worker.busy_share > 0.9, Tone::Note),
                    Cell::rate(packets),
                    Cell::rate(of(|it| it.packets, |it| it.bursts)),
                    Cell::rate(of(ticks, |it| it.timed_packets)),
                    Cell::number(hits.unwrap_or(-1.0), hits.map_or("-".to_owned(), percent)),
                    count(worker.sessions),
                    Cell::word(percent_of(worker.sessions, worker.session_capacity)),
                    count(worker.held_frames).tone_if(worker.held_frames > 0, Tone::Note),
                ],
            );
            let Some(done) = done else { continue };
            let timed = done.timed_packets.max(1);
            let stage = |it: &sluice_api::model::StageTicks| {
                #[allow(clippy::cast_precision_loss)] // three digits are shown
                let cycles = it.ticks as f64 / timed as f64;
                (it.stage.clone(), format!("{} cycles a packet", short(cycles)))
            };
            self.details.insert((2, key), done.stages.iter().map(stage).collect());
        }
        self.grids.push(grid);
    }

    fn drops(&mut self, span: &Span<'_>) {
        let mut grid = Grid::new(&["REASON", "FATE", "*>PPS", ">TOTAL", "MEANING"]);
        let before = |reason: &str| {
            span.before?.drops.drops.iter().find(|it| it.reason == reason).map(|it| it.packets)
        };
        for drop in span.now.drops.drops.iter().filter(|drop| drop.packets > 0) {
            let fate = match drop.fate {
                Fate::Dropped => "dropped",
                Fate::Kernel => "kernel",
            };
            let rate = span.rate(before(&drop.reason), drop.packets);
            let drops = drop.fate == Fate::Dropped && rate.is_some_and(|rate| rate > 0.0);
            grid.row(
                &drop.reason,
                vec![
                    Cell::word(&drop.reason),
                    Cell::word(fate),
                    Cell::rate(rate).tone_if(drops, Tone::Note),
                    count(drop.packets),
                    Cell::word(&drop.meaning),
                ],
            );
        }
        self.grids.push(grid);
    }

    fn elephants(&mut self, now: &Sample) {
        let mut grid = Grid::new(&[
            "SERVICE",
            "CLIENT",
            "VIRTUAL",
            "REAL",
            ">PPS IN",
            "*>BIT/S IN",
            ">PPS OUT",
            ">BIT/S OUT",
            ">WORKER",
        ]);
        for elephant in &now.elephants.elephants {
            let session = &elephant.session;
            #[allow(clippy::cast_precision_loss)] // three digits are shown
            let rate = |per_s: u64| Cell::rate(Some(per_s as f64));
            let key =
                format!("{} {} {}", session.protocol.name(), session.client, session.virtual_);
            grid.row(
                key,
                vec![
                    Cell::word(&session.service),
                    Cell::word(session.client.to_string()),
                    Cell::word(session.virtual_.to_string()),
                    Cell::word(session.real.to_string()),
                    rate(elephant.inbound.packets_per_s),
                    rate(elephant.inbound.bytes_per_s.saturating_mul(8)),
                    rate(elephant.outbound.packets_per_s),
                    rate(elephant.outbound.bytes_per_s.saturating_mul(8)),
                    Cell::number(session.worker.into(), session.worker.to_string()),
                ],
            );
        }
        self.grids.push(grid);
    }

    fn ports(&mut self, span: &Span<'_>) {
        let mut grid = Grid::new(&[
            "PORT",
            "STATE",
            "*>RX PPS",
            ">RX BIT/S",
            ">LOST/S",
            ">TX PPS",
            ">TX BIT/S",
            ">MTU",
            "DEVICE",
        ]);
        for port in &span.now.ports.ports {
            let before = span
                .before
                .and_then(|it| it.ports.ports.iter().find(|earlier| earlier.name == port.name));
            let rate =
                |of: fn(&sluice_api::model::Port) -> u64| span.rate(before.map(of), of(port));
            let bits = |rate: Option<f64>| rate.map(|bytes| bytes * 8.0);
            let lost = rate(|it| it.rx.missed + it.rx.errors + it.tx.errors);
            let (state, tone) = match port.state {
                PortState::Up => ("up", Tone::Plain),
                PortState::Down => ("down", Tone::Note),
                PortState::Gone => ("gone", Tone::Bad),
            };
            let mtu = port.mtu.map_or("-".to_owned(), |mtu| mtu.to_string());
            grid.row(
                &port.name,
                vec![
                    Cell::word(&port.name),
                    Cell::word(state).tone_if(true, tone),
                    Cell::rate(rate(|it| it.rx.packets)),
                    Cell::rate(bits(rate(|it| it.rx.bytes))),
                    Cell::rate(lost).tone_if(lost.is_some_and(|lost| lost > 0.0), Tone::Note),
                    Cell::rate(rate(|it| it.tx.packets)),
                    Cell::rate(bits(rate(|it| it.tx.bytes))),
                    Cell::number(port.mtu.unwrap_or(0).into(), mtu),
                    Cell::word(&port.device),
                ],
            );
        }
        self.grids.push(grid);
    }

    /// What lies below a row: what is known of it, then its own columns by name.
    pub fn detail(&self, view: usize, key: &str) -> Vec<(String, String)> {
        let mut lines = self.details.get(&(view, key.to_owned())).cloned().unwrap_or_default();
        let Some(grid) = self.grids.get(view) else { return lines };
        if let Some(row) = grid.rows.iter().find(|row| row.key == key) {
            let pairs = grid.columns.iter().zip(&row.cells);
            lines.splice(0..0, pairs.map(|(it, cell)| (it.title.to_owned(), cell.text.clone())));
        }
        lines
    }

    /// All of it for programs: each view a list of lines, each line its columns; numbers as they
    /// are where they are known, and words.
    pub fn json(&self) -> serde_json::Value {
        let cell = |cell: &Cell| match cell.value {
            // Unknown rates are below zero, and some numbers are only there to be sorted by.
            Some(_) if cell.text == "-" => serde_json::Value::Null,
            Some(value)
                if cell.text.starts_with(|it: char| it.is_ascii_digit()) && value >= 0.0 =>
            {
                value.into()
            }
            _ => cell.text.clone().into(),
        };
        let views = VIEWS.iter().zip(&self.grids).map(|(name, grid)| {
            let line = |row: &super::grid::Row| {
                let columns = grid.columns.iter().zip(&row.cells);
                columns.map(|(column, it)| (column.title.to_lowercase(), cell(it))).collect()
            };
            let rows = grid.arranged("", grid.sorted_by, false);
            let lines: Vec<serde_json::Value> =
                rows.into_iter().map(|row| serde_json::Value::Object(line(row))).collect();
            (name.to_lowercase().replace(' ', "_"), lines.into())
        });
        serde_json::Value::Object(views.collect())
    }

    /// All of it as plain text, each view by its own order.
    pub fn text(&self) -> String {
        let mut out = format!("{}\n{}\n{}\n", self.title, self.summary, self.sessions);
        for (name, grid) in VIEWS.iter().zip(&self.grids).filter(|(_, grid)| !grid.rows.is_empty())
        {
            out.push_str(&format!("\n{name}\n"));
            let rows = grid.arranged("", grid.sorted_by, false);
            let widths = grid.widths(&rows, usize::MAX);
            let titles = grid.columns.iter().map(|column| column.title);
            let mut line = |texts: &mut dyn Iterator<Item = &str>| {
                let cells = texts.zip(&widths).zip(&grid.columns).map(|((text, width), column)| {
                    let pad = " ".repeat(width.saturating_sub(text.chars().count()));
                    if column.number { pad + text } else { text.to_owned() + &pad }
                });
                out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
                out.push('\n');
            };
            line(&mut titles.into_iter());
            for row in rows {
                line(&mut row.cells.iter().map(|cell| cell.text.as_str()));
            }
        }
        out
    }
}

fn span_of(seconds: f64) -> String {
    span(seconds)
}

fn count(number: u64) -> Cell {
    #[allow(clippy::cast_precision_loss)] // three digits are shown
    let value = number as f64;
    Cell::number(value, short(value))
}

fn of_real(
    span: &Span<'_>,
    service: &Service,
    real: &Real,
    before: Option<&Service>,
    of_service: Option<f64>,
) -> (String, Vec<Cell>) {
    let same = |it: &&Real| (it.address, it.port) == (real.address, real.port);
    let earlier = before.and_then(|before| before.reals.iter().find(same));
    let rates = balanced(span, earlier.map(|it| &it.counted), &real.counted);
    let (state, tone) = match real.state {
        RealState::Up => ("up", Tone::Plain),
        RealState::Standby => ("stands by", Tone::Plain),
        RealState::Draining => ("draining", Tone::Note),
        RealState::Full => ("full", Tone::Note),
        RealState::Down => ("down", Tone::Bad),
    };
    let at = endpoint(real.address, real_port(real.port));
    let share = rates[0].zip(of_service.filter(|&all| all > 0.0)).map(|(own, all)| own / all);
    let mut cells = vec![
        Cell::word(&service.name),
        Cell::word(&at),
        Cell::word(state).tone_if(true, tone),
        Cell::number(real.weight.into(), real.weight.to_string()),
        count(real.counted.sessions_active),
        Cell::rate(rates[0]),
        Cell::number(share.unwrap_or(-1.0), share.map_or("-".to_owned(), percent)),
    ];
    cells.extend(rates[1..].iter().copied().map(Cell::rate));
    (format!("{} {at}", service.name), cells)
}
