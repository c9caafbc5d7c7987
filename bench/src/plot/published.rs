//! What others have published, and what was measured of them.
//!
//! HDSLB: Intel's papers of 2023, with a network card in the figure: Xeon Platinum 8380, 2.3 GHz,
//! turbo off, E810 of 100 Gbit/s. VPP, Katran and DPVS were measured on another virtual machine
//! (Sapphire Rapids, TSC 2.0 GHz), one core, no network card, unless a figure says another thing.
//! So none was measured where Sluice was.

use super::chart::Series;

/// One figure as a bar.
pub struct Figure {
    pub who: &'static str,
    pub of: &'static str,
    pub value: f64,
}

/// Figures by number of sessions. One whose number of sessions was not told is a line over all.
pub struct Others {
    pub name: &'static str,
    pub points: &'static [(f64, f64)],
    /// What is in it.
    pub note: &'static str,
}

/// The ends of a line over all numbers of sessions.
const ALL: [f64; 2] = [1e4, 2.56e8];

pub fn series(others: &Others) -> Series {
    let points = others.points.iter().map(|(x, y)| (*x, *y, None));
    Series::new(others.name.to_owned(), points.collect(), false)
}

pub fn notes(all: &[Others]) -> Vec<String> {
    all.iter().map(|others| format!("{}: {}.", others.name, others.note)).collect()
}

/// What holds for all bars of others.
pub const ELSEWHERE: &str = "Others, elsewhere: HDSLB as published (Xeon 8380 2.3 GHz, card of \
    100 Gbit/s); VPP and DPVS measured on a virtual Xeon, TSC 2.0 GHz.";

/// Nanoseconds a packet.
pub const TIME_BY_SESSIONS: [Others; 5] = [
    Others {
        name: "HDSLB fnat",
        points: &[(1e7, 96.0)],
        note: "published, 221 core cycles at 2.3 GHz, network card included",
    },
    Others {
        name: "VPP lb nat4",
        points: &[(4e3, 47.5), (1e5, 95.5), (1e6, 97.5), (8e6, 98.0)],
        note: "measured at TSC 2.0 GHz, no card or generator; compares a hash, stores no key",
    },
    Others {
        name: "VPP cnat",
        points: &[(4e3, 85.0), (1e5, 241.5), (1e6, 281.0)],
        note: "measured at TSC 2.0 GHz, no card or generator",
    },
    Others {
        name: "Katran IPIP",
        points: &[(4e3, 95.0), (1e5, 258.0), (1e6, 437.0)],
        note: "measured, the XDP program alone (at 100 k: the middle of 194 to 323)",
    },
    Others {
        name: "DPVS fnat",
        points: &[(4e3, 119.0), (1e6, 612.0)],
        note: "measured, both directions, packets made in its own receive call",
    },
];

/// Bytes a session.
pub const MEMORY: [Others; 4] = [
    Others {
        name: "HDSLB",
        points: &[(2.56e8, 273.0), (1.024e9, 180.0)],
        note: "published: 70 GB for 256 M, 184 GB for 1024 M",
    },
    Others { name: "Katran", points: &[(ALL[0], 120.0), (ALL[1], 120.0)], note: "a map's entry" },
    Others {
        name: "VPP cnat",
        points: &[(ALL[0], 815.0), (ALL[1], 815.0)],
        note: "measured, both directions",
    },
    Others {
        name: "DPVS",
        points: &[(ALL[0], 900.0), (ALL[1], 900.0)],
        note: "576 of a connection and about as many again of its pools",
    },
];

pub const MODES: [Figure; 4] = [
    Figure { who: "HDSLB", of: "fnat IPv4, 10 M sessions, with card (NDR)", value: 10.3 },
    Figure { who: "VPP lb nat4", of: "1 M sessions, over memif, one core", value: 8.15 },
    Figure { who: "Katran", of: "DSR, 3.6 GHz, with card", value: 5.2 },
    Figure { who: "DPVS", of: "fnat, 1 M sessions, memif", value: 1.1 },
];

/// Millions a second.
pub const CONNECTIONS: [Figure; 3] = [
    Figure { who: "HDSLB", of: "nat IPv4, one core 2.3 GHz, HTTP, with card", value: 1.0 },
    Figure { who: "Open HDSLB on DPDK", of: "new TCP sessions a core (over)", value: 0.8 },
    Figure { who: "DPVS on Octeon", of: "fnat, one Arm core, with card", value: 0.22 },
];

pub const ELEPHANT: [Figure; 2] = [
    Figure { who: "HDSLB", of: "share 1, one core, with card", value: 3.1 },
    Figure { who: "HDSLB with DLB hardware", of: "share 1, 8 + 2 cores, card", value: 22.0 },
];

pub const SCALING: [Figure; 3] = [
    Figure { who: "HDSLB", of: "1 core, 10 M sessions, with card (NDR)", value: 10.3 },
    Figure { who: "HDSLB", of: "2 cores (1.94×)", value: 20.0 },
    Figure { who: "HDSLB", of: "4 cores (3.83×)", value: 39.4 },
];
