//! What the steering program takes for a frame, by `BPF_PROG_TEST_RUN`: nanoseconds as the kernel
//! measures them, the median of several rounds. Nothing is attached to an interface. Needs root.
//!
//! To compare two versions, build this in both trees and run the two programs by turns:
//! `cargo run --release -p sluice-steer --example cost`.

use aya::Ebpf;
use aya::programs::{TestRun, TestRunOptions, Xdp};
use etherparse::PacketBuilder;
use sluice_steer::{
    EndpointMatch, LocalMatch, Matches, Network, OBJECT, PROGRAM, SnatMatch, Steer,
};
use sluice_testkit::world::{LOCAL as LADDR, REAL, VIP};

const ROUNDS: usize = 9;
const REPEAT: u32 = 500_000;
const TCP: u8 = 6;
const INSIDE: [u8; 4] = [192, 0, 2, 130];
const ELSEWHERE: [u8; 4] = [203, 0, 113, 9];

/// Services at hand and beyond, a range, a pool, answers by NAT, and source NAT.
fn matches() -> Matches {
    let ports = (80..=89).step_by(2).map(|port| EndpointMatch::port(TCP, VIP.into(), port));
    let range = EndpointMatch { protocol: TCP, address: VIP.into(), ports: 8000..=8099 };
    let inside = Network { address: INSIDE.into(), prefix: 25 };
    Matches {
        services: ports.chain([range]).collect(),
        locals: vec![LocalMatch { address: LADDR.into(), ports: 1024..=65535, echo: false }],
        reals: vec![EndpointMatch::port(TCP, REAL.into(), 8080)],
        snat: vec![SnatMatch { sources: vec![inside], tcp: true, ..SnatMatch::default() }],
        ..Matches::default()
    }
}

fn frame(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64);
    let mut frame = Vec::new();
    ip.tcp(from.1, to.1, 1, 1000).write(&mut frame, &[0; 6]).expect("a vector has room");
    frame
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut program = Ebpf::load(OBJECT)?;
    let xdp: &mut Xdp = program.program_mut(PROGRAM).ok_or("no program")?.try_into()?;
    xdp.load()?;
    let mut steer = Steer::from_maps(|name| Ok(program.take_map(name).expect("a map of it")))?;
    steer.set(&matches())?;
    let xdp: &Xdp = program.program(PROGRAM).ok_or("no program")?.try_into()?;
    let peer = ([198, 51, 100, 48], 40_000);
    let rows = [
        ("a service's port at hand", frame(peer, (VIP, 80))),
        ("a service's fifth port", frame(peer, (VIP, 88))),
        ("a port of a service's range", frame(peer, (VIP, 8050))),
        ("a local address's port", frame(peer, (LADDR, 5000))),
        ("an answer of a real server", frame((REAL, 8080), (ELSEWHERE, 40_000))),
        ("a connection of source NAT", frame((INSIDE, 40_000), (ELSEWHERE, 443))),
        ("the kernel's", frame(peer, (VIP, 22))),
    ];
    for (what, frame) in &rows {
        let mut rounds = [0; ROUNDS];
        for round in &mut rounds {
            let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
            let result = xdp.test_run(TestRunOptions { repeat: REPEAT, ..options })?;
            *round = result.duration.as_nanos();
        }
        rounds.sort_unstable();
        println!("{:>4} ns  {what}", rounds[ROUNDS / 2]);
    }
    Ok(())
}
