//! The steering program in the kernel, run on frames by `BPF_PROG_TEST_RUN`.
//!
//! Nothing is attached to any interface. No socket is bound either, so a frame that is the
//! director's passes too, but is counted as unowned: the counters tell. Needs CAP_BPF and
//! CAP_NET_ADMIN (root).
#![allow(dead_code, unused_macros, unused_imports)] // Each test file uses its part.

pub mod scene;

use std::io::Write;

use aya::Ebpf;
use aya::programs::{TestRun, TestRunOptions, Xdp};
use sluice_steer::{Matches, OBJECT, PROGRAM, Steer};

const XDP_PASS: u32 = 2;

/// Ends a test where the kernel would not load a program. Says so, past the test harness's capture.
macro_rules! needs_root {
    () => {
        if !bench::may_run(std::thread::current().name().unwrap_or("a test")) {
            return;
        }
    };
}

pub(crate) use needs_root;

pub fn may_run(name: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut effective = status.lines().filter_map(|line| line.strip_prefix("CapEff:"));
    let effective = u64::from_str_radix(effective.next().unwrap().trim(), 16).unwrap();
    const NET_ADMIN: u64 = 1 << 12;
    const BPF: u64 = 1 << 39;
    if effective & (NET_ADMIN | BPF) == NET_ADMIN | BPF {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{name} needs CAP_BPF");
    let line = format!("skipped: {name}: BPF programs need root\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    false
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Director,
    Kernel,
}

/// The program, loaded, with its maps.
pub struct Bench {
    pub program: Ebpf,
    pub steer: Steer,
}

impl Bench {
    pub fn new() -> Self {
        let mut program = Ebpf::load(OBJECT).expect("the program loads");
        let xdp: &mut Xdp = program.program_mut(PROGRAM).expect("by its name").try_into().unwrap();
        xdp.load().expect("the verifier takes the program");
        let steer = Steer::from_maps(|name| Ok(program.take_map(name).expect("a map of it")));
        Self { program, steer: steer.expect("maps of the right kinds") }
    }

    pub fn configured(matches: &Matches) -> Self {
        let mut bench = Self::new();
        bench.steer.set(matches).expect("room for a few entries");
        bench
    }

    /// What becomes of a frame.
    pub fn fate(&mut self, frame: &[u8]) -> Fate {
        let before = self.steer.counters().unwrap();
        let xdp: &Xdp = self.program.program(PROGRAM).unwrap().try_into().unwrap();
        let options = TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() };
        let result = xdp.test_run(options).expect("the kernel runs the program");
        assert_eq!(result.return_value, XDP_PASS, "no socket is bound");
        let after = self.steer.counters().unwrap();
        match (after.unowned - before.unowned, after.passed - before.passed) {
            (1, 0) => Fate::Director,
            (0, 1) => Fate::Kernel,
            counted => panic!("one frame was counted as {counted:?}"),
        }
    }
}
