//! Sessions of a director that ran before go on in another: other ids, as many workers or not.

use super::lab::{BACK, FRONT, MemFrame};
use super::modes::{Field, datagram, ends, ip, spec};
use super::owners::settle;
use crate::frame::Frame;
use crate::path::{
    Batch, Former, Importer, MemoryFile, Owners, PagePolicy, Path, PathConfig, Restored,
    SessionFilter, TableFiles, Verdict,
};
use crate::plan::{RealId, Resolver};
use crate::spec::{
    LocalPool, Mapping, Mode, Network, Persistence, Ports, SnatRule, Spec, VirtualService,
};
use crate::time::Time;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const SEED: u64 = 7;

/// Paths whose sessions lie in files, and these files.
struct Kept {
    paths: Vec<Path>,
    files: Vec<[File; 2]>,
}

fn file(name: &str) -> File {
    let path = std::env::temp_dir().join(format!("sluice-restore-{}-{name}", std::process::id()));
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file::<PathBuf>(path).unwrap();
    file
}

fn start(field: &Field, workers: u16, test: &str) -> Kept {
    start_with(field, workers, 100, test)
}

fn start_with(field: &Field, workers: u16, sessions: u32, test: &str) -> Kept {
    let mut kept = Kept { paths: Vec::new(), files: Vec::new() };
    for worker in 0..workers {
        let config = PathConfig {
            worker,
            workers,
            sessions,
            fragments: 64,
            seed: SEED,
            pages: PagePolicy::Ordinary,
        };
        let own = [0, 1].map(|table| file(&format!("{test}-{worker}-{table}")));
        let [narrow, extended] =
            [0, 1].map(|at: usize| MemoryFile::from(OwnedFd::from(own[at].try_clone().unwrap())));
        let files = Some(TableFiles { narrow, extended });
        let mut path = Path::in_files(&config, files).unwrap();
        path.adopt(&field.plan);
        assert!(path.is_kept());
        kept.paths.push(path);
        kept.files.push(own);
    }
    kept
}

impl Kept {
    /// What another process would read.
    fn slots(&self) -> Vec<[Vec<u8>; 2]> {
        let read = |file: &File| {
            let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        self.files.iter().map(|[narrow, extended]| [read(narrow), read(extended)]).collect()
    }
}

/// Restores what a director left in one of another configuration, whose clock began `later_ms`
/// later.
fn restore(before: &Field, kept: &Kept, after: &Field, to: &mut Kept, later_ms: u32) -> Restored {
    restore_by(Way::Slots, (before, kept), (after, to), later_ms)
}

/// The same, by slots or told by addresses.
fn restore_by(
    way: Way,
    (before, kept): (&Field, &Kept),
    (after, to): (&Field, &mut Kept),
    later_ms: u32,
) -> Restored {
    if way == Way::Told {
        return catch_up(way, (before, kept), (after, to), &[], later_ms).1;
    }
    let (was, now) = (kept.paths.len() as u16, to.paths.len() as u16);
    let names = before.plan.names();
    let shift = 0_u32.wrapping_sub(later_ms);
    let former = Former::new(&after.plan, &names, Owners::new(SEED, now), (was, shift));
    let (mut all, mut taken) = (Restored::default(), Restored::default());
    for (worker, [narrow, extended]) in (0..).zip(&kept.slots()) {
        all += former.sort(worker, [narrow, extended], |batches| {
            for (path, batch) in to.paths.iter_mut().zip(&batches) {
                taken += path.restore(&after.plan, after.now, batch, former.scatters());
            }
        });
    }
    all += taken;
    all
}

/// A service and, in front of it, one that gives everything other ids.
pub(super) fn with_another_first(spec: &Spec) -> Spec {
    let mut other = spec.clone();
    let mut first: VirtualService = spec.services[0].clone();
    (first.name, first.ports) = ("first".to_owned(), Ports::one(9));
    other.services.insert(0, first);
    other
}

pub(super) fn request(vip: &str, client: u16) -> MemFrame {
    let vip = ip(vip);
    let from = if vip.is_ipv4() { ip("198.51.100.48") } else { ip("2001:db8:1::48") };
    datagram(SocketAddr::new(from, 4000 + client), SocketAddr::new(vip, 53))
}

/// Where a request of each client arrives, byte by byte; the NIC brings it to the same worker as
/// ever, if there is one of its number.
pub(super) fn ask(field: &Field, paths: &mut [Path], vip: &str) -> Vec<Vec<u8>> {
    let ask = |client: u16| {
        let mut frame = request(vip, client);
        let (_, verdict) = settle(field, paths, client % paths.len() as u16, &mut frame);
        assert_eq!(verdict, Verdict::Tx(BACK), "client {client}");
        frame.bytes().to_vec()
    };
    (0..40).map(ask).collect()
}

/// Sends the real server's answers to what has arrived by a worker; they must reach the clients.
pub(super) fn answer(field: &Field, paths: &mut [Path], requests: &[Vec<u8>], vip: &str) {
    for (client, request) in requests.iter().enumerate() {
        let (from, to) = ends(&request[14..]);
        for first in 0..paths.len() {
            let mut frame = datagram(to, from);
            let (_, verdict) = settle(field, paths, first as u16, &mut frame);
            assert_eq!(verdict, Verdict::Tx(FRONT), "answer to client {client} by {first}");
            let (from, to) = ends(&frame.bytes()[14..]);
            assert_eq!((from, to.port()), (SocketAddr::new(ip(vip), 53), 4000 + client as u16));
        }
    }
}

#[test]
fn sessions_go_on_under_other_ids_and_numbers_of_workers() {
    for mode in [Mode::Fnat, Mode::Nat, Mode::Dr, Mode::Ipip] {
        for (vip, real) in [("198.51.100.200", "192.0.2.11"), ("2001:db8:1::200", "2001:db8:2::11")]
        {
            for prefix in [None, Some(24)] {
                for (was, now, way) in [
                    (1, 1, Way::Slots),
                    (2, 2, Way::Slots),
                    (3, 1, Way::Slots),
                    (1, 3, Way::Slots),
                    (2, 3, Way::Slots),
                    (1, 1, Way::Told),
                    (2, 2, Way::Told),
                    (2, 3, Way::Told),
                ] {
                    let name = format!("{mode:?}-{was}-{now}-{way:?}");
                    let mut one = spec(mode, vip, real, 0);
                    one.services[0].persistence =
                        prefix.map(|prefix| Persistence { timeout_s: 300, prefix });
                    let before = Field::new(&one);
                    let mut kept = start(&before, was, &name);
                    let arrived = ask(&before, &mut kept.paths, vip);
                    let live: u32 = kept.paths.iter().map(Path::live_sessions).sum();
                    let mut after = Field::new(&with_another_first(&one));
                    after.now = Time(1000);
                    let mut to = start(&after, now, "after");
                    // The clock began when the other's stood just before its requests.
                    let later = before.now.0 as u32 - 500;
                    let got = restore_by(way, (&before, &kept), (&after, &mut to), later);
                    let templates: u32 = kept.paths.iter().map(Path::templates).sum();
                    let all = u64::from(live + templates);
                    assert_eq!(got, Restored { sessions: all, ..got }, "{name} {prefix:?}");
                    let found = to.paths.iter().map(Path::live_sessions).sum::<u32>();
                    assert_eq!((found, live), (40, 40), "{name}");
                    let again = ask(&after, &mut to.paths, vip);
                    assert!(again == arrived, "{name} {prefix:?}: to the same, from the same");
                    if matches!(mode, Mode::Fnat | Mode::Nat) {
                        answer(&after, &mut to.paths, &again, vip);
                    }
                    for path in &to.paths {
                        assert_eq!(path.counters().created, 0, "{name}: none is opened anew");
                        let gauges = |reals: &[crate::counters::RealCounters]| {
                            reals.iter().map(|r| (r.active, r.bound)).collect::<Vec<_>>()
                        };
                        assert_eq!(gauges(&path.counters().reals), gauges(&path.recount()));
                    }
                }
            }
        }
    }
}

/// How sessions go over: by their slots, or told by addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Slots,
    Told,
}

/// Takes up what has become of sessions since they were copied, as they lay in memory then.
fn catch_up(
    way: Way,
    (before, kept): (&Field, &Kept),
    (after, to): (&Field, &mut Kept),
    copy: &[[Vec<u8>; 2]],
    later_ms: u32,
) -> (Vec<[Vec<u8>; 2]>, Restored) {
    let (was, now) = (kept.paths.len() as u16, to.paths.len() as u16);
    let (names, shift) = (before.plan.names(), 0_u32.wrapping_sub(later_ms));
    let former = Former::new(&after.plan, &names, Owners::new(SEED, now), (was, shift));
    let mut batches = vec![Batch::replacing(); usize::from(now)];
    let (slots, mut all, none) = (kept.slots(), Restored::default(), [Vec::new(), Vec::new()]);
    for (worker, [narrow, extended]) in slots.iter().enumerate() {
        let [old, old_extended] = copy.get(worker).unwrap_or(&none);
        let tables: [(&[u8], &[u8]); 2] = [(old, narrow), (old_extended, extended)];
        all += match way {
            Way::Slots => former.sort_changes(worker as u16, tables, 1000, &mut batches),
            Way::Told => {
                let told_at = Time(before.now.0 - u64::from(later_ms));
                tell((before, was), worker as u16, tables, after, told_at, &mut batches)
            }
        };
    }
    for (path, batch) in to.paths.iter_mut().zip(&batches) {
        all += path.restore(&after.plan, after.now, batch, former.scatters());
    }
    (slots, all)
}

/// Tells a worker's sessions by addresses, which get their places in another configuration.
fn tell(
    (before, workers): (&Field, u16),
    worker: u16,
    tables: [(&[u8], &[u8]); 2],
    after: &Field,
    told_at: Time,
    batches: &mut [Batch],
) -> Restored {
    let (names, now) = (before.plan.names(), batches.len() as u16);
    let teller = Former::new(&before.plan, &names, Owners::new(SEED, workers), (workers, 0));
    let (resolver, owners) = (Resolver::new(&after.plan), Owners::new(SEED, now));
    let importer = Importer::new(&after.plan, &resolver, owners);
    let (was, mut unknown) = (Some(worker).filter(|_| workers == now), 0);
    let mut left = teller.tell_changes(tables, (1000, before.now), |mut change| {
        let real = &names.reals[change.real.0 as usize];
        let service = &names.services[usize::from(real.service.0)];
        let found = resolver.real(service, (real.address, real.port, real.mode));
        change.real = found.unwrap_or(RealId(u32::MAX));
        unknown += u64::from(!importer.restores(&change, (was, told_at), batches));
    });
    left.unknown += unknown;
    left
}

/// A director goes on while its sessions are copied: those that end, those that are new, and those
/// that have the slot of another.
#[test]
fn what_changes_while_sessions_are_copied_is_taken_up() {
    for mode in [Mode::Fnat, Mode::Nat, Mode::Dr] {
        for (vip, real) in [("198.51.100.200", "192.0.2.11"), ("2001:db8:1::200", "2001:db8:2::11")]
        {
            let ways = [Way::Slots, Way::Told];
            let all = ways.map(|way| [(1, 1, way), (2, 2, way), (2, 3, way)]);
            for (was, now, way) in all.into_iter().flatten() {
                let name = format!("changes-{mode:?}-{was}-{now}-{way:?}");
                let one = spec(mode, vip, real, 0);
                let before = Field::new(&one);
                let mut kept = start(&before, was, &name);
                let mut after = Field::new(&with_another_first(&one));
                after.now = Time(1000);
                let mut to = start(&after, now, "changes-after");
                let later = before.now.0 as u32 - 500;
                let some = |field: &Field, paths: &mut [Path], clients: std::ops::Range<u16>| {
                    let ask = |client: u16| {
                        let mut frame = request(vip, client);
                        let first = client % paths.len() as u16;
                        let (_, verdict) = settle(field, paths, first, &mut frame);
                        assert_eq!(verdict, Verdict::Tx(BACK), "{name}: client {client}");
                        frame.bytes().to_vec()
                    };
                    clients.map(ask).collect::<Vec<_>>()
                };
                some(&before, &mut kept.paths, 0..20);
                let (copy, got) = catch_up(way, (&before, &kept), (&after, &mut to), &[], later);
                assert_eq!(got, Restored { sessions: 20, ..Restored::default() }, "{name}");
                let (same, got) = catch_up(way, (&before, &kept), (&after, &mut to), &copy, later);
                assert!(same == copy && got == Restored::default(), "{name}: {got:?}");
                for path in &mut kept.paths {
                    let (all, mut next) = (SessionFilter::default(), Some(0));
                    while let Some(from) = next {
                        next = path.kill(&before.plan, before.now, &all, (from, 1000)).1;
                    }
                }
                let arrived = some(&before, &mut kept.paths, 10..40);
                let (_, got) = catch_up(way, (&before, &kept), (&after, &mut to), &copy, later);
                assert_eq!(got.refused + got.unknown + got.damaged, 0, "{name}: {got:?}");
                let live = |paths: &[Path]| paths.iter().map(Path::live_sessions).sum::<u32>();
                assert_eq!((live(&kept.paths), live(&to.paths)), (30, 30), "{name}");
                let again = some(&after, &mut to.paths, 10..40);
                assert!(again == arrived, "{name}: to the same, from the same");
                for path in &to.paths {
                    assert_eq!(path.counters().created, 0, "{name}: none is opened anew");
                    let gauges = |reals: &[crate::counters::RealCounters]| {
                        reals.iter().map(|r| (r.active, r.bound)).collect::<Vec<_>>()
                    };
                    assert_eq!(gauges(&path.counters().reals), gauges(&path.recount()));
                }
            }
        }
    }
}

/// What endpoint-independent mapping shares, sessions of a director that ran before share again.
#[test]
fn mappings_of_source_nat_go_on() {
    for mapping in [Mapping::EndpointIndependent, Mapping::PerSession] {
        for (was, now, way) in [
            (1, 1, Way::Slots),
            (2, 2, Way::Slots),
            (2, 3, Way::Slots),
            (1, 1, Way::Told),
            (2, 2, Way::Told),
            (2, 3, Way::Told),
        ] {
            let mut out = spec(Mode::Dr, "198.51.100.200", "192.0.2.11", 0);
            out.pools.push(LocalPool {
                network: String::new(),
                name: "wan".into(),
                addresses: vec![ip("198.51.100.9")],
                ports: 2000..=2999,
                peer_addresses: Vec::new(),
            });
            out.snat = vec![SnatRule {
                network: String::new(),
                name: "out".into(),
                sources: vec![Network { address: ip("192.0.2.0"), prefix: 24 }],
                pool: "wan".into(),
                mapping,
                ..SnatRule::default()
            }];
            let before = Field::new(&out);
            let mut kept = start(&before, was, "snat");
            let ask = |field: &Field, paths: &mut [Path], far: u16| {
                let to: IpAddr = ip("198.51.100.48");
                let from = SocketAddr::new(ip("192.0.2.11"), 700);
                let mut frame = datagram(from, SocketAddr::new(to, far));
                let (_, verdict) = settle(field, paths, far % paths.len() as u16, &mut frame);
                assert_eq!(verdict, Verdict::Tx(FRONT), "{mapping:?}");
                ends(&frame.bytes()[14..])
            };
            let first: Vec<_> = (1..=5).map(|far| ask(&before, &mut kept.paths, far)).collect();
            let mut after = Field::new(&with_another_first(&out));
            after.now = before.now;
            let mut to = start(&after, now, "snat-after");
            let got = restore_by(way, (&before, &kept), (&after, &mut to), 0);
            assert_eq!(got, Restored { sessions: 5, ..Restored::default() }, "{mapping:?}");
            let again: Vec<_> = (1..=5).map(|far| ask(&after, &mut to.paths, far)).collect();
            assert_eq!(again, first, "{mapping:?} {was} {now} {way:?}");
            // By whichever worker they come.
            for far in (6..=9).filter(|_| mapping == Mapping::EndpointIndependent) {
                let more = ask(&after, &mut to.paths, far);
                assert_eq!(more.0, first[0].0, "the mapping is there still: {was} {now} {way:?}");
            }
        }
    }
}

/// Nothing in the memory is believed: nothing panics, and what cannot be is left.
#[test]
fn memory_of_any_content_is_read_without_harm() {
    let before = Field::new(&spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 0));
    let mut kept = start(&before, 1, "damaged");
    ask(&before, &mut kept.paths, "198.51.100.200");
    let [narrow, extended] = &kept.files[0];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for file in [narrow, extended] {
        let len = file.metadata().unwrap().len();
        for at in (0..len).step_by(5) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if state >> 62 == 0 {
                file.write_all_at(&[(state >> 40) as u8], at).unwrap();
            }
        }
    }
    let after = Field::new(&spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 0));
    let mut to = start(&after, 1, "damaged-after");
    let got = restore(&before, &kept, &after, &mut to, 0);
    assert!(got.damaged + got.unknown + got.expired > 0, "{got:?}");
    let path = &to.paths[0];
    let gauge = path.counters().reals.iter().map(|real| real.active).sum::<u64>();
    assert_eq!(gauge, u64::from(path.live_sessions()));
}

/// The last place is taken too, and a smaller table takes what it has room for.
#[test]
fn as_many_are_restored_as_there_is_room_for() {
    let before = Field::new(&spec(Mode::Nat, "198.51.100.200", "192.0.2.11", 0));
    let mut kept = start(&before, 1, "full");
    ask(&before, &mut kept.paths, "198.51.100.200");
    for (room, expected) in [(40, (40, 0)), (30, (30, 10))] {
        let mut to = start_with(&before, 1, room, "full-after");
        let got = restore(&before, &kept, &before, &mut to, 0);
        assert_eq!((got.sessions, got.refused), expected, "room for {room}");
    }
}

/// A configuration without the service, and time that has gone by.
#[test]
fn what_is_gone_or_over_is_left() {
    let one = spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 0);
    let before = Field::new(&one);
    let mut kept = start(&before, 1, "gone");
    ask(&before, &mut kept.paths, "198.51.100.200");
    let mut other = one.clone();
    other.services[0].ports = Ports::one(81);
    for (spec, idle_ms, expected) in [
        (&other, 0, Restored { unknown: 40, ..Restored::default() }),
        (&one, 3_600_000, Restored { expired: 40, ..Restored::default() }),
    ] {
        let mut after = Field::new(spec);
        after.now.0 += idle_ms;
        let mut to = start(&after, 1, "gone-after");
        assert_eq!(restore(&before, &kept, &after, &mut to, 0), expected);
        assert_eq!(to.paths[0].live_sessions(), 0);
    }
}

/// Clocks are read in whole milliseconds, and packets come while sessions are read: the last ones
/// seem to come from the future.
#[test]
fn a_clock_that_is_ahead_ends_no_session() {
    let mut before = Field::new(&spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 0));
    before.now.0 += 100_000;
    let mut kept = start(&before, 1, "ahead");
    ask(&before, &mut kept.paths, "198.51.100.200");
    for way in [Way::Slots, Way::Told] {
        for ahead_ms in [1, 3, 500] {
            let after = Field::new(&spec(Mode::Fnat, "198.51.100.200", "192.0.2.11", 0));
            let mut to = start(&after, 1, "ahead-after");
            let later = (before.now.0 - after.now.0) as u32 - ahead_ms;
            let got = restore_by(way, (&before, &kept), (&after, &mut to), later);
            assert_eq!(got, Restored { sessions: 40, ..Restored::default() }, "{way:?} {ahead_ms}");
            to.paths[0].sweep_all(&after.plan, after.now);
            assert_eq!(to.paths[0].live_sessions(), 40, "{way:?} {ahead_ms}");
        }
    }
}
