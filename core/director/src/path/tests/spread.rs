//! A flow that any worker may rewrite becomes what it becomes on its owner's path.

use super::groups::{Exception, Setting, Shot, any_setting, any_shot, general, lab};
use super::lab::{FRONT, Lab, MemFrame, cases};
use crate::counters::Direction;
use crate::fib::PortId;
use crate::path::{BURST, Dealt, FlowName, FlowRewrite, Level, NotSpreadable};
use crate::path::{Path, Verdict, View};
use crate::spec::Mode;
use crate::time::Time;
use arrayvec::ArrayVec;
use proptest::prelude::*;
use sluice_wire::tcp::{ACK, FIN, RST};
use std::net::IpAddr;

/// The flow that is spread: direction, version and protocol, of the second of the clients' ports.
#[derive(Clone, Copy, Debug)]
struct Which {
    six: bool,
    tcp: bool,
    inbound: bool,
}

impl Which {
    fn name(self) -> FlowName {
        let address = |six: &str, four: &str| -> IpAddr {
            if self.six { six.parse().unwrap() } else { four.parse().unwrap() }
        };
        let service = if self.tcp { 80 } else { 53 };
        FlowName {
            protocol: if self.tcp { 6 } else { 17 },
            client: (address("2001:db8:1::48", "198.51.100.48"), 3001),
            virtual_: (address("2001:db8:1::200", "198.51.100.200"), service),
            direction: if self.inbound { Direction::Inbound } else { Direction::Outbound },
        }
    }

    /// A packet of it.
    fn shot(self, flags: u8, payload: usize, exception: Exception) -> Shot {
        let Self { six, tcp, inbound } = self;
        Shot { six, inbound, tcp, client_port: 1, flags, payload, exception }
    }

    fn has(self, shot: &Shot) -> bool {
        (shot.six, shot.tcp, shot.inbound, shot.client_port)
            == (self.six, self.tcp, self.inbound, 1)
    }
}

fn freeze(lab: &Lab, which: Which) -> Result<FlowRewrite, NotSpreadable> {
    lab.path.freeze(View { plan: &lab.plan, fib: &lab.fib }, lab.now, &which.name())
}

/// A datagram's flow is meant once it was answered, or has gone on for long.
fn answered(setting: &Setting, which: Which, mut lab: Lab) -> Lab {
    let answers = matches!(setting.mode, Mode::Fnat | Mode::Nat);
    let (inbound, times) = if answers { (false, 1) } else { (true, 70) };
    if !which.tcp {
        let shot = Which { inbound, ..which }.shot(0, 3, Exception::None);
        (0..times).for_each(|_| _ = lab.one(FRONT, &mut shot.frame(setting)));
    }
    lab
}

/// What a burst came to: each frame as it leaves with its verdict, in the burst's order, and the
/// order in which they went through: those that were dealt, the others, the owner's.
pub(super) struct Outcome {
    pub frames: Vec<MemFrame>,
    pub verdicts: Vec<Verdict>,
    pub order: Vec<usize>,
    pub plain: usize,
}

fn spread(lab: &mut Lab, frozen: &FlowRewrite, before: &[MemFrame]) -> Outcome {
    let Lab { path, plan, fib, now, .. } = lab;
    let out = deal_out((path, View { plan, fib }), (*now, FRONT), frozen, before);
    lab.check_gauges();
    out
}

/// Deals a flow's packets out of a burst.
pub(super) fn deal_out(
    (path, view): (&mut Path, View<'_>),
    (now, port): (Time, PortId),
    frozen: &FlowRewrite,
    before: &[MemFrame],
) -> Outcome {
    let mut burst: ArrayVec<MemFrame, BURST> = before.iter().cloned().collect();
    let (mut plain, mut owners) = (Vec::new(), Vec::new());
    let give = |dealt, at, frame| match dealt {
        Dealt::Plain => plain.push((at, frame)),
        Dealt::Owners => owners.push((at, frame)),
    };
    path.deal(view, now, port, (frozen, false), &mut burst, give);
    let taken: Vec<usize> = plain.iter().chain(&owners).map(|(at, _)| *at).collect();
    let left = (0..before.len()).filter(|at| !taken.contains(at));
    let others: Vec<_> = left.zip(burst).collect();
    let mut out = Outcome {
        frames: before.to_vec(),
        verdicts: vec![Verdict::Wait; before.len()],
        order: Vec::new(),
        plain: plain.len(),
    };
    for (at, mut frame) in plain {
        out.verdicts[at] = frozen.apply(&mut frame);
        (out.frames[at], _) = (frame, out.order.push(at));
    }
    for (at, mut frame) in others.into_iter().chain(owners) {
        let verdicts = std::slice::from_mut(&mut out.verdicts[at]);
        path.turn(view, now, port, std::slice::from_mut(&mut frame), verdicts);
        (out.frames[at], _) = (frame, out.order.push(at));
    }
    out
}

fn any_which() -> impl Strategy<Value = Which> {
    any::<(bool, bool, bool)>().prop_map(|(six, tcp, inbound)| Which { six, tcp, inbound })
}

fn any_mode() -> impl Strategy<Value = Option<Mode>> {
    // Tunnels that no other test of random packets has.
    prop_oneof![4 => Just(None), 1 => Just(Some(Mode::Gue)), 1 => Just(Some(Mode::Gre))]
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn spread_as_alone(
        which in any_which(),
        shots in proptest::collection::vec((any_shot(any::<bool>()), 0u8..4, 1usize..6), 1..40),
        setting in any_setting(),
        mode in any_mode(),
    ) {
        let mode = mode.filter(|_| !setting.crosses && !setting.tells_client);
        let setting = Setting { mode: mode.unwrap_or(setting.mode), idle_s: 0, ..setting };
        // The answers that open datagrams' flows would go to the other worker.
        let workers = if setting.crosses { 1 } else { setting.workers };
        let setting = Setting { workers, ..setting };
        let mut spreading = answered(&setting, which, lab(&setting, Level::detect()));
        let mut reference = answered(&setting, which, general(&setting));
        let past = !matches!(setting.mode, Mode::Fnat | Mode::Nat);
        let frozen = match freeze(&spreading, which) {
            Ok(frozen) => frozen,
            Err(why) => {
                let expected = match why {
                    NotSpreadable::OneWay => past && !which.inbound,
                    NotSpreadable::ClientAddress => setting.tells_client && which.six && which.tcp,
                    _ => false,
                };
                prop_assert!(expected, "{why:?} {setting:?} {which:?}");
                return Ok(());
            }
        };
        // Three of four are of the flow.
        let shots = shots.into_iter().flat_map(|(shot, kind, times)| {
            let Shot { flags, payload, exception, .. } = shot.clone();
            let shot = if kind > 0 { which.shot(flags, payload, exception) } else { shot };
            std::iter::repeat_n(shot, times)
        });
        let shots: Vec<Shot> = shots.take(BURST).collect();
        let before: Vec<MemFrame> = shots.iter().map(|shot| shot.frame(&setting)).collect();
        let out = spread(&mut spreading, &frozen, &before);
        for at in &out.order {
            let mut alone = before[*at].clone();
            let verdict = reference.one(FRONT, &mut alone);
            prop_assert_eq!(verdict, out.verdicts[*at], "{:?}", shots[*at]);
            prop_assert_eq!(&alone, &out.frames[*at], "{:?}", shots[*at]);
        }
        prop_assert_eq!(reference.path.counters(), spreading.path.counters());
        prop_assert_eq!(reference.path.live_sessions(), spreading.path.live_sessions());
        prop_assert_eq!(idle(&reference, which), idle(&spreading, which));
        // Nothing plain is left to the owner before the first that may change the session.
        let usual = |shot: &&Shot| {
            let is_plain = matches!(shot.exception, Exception::None | Exception::Padded(_));
            which.has(shot) && is_plain && (!shot.tcp || shot.flags == ACK) && shot.payload < 100
        };
        // Shorter packets need an identification, or may be cut.
        if setting.crosses && which.six {
            return Ok(());
        }
        let ends = |shot: &Shot| which.has(shot) && shot.tcp && shot.flags & 7 != 0
            || matches!(shot.exception, Exception::Byte { .. });
        prop_assert!(out.plain >= shots.iter().take_while(|s| !ends(s)).filter(usual).count());
    }
}

/// Milliseconds since the flow's last packet, and the session's state.
fn idle(lab: &Lab, which: Which) -> Vec<(u32, crate::session::State)> {
    let mut found = Vec::new();
    let name = which.name();
    let filter = crate::path::SessionFilter {
        client: Some(name.client.0),
        client_port: Some(name.client.1),
        protocol: Some(name.protocol),
        ..Default::default()
    };
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        cursor = lab.path.list(&lab.plan, lab.now, &filter, (from, 4096), &mut found);
    }
    found.iter().map(|session| (session.idle_ms, session.state)).collect()
}

const FNAT: Setting = Setting {
    mode: Mode::Fnat,
    crosses: false,
    tells_client: false,
    workers: 1,
    idle_s: 0,
    hurries: false,
};
const FLOW: Which = Which { six: false, tcp: true, inbound: true };

/// Behind a FIN or reset nothing is dealt, whoever sent it: the owner decides.
#[test]
fn an_end_stops_dealing() {
    for end in [FIN | ACK, RST] {
        let mut lab = lab(&FNAT, Level::detect());
        let frozen = freeze(&lab, FLOW).unwrap();
        let frames: Vec<MemFrame> = [ACK, ACK, end, ACK, ACK]
            .map(|flags| FLOW.shot(flags, 10, Exception::None).frame(&FNAT))
            .to_vec();
        let mut burst: ArrayVec<MemFrame, BURST> = frames.into_iter().collect();
        let mut given = Vec::new();
        let view = View { plan: &lab.plan, fib: &lab.fib };
        let give = |dealt, at, _: MemFrame| given.push((dealt, at));
        assert!(lab.path.deal(view, lab.now, FRONT, (&frozen, false), &mut burst, give));
        let owners = (2..5).map(|at| (Dealt::Owners, at));
        let all: Vec<_> =
            [(Dealt::Plain, 0), (Dealt::Plain, 1)].into_iter().chain(owners).collect();
        assert_eq!(given, all);
        assert!(burst.is_empty());
    }
}

/// What was frozen of a session that is over is refused.
#[test]
fn a_session_that_is_over_is_not_dealt() {
    let mut lab = lab(&FNAT, Level::detect());
    let frozen = freeze(&lab, FLOW).unwrap();
    let view =
        |lab: &Lab| lab.path.is_still(View { plan: &lab.plan, fib: &lab.fib }, lab.now, &frozen);
    assert!(view(&lab));
    lab.one(FRONT, &mut FLOW.shot(RST, 0, Exception::None).frame(&FNAT));
    assert!(!view(&lab));
    assert_eq!(freeze(&lab, FLOW), Err(NotSpreadable::NoSession));
    let mut burst: ArrayVec<MemFrame, BURST> = ArrayVec::new();
    burst.push(FLOW.shot(ACK, 0, Exception::None).frame(&FNAT));
    let views = View { plan: &lab.plan, fib: &lab.fib };
    let only_owners = |dealt, _, _: MemFrame| assert_eq!(dealt, Dealt::Owners);
    assert!(lab.path.deal(views, lab.now, FRONT, (&frozen, false), &mut burst, only_owners));
}

/// Packets that are dealt count as elephants' do that are not.
#[test]
fn a_spread_flow_stays_an_elephant() {
    let mut lab = lab(&FNAT, Level::detect());
    let frozen = freeze(&lab, FLOW).unwrap();
    for _ in 0..2000 {
        let frames = (0..50).map(|_| FLOW.shot(ACK, 60, Exception::None).frame(&FNAT));
        let mut burst: ArrayVec<MemFrame, BURST> = frames.collect();
        let view = View { plan: &lab.plan, fib: &lab.fib };
        lab.path.deal(view, lab.now, FRONT, (&frozen, false), &mut burst, |_, _, _| {});
        lab.now.0 += 1;
    }
    let found = lab.path.elephants(&lab.plan, lab.now, 5);
    assert_eq!(found[0].session.client.1, 3001);
    // Fifty a millisecond, each of a hundred bytes.
    let near = |seen: u64, is: u64| seen > is * 8 / 10 && seen < is * 12 / 10;
    assert!(near(found[0].packets_per_s[0], 50_000), "{found:?}");
    assert!(near(found[0].bytes_per_s[0], 5_000_000), "{found:?}");
}
