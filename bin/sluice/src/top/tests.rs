//! The dashboard on screens in memory: two samples in, keys, and what is seen then.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use sluice_api::model::{
    Balanced, Drops, Elephant, Elephants, IdleMode, Memory, Port, PortState, Ports, Protocol, Rate,
    Real, RealState, Received, Sent, Service, Services, Session, SessionCounts, SessionState,
    StageTicks, Stages, Status, Ways, Worker, WorkerStages,
};
use sluice_director::Reason;

use super::draw::screen;
use super::rates::Board;
use super::sample::Sample;
use super::state::{Over, State, Step};

fn counted(scale: u64, seconds: u64) -> Balanced {
    Balanced {
        sessions_total: 10 * scale * seconds,
        sessions_active: 3 * scale,
        sessions_established: 2 * scale,
        sessions_closing: scale,
        clients_bound: scale,
        packets: Ways { inbound: 1000 * scale * seconds, outbound: 2000 * scale * seconds },
        bytes: Ways { inbound: 64_000 * scale * seconds, outbound: 3_000_000 * scale * seconds },
    }
}

fn real(last: u8, state: RealState, scale: u64, seconds: u64) -> Real {
    Real {
        address: [192, 0, 2, last].into(),
        port: 8080,
        mode: "fnat".to_owned(),
        weight: 1,
        state,
        full_at: Vec::new(),
        upper_sessions: 0,
        lower_sessions: 0,
        counted: counted(scale, seconds),
    }
}

fn service(name: &str, port: u16, scale: u64, seconds: u64, states: [RealState; 2]) -> Service {
    Service {
        name: name.to_owned(),
        network: None,
        protocol: Protocol::Tcp,
        vip: [198, 51, 100, 200].into(),
        ports: port.to_string(),
        mode: "fnat".to_owned(),
        scheduler: "rr".to_owned(),
        pool: None,
        persistence: None,
        one_packet: false,
        client_address: "hidden".to_owned(),
        counted: counted(4 * scale, seconds),
        reals: vec![real(11, states[0], 3 * scale, seconds), real(12, states[1], scale, seconds)],
    }
}

fn status(seconds: u64) -> Status {
    let worker = |worker: u16, busy_share| Worker {
        worker,
        core: worker + 2,
        sessions: 600,
        session_capacity: 50_000,
        packets: 0,
        turns: 0,
        empty_turns: 0,
        sleeps: 0,
        held_frames: u64::from(worker),
        busy_share,
    };
    Status {
        version: "9.8.7".to_owned(),
        pid: 4711,
        uptime_s: 3725.0,
        config: "/etc/sluice/sluice.toml".into(),
        plan_epoch: 1,
        config_epoch: 7,
        durable: true,
        differs_from_file: false,
        last_reload: None,
        idle: IdleMode::Adaptive,
        huge_pages: true,
        memory: Memory { bytes: 1 << 20, pages: "2 MiB".to_owned(), kept: true },
        sessions: SessionCounts {
            live: 1200,
            capacity: 100_000,
            created: 1234 * seconds,
            ..SessionCounts::default()
        },
        handed_off: 0,
        workers: vec![worker(0, 0.25), worker(1, 0.95)],
    }
}

fn stages(seconds: u64) -> Stages {
    let worker = |worker: u16| WorkerStages {
        worker,
        core: worker + 2,
        packets: 1_000_000 * seconds,
        bursts: 50_000 * seconds,
        timed_packets: 1000 * seconds,
        timed_bursts: 50 * seconds,
        looked_up: 800 * seconds,
        found: 600 * seconds,
        stages: [("parse", 30), ("find", 10), ("track", 60)]
            .map(|(stage, cycles)| StageTicks {
                stage: stage.to_owned(),
                ticks: cycles * 1000 * seconds,
            })
            .to_vec(),
    };
    Stages { ticks_per_s: 2_000_000_000, workers: vec![worker(0), worker(1)] }
}

fn elephants() -> Elephants {
    let at = |text: &str| text.parse().expect("an address and a port");
    let session = Session {
        protocol: Protocol::Tcp,
        client: at("198.51.100.48:40000"),
        virtual_: at("198.51.100.200:80"),
        local: None,
        real: at("192.0.2.11:8080"),
        mode: "fnat".to_owned(),
        state: SessionState::Established,
        idle_ms: 0,
        expires_ms: 900_000,
        service: "web".to_owned(),
        network: None,
        worker: 1,
    };
    let inbound = Rate { packets_per_s: 1_500_000, bytes_per_s: 90_000_000 };
    let elephant = Elephant { session, inbound, outbound: Rate::default(), samples: 100 };
    Elephants { elephants: vec![elephant], spread: Vec::new() }
}

fn ports(seconds: u64) -> Ports {
    let port = |name: &str, state, scale: u64| Port {
        name: name.to_owned(),
        device: format!("af_xdp:{name}"),
        network: None,
        driver: "net_af_xdp".to_owned(),
        interface: Some(name.to_owned()),
        mac: None,
        mtu: Some(1500),
        state,
        queues: 2,
        twin: None,
        rx: Received {
            packets: 5000 * scale * seconds,
            bytes: 1_000_000 * scale * seconds,
            missed: 7 * (scale - 1) * seconds,
            errors: 0,
        },
        tx: Sent { packets: 4000 * scale * seconds, ..Sent::default() },
        trouble: None,
        steering: None,
        copies: None,
    };
    Ports { ports: vec![port("front", PortState::Up, 1), port("back", PortState::Gone, 2)] }
}

/// A director after so many seconds of the same traffic.
fn sample(start: Instant, seconds: u64) -> Sample {
    let mut counts = [0; Reason::COUNT];
    counts[Reason::NoSession as usize] = 50 * seconds;
    counts[Reason::TooBig as usize] = 9;
    let services = vec![
        service("web", 80, 10, seconds, [RealState::Up, RealState::Up]),
        service("mail", 25, 1, seconds, [RealState::Draining, RealState::Down]),
    ];
    Sample {
        at: start + Duration::from_secs(seconds),
        status: status(seconds),
        services: Services { services, snat: Vec::new() },
        ports: ports(seconds),
        drops: Drops::from_counts(&counts),
        stages: stages(seconds),
        elephants: elephants(),
    }
}

fn board() -> Board {
    let start = Instant::now();
    Board::of(Some(&sample(start, 10)), &sample(start, 12))
}

struct Desk {
    terminal: Terminal<TestBackend>,
    state: State,
    board: Board,
}

impl Desk {
    fn new(width: u16, height: u16) -> Self {
        let terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        Self { terminal, state: State::new(1.0, true), board: board() }
    }

    fn press(&mut self, keys: &[KeyCode]) -> Step {
        let press =
            |key: &KeyCode| self.state.key(KeyEvent::new(*key, KeyModifiers::NONE), &self.board);
        keys.iter().map(press).last().unwrap_or(Step::On)
    }

    fn seen(&mut self) -> String {
        let (state, board) = (&mut self.state, &self.board);
        self.terminal.draw(|frame| screen(frame, state, board)).expect("drawn");
        self.terminal.backend().to_string()
    }
}

fn letters(text: &str) -> Vec<KeyCode> {
    text.chars().map(KeyCode::Char).collect()
}

#[test]
fn every_view_fits_a_small_terminal() {
    let mut desk = Desk::new(80, 24);
    for (view, name) in
        ["services", "reals", "workers", "drops", "elephants", "ports"].iter().enumerate()
    {
        desk.press(&letters(&(view + 1).to_string()));
        insta::assert_snapshot!(format!("view_{name}"), desk.seen());
    }
}

#[test]
fn batches_have_all_views() {
    insta::assert_snapshot!("batch", board().text());
}

#[test]
fn programs_get_numbers() {
    let json = board().json();
    let web = &json["services"][0];
    assert_eq!((&web["service"], &web["up"]), (&"web".into(), &1.0.into()));
    assert_eq!((&web["new/s"], &web["pps in"]), (&400.0.into(), &40_000.0.into()));
    assert_eq!(json["real_servers"][3]["state"], "down");
    assert_eq!(json["drops"][0]["reason"], "no_session");
    let alone = Board::of(None, &sample(Instant::now(), 12)).json();
    assert!(alone["services"][0]["new/s"].is_null());
}

#[test]
fn rates_are_what_was_counted_in_a_second() {
    let board = board();
    assert_eq!(
        board.summary,
        "in 44.0k pps 22.5M bit/s  out 88.0k pps 1.06G bit/s  new 1.23k/s  dropped 50/s"
    );
    let alone = Board::of(None, &sample(Instant::now(), 12));
    assert!(alone.summary.starts_with("in - pps - bit/s"), "{}", alone.summary);
    let start = Instant::now();
    let mut restarted = sample(start, 1);
    restarted.status.pid = 4712;
    let board = Board::of(Some(&sample(start, 0)), &restarted);
    assert!(board.summary.starts_with("in - pps"), "another process counts afresh");
    let went_back = Board::of(
        Some(&sample(start, 12)),
        &Sample { at: start + Duration::from_secs(13), ..sample(start, 10) },
    );
    assert!(went_back.summary.contains("new -/s"), "{}", went_back.summary);
}

#[test]
fn keys_sort_filter_open_and_go_back() {
    let mut desk = Desk::new(100, 24);
    let keys = |desk: &Desk| desk.state.keys(&desk.board).join(" ");
    assert_eq!(keys(&desk), "web mail", "most new sessions first");
    desk.press(&letters("r"));
    assert_eq!(keys(&desk), "mail web");
    desk.press(&letters("rS"));
    assert_eq!(desk.state.order(&desk.board).0, 3, "the column before");
    desk.press(&letters("/mai"));
    assert_eq!(desk.state.over, Over::Filter);
    desk.press(&[KeyCode::Enter]);
    assert_eq!(keys(&desk), "mail");
    desk.press(&[KeyCode::Enter]);
    assert_eq!(desk.state.view, 1);
    assert_eq!(keys(&desk), "mail 192.0.2.11:8080 mail 192.0.2.12:8080");
    desk.press(&[KeyCode::Down, KeyCode::Enter]);
    insta::assert_snapshot!("detail", desk.seen());
    desk.press(&[KeyCode::Esc, KeyCode::Esc]);
    assert_eq!((desk.state.view, keys(&desk)), (0, "mail".to_owned()));
    desk.press(&[KeyCode::Esc]);
    assert_eq!(keys(&desk), "web mail");
    assert_eq!(desk.press(&letters("+")), Step::Interval(2.0));
    assert_eq!(desk.press(&letters("----")), Step::Interval(0.125));
    assert_eq!(desk.press(&letters("q")), Step::End);
}

#[test]
fn a_worker_opens_its_stages() {
    let mut desk = Desk::new(80, 24);
    desk.press(&letters("3"));
    desk.press(&[KeyCode::Enter]);
    let seen = desk.seen();
    assert!(seen.contains("track     60 cycles a packet"), "{seen}");
}

#[test]
fn help_is_there_and_goes() {
    let mut desk = Desk::new(80, 24);
    desk.press(&letters("?"));
    insta::assert_snapshot!("help", desk.seen());
    desk.press(&[KeyCode::Esc]);
    assert_eq!(desk.state.over, Over::Nothing);
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(1, 1), (2, 30), (10, 5), (40, 8), (300, 100)] {
        let mut desk = Desk::new(width, height);
        for keys in ["1", "2", "3", "4", "5", "6", "?"] {
            desk.press(&letters(keys));
            desk.seen();
        }
    }
}

#[test]
fn the_chosen_line_stays_in_sight() {
    let mut desk = Desk::new(80, 8);
    desk.press(&letters("2G"));
    let seen = desk.seen();
    let last = desk.state.keys(&desk.board).last().copied().expect("a row").to_owned();
    let at = last.split(' ').nth(1).expect("an address");
    assert!(seen.contains(at), "{seen}");
    assert!(desk.state.first > 0);
}

#[test]
fn without_colours_states_are_still_told_apart() {
    let mut desk = Desk::new(80, 24);
    desk.state.colour = false;
    desk.press(&letters("2"));
    desk.seen();
    let buffer = desk.terminal.backend().buffer();
    assert!(buffer.content.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
    desk.state.colour = true;
    desk.seen();
    let buffer = desk.terminal.backend().buffer();
    assert!(buffer.content.iter().any(|cell| cell.fg == Color::Red));
}

#[test]
fn a_director_that_is_away_is_said_to_be() {
    let mut desk = Desk::new(80, 24);
    desk.state.trouble = Some("no director listens on x".to_owned());
    let seen = desk.seen();
    assert!(seen.contains("no answer: no director listens on x") && seen.contains("web"), "{seen}");
}
