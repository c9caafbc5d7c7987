//! The same address in two isolated networks: each check finds its own network's machine.
//!
//! The networks are two links with the same addresses on both, each to a network namespace without
//! a name, which belongs to a thread and is gone with it. Needs root and `ip`.

use sluice_checks::{Exit, Exits, Key, Kind, Network, News, Runner, Spec, Way};
use sluice_health::{Rules, State};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The real server's addresses, which both networks have.
const REALS: [&str; 2] = ["10.9.0.2", "fd00:9::2"];
const PORT: u16 = 8080;
/// A bound for what takes no time on an idle machine.
const LATER: Duration = Duration::from_secs(20);

/// Runs `ip` in the calling thread's namespace.
#[track_caller]
fn ip(arguments: &str) {
    let ended = Command::new("ip").args(arguments.split_whitespace()).status();
    assert!(ended.expect("ip starts").success(), "ip {arguments}");
}

/// Moves the calling thread to a network namespace of its own.
fn enter_new() {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET)
        .expect("a network namespace can be made: the test needs root (CAP_SYS_ADMIN)");
    ip("link set lo up");
}

fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(move || {
        enter_new();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A machine that has the real server's addresses, behind a link with this name and number; its
/// port is open or not. It is there until what this gives is dropped.
fn machine(name: &str, number: u8, is_open: bool) -> Sender<()> {
    let (tell_id, id) = channel();
    let (stay, link_is_there) = channel::<()>();
    let (tell_ready, ready) = channel();
    std::thread::spawn(move || {
        enter_new();
        tell_id.send(nix::unistd::gettid()).expect("the test waits");
        link_is_there.recv().expect("the test goes on");
        for real in REALS {
            let (bits, nodad) = prefix(real);
            ip(&format!("address add {real}/{bits} dev end {nodad}"));
        }
        ip("link set end up");
        let listen = |real: &str| TcpListener::bind((real, PORT)).expect("a listener");
        let _listeners: Vec<_> = REALS.into_iter().filter(|_| is_open).map(listen).collect();
        tell_ready.send(()).expect("the test waits");
        // Ends when the test does.
        let _ = link_is_there.recv();
    });
    let id = id.recv().expect("the machine's thread starts");
    ip(&format!("link add {name} type veth peer name end netns {id}"));
    ip(&format!("link set {name} up"));
    // As a machine has it whose networks are apart: no route of theirs is in the main table.
    for (own, net) in [("10.9.0.1", "10.9.0.0"), ("fd00:9::1", "fd00:9::")] {
        let (bits, nodad) = prefix(own);
        ip(&format!("address add {own}/{bits} dev {name} noprefixroute {nodad}"));
        ip(&format!("route add {net}/{bits} dev {name} table {}", table(number)));
    }
    stay.send(()).expect("the machine waits");
    ready.recv().expect("the machine is ready");
    stay
}

fn prefix(address: &str) -> (u8, &'static str) {
    if address.contains(':') { (64, "nodad") } else { (24, "") }
}

fn table(number: u8) -> u32 {
    100 + u32::from(number)
}

fn network(name: &str, device: &str, number: u8) -> Network {
    let exit = Exit { device: device.to_owned(), table: Some(table(number)) };
    let exits = Exits::default();
    exits.set(REALS.into_iter().map(|real| (address(real), Some(exit.clone()))).collect());
    Network { name: name.into(), exits }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn spec(real: &str, network: &Network, kind: Kind) -> Spec {
    let address = address(real);
    Spec {
        key: Key { service: format!("web-{}", network.name).into(), address, port: PORT },
        check: "check".into(),
        address,
        port: PORT,
        kind: Arc::new(kind),
        way: Way { network: Some(network.clone()), ..Way::default() },
        place: None,
        rules: Rules {
            interval: Duration::from_millis(200),
            fast_interval: None,
            timeout: Duration::from_secs(2),
            rise: 1,
            fall: 1,
            dead_after: None,
            jitter_percent: 0,
        },
        initial: State::Down,
    }
}

fn runner() -> (Runner, Receiver<News>) {
    let (tell, told) = channel();
    let tell = move |news: News| drop(tell.send(news));
    (Runner::start(tell, || ()).expect("a thread"), told)
}

/// What each check is told to have found, by service and address; as many as are wanted.
fn found(told: &Receiver<News>, count: usize) -> BTreeMap<(String, IpAddr), (State, String)> {
    let mut found = BTreeMap::new();
    while found.len() < count {
        let news = told.recv_timeout(LATER).expect("news");
        found.insert((news.key.service.to_string(), news.key.address), (news.to, news.reason));
    }
    found
}

#[test]
fn each_network_has_its_own_machine_at_the_same_address() {
    in_namespace(|| {
        let _machines = [machine("blue", 1, true), machine("red", 2, false)];
        for (name, number) in [("blue", 1), ("red", 2)] {
            ip(&format!("-6 rule add oif {name} lookup {}", table(number)));
        }
        let networks = [network("blue", "blue", 1), network("red", "red", 2)];
        let (mut runner, told) = runner();
        let specs = networks.iter().flat_map(|it| REALS.map(|real| spec(real, it, Kind::Tcp)));
        runner.set(specs.collect());
        let found = found(&told, 4);
        for real in REALS.map(address) {
            let blue = &found[&("web-blue".to_owned(), real)];
            assert_eq!(*blue, (State::Up, "connected".to_owned()), "{real}");
            let red = &found[&("web-red".to_owned(), real)];
            assert_eq!(*red, (State::Down, "connect: connection refused".to_owned()), "{real}");
        }
    });
}

/// The kernel takes an IPv4 address for one of a device's neighbours if it has no route for it by
/// the device. It does not do so for IPv6: the reason says what it needs.
#[test]
fn a_failure_says_which_rule_the_kernel_needs() {
    in_namespace(|| {
        let _machine = machine("blue", 1, true);
        let network = network("blue", "blue", 1);
        let (mut runner, told) = runner();
        runner.set(REALS.map(|real| spec(real, &network, Kind::Tcp)).into());
        let before = found(&told, 2);
        let of = |real: &str| ("web-blue".to_owned(), address(real));
        assert_eq!(before[&of(REALS[0])].0, State::Up);
        let (state, reason) = &before[&of(REALS[1])];
        let wanted = "connect: network is unreachable; needs `ip -6 rule add oif blue lookup 101`";
        assert_eq!((*state, reason.as_str()), (State::Down, wanted));

        ip("-6 rule add oif blue lookup 101");
        assert_eq!(found(&told, 1)[&of(REALS[1])].0, State::Up, "with the rule it is reached");
    });
}

/// A check goes by the device that is known when it probes, and does not begin again for another.
#[test]
fn a_check_follows_its_networks_device() {
    in_namespace(|| {
        let _machines = [machine("one", 1, true), machine("two", 2, false)];
        let network = network("blue", "one", 1);
        let (mut runner, told) = runner();
        runner.set(vec![spec(REALS[0], &network, Kind::Tcp)]);
        let of = ("web-blue".to_owned(), address(REALS[0]));
        assert_eq!(found(&told, 1)[&of].0, State::Up);
        let two = Exit { device: "two".to_owned(), table: None };
        network.exits.set(HashMap::from([(of.1, Some(two))]));
        assert_eq!(found(&told, 1)[&of].0, State::Down, "nobody listens there");
        network.exits.set(HashMap::from([(of.1, None)]));
        let shown = || runner.shown()[0].last.clone().map(|(finding, _)| finding.text);
        let wanted = "no route to 10.9.0.2 in network \"blue\"";
        let begun = std::time::Instant::now();
        while shown().as_deref() != Some(wanted) {
            assert!(begun.elapsed() < LATER, "{:?}", shown());
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

/// Sockets of datagrams and echo requests are bound, too.
#[test]
fn datagrams_and_pings_stay_in_their_network() {
    in_namespace(|| {
        let _machine = machine("blue", 1, false);
        for family in ["", "-6"] {
            ip(&format!("{family} rule add oif blue lookup 101"));
        }
        let blue = network("blue", "blue", 1);
        let nowhere = network("none", "lo", 3);
        let (mut runner, told) = runner();
        let kinds = |network| REALS.map(|real| spec(real, network, Kind::Ping));
        runner.set([kinds(&blue), kinds(&nowhere)].concat());
        for ((service, real), (state, reason)) in found(&told, 4) {
            let is_up = state == State::Up;
            assert_eq!(is_up, service == "web-blue", "{service} {real}: {reason}");
        }
        let udp = || Kind::Udp { payload: vec![0], expect: None };
        runner.set(REALS.map(|real| spec(real, &blue, udp())).into());
        for ((_, real), (state, reason)) in found(&told, 2) {
            assert_eq!((state, &*reason), (State::Down, "ICMP port unreachable"), "{real}");
        }
    });
}

#[test]
fn a_program_is_told_its_network_and_device() {
    let place = tempfile::tempdir().expect("a directory");
    let program = place.path().join("check");
    std::fs::write(&program, "#!/bin/sh\necho $SLUICE_NETWORK by $SLUICE_DEVICE\n").expect("it");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("its mode");
    let command = vec![program.to_str().expect("a name").to_owned()];
    let (mut runner, told) = runner();
    let network = network("blue", "back", 1);
    runner.set(vec![spec(REALS[0], &network, Kind::Script { command })]);
    let found = found(&told, 1);
    let (state, reason) = found.values().next().expect("a finding");
    assert_eq!((*state, reason.as_str()), (State::Up, "exit code 0: blue by back"));
}
