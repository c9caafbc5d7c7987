//! `sluice capacity`: what a load needs, by the figures of docs/operations.md.

use std::error::Error;
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::capacity::{Capacity, Mode, Port};
use crate::output::Output;
use crate::show::{Shown, count, memory};

/// Memory of each place for a session, its share of the index included (docs/operations.md).
pub(crate) const SESSION_BYTES: u64 = 62;
/// What the extended table takes in addition.
pub(crate) const WIDE_SESSION_BYTES: u64 = 94;
const HUGE_PAGE: u64 = 2 << 20;
/// Tables go to huge pages only if there is room for those of both kinds.
const HUGE_SESSION_BYTES: u64 = 96;
/// Pages of a worker's table that are not full.
const HUGE_PAGES_OF_A_TABLE: u64 = 10;
/// Connections a second that a local address carries to a real server which closes them first: one
/// refuses ports that it has seen within a minute (docs/race.md).
const CLOSED_BY_A_REAL_SERVER: f64 = 1075.0;
/// Connections, opened and closed, that a core carries in a second: cautious, since the worker's
/// loop in memory does one to four million (docs/benchmarks.md).
const CONNECTIONS_PER_CORE: u64 = 500_000;
/// Bytes of a report of a session between directors: 31.5 in datagrams (`make sync`), and their
/// headers.
const REPORT_BYTES: f64 = 33.0;
/// A connection is reported when its handshake is complete, and when it ends.
const REPORTS_OF_A_CONNECTION: f64 = 2.0;
/// A session in use is reported again after so many seconds, or two more.
const REFRESH_S: f64 = 8.0;

/// What is needed.
#[derive(Debug, PartialEq)]
struct Need {
    sessions: u64,
    /// `limits.sessions`: a third more, since no table is to run full at the peak.
    limit: u64,
    memory_bytes: u64,
    huge_pages: u64,
    packets: u64,
    per_core: u64,
    workers: u64,
    local_addresses: u64,
    reports_per_s: u64,
    sync_bits_per_s: u64,
}

impl Need {
    fn of(asked: &Capacity) -> Self {
        let lasting = asked.duration.map(|seconds| asked.connections.saturating_mul(seconds));
        let sessions = asked.sessions.or(lasting).unwrap_or(1);
        let limit = sessions.saturating_mul(4).div_ceil(3).next_multiple_of(1000);
        let (of_one, tables) = match asked.ipv6 {
            true => (SESSION_BYTES + WIDE_SESSION_BYTES, 2),
            false => (SESSION_BYTES, 1),
        };
        let packets = asked.packets.unwrap_or(asked.connections.saturating_mul(10));
        // At half of a core's time.
        let per_core = asked.packets_per_core.unwrap_or(match asked.port {
            Port::AfXdp => 350_000,
            Port::AfPacket => 160_000,
            Port::Memif => 2_500_000,
            Port::Nic => 10_000_000,
        });
        let share = packets as f64 / per_core as f64
            + asked.connections as f64 / CONNECTIONS_PER_CORE as f64;
        // One more: flows do not spread evenly.
        let workers = share.ceil() as u64 + 1;
        // An address and port carries one session to each endpoint of a real server; ports are
        // found quickly as long as a quarter is free.
        let reals = asked.real_servers as f64;
        let at_once = sessions as f64 / (asked.ports as f64 * reals * 0.75);
        let in_a_minute = asked.connections as f64 / (CLOSED_BY_A_REAL_SERVER * reals);
        let local_addresses = match asked.mode {
            Mode::Fnat => at_once.max(in_a_minute).ceil() as u64,
            Mode::Nat | Mode::Dr | Mode::Tunnel => 0,
        };
        let reports =
            asked.connections as f64 * REPORTS_OF_A_CONNECTION + sessions as f64 / REFRESH_S;
        Self {
            sessions,
            limit,
            memory_bytes: limit.saturating_mul(of_one),
            huge_pages: limit.saturating_mul(of_one.max(HUGE_SESSION_BYTES)).div_ceil(HUGE_PAGE)
                + workers.saturating_mul(HUGE_PAGES_OF_A_TABLE * tables),
            packets,
            per_core,
            workers,
            local_addresses,
            reports_per_s: reports as u64,
            sync_bits_per_s: (reports * REPORT_BYTES * 8.0) as u64,
        }
    }

    fn json(&self) -> Value {
        json!({
            "sessions": self.sessions,
            "limits_sessions": self.limit,
            "memory_bytes": self.memory_bytes,
            "huge_pages_2m": self.huge_pages,
            "packets_per_s": self.packets,
            "packets_per_s_per_core": self.per_core,
            "workers": self.workers,
            "local_addresses": self.local_addresses,
            "sync_reports_per_s": self.reports_per_s,
            "sync_bits_per_s": self.sync_bits_per_s,
        })
    }

    fn text(&self, asked: &Capacity) -> String {
        let table = if asked.ipv6 { "both tables" } else { "the IPv4 table" };
        let locals = match self.local_addresses {
            0 => "none: only fnat takes them".to_owned(),
            n => format!(
                "{} of {} ports, for {} endpoints of real servers",
                count(n),
                count(asked.ports),
                count(asked.real_servers)
            ),
        };
        format!(
            "sessions            {} at the peak: `sessions = {}` in [limits]\n\
             memory              {} in {table}, or {} huge pages of 2 MiB, beside packet buffers\n\
             workers             {} (`cores`), at {} packets/s a core and {} packets/s\n\
             local addresses     {locals}\n\
             synchronisation     {} reports/s, {:.1} Mbit/s to each peer\n",
            count(self.sessions),
            self.limit,
            memory(self.memory_bytes),
            count(self.huge_pages),
            count(self.workers),
            count(self.per_core),
            count(self.packets),
            count(self.reports_per_s),
            self.sync_bits_per_s as f64 / 1e6,
        )
    }
}

/// Prints what a load needs.
pub fn run(asked: &Capacity) -> Result<ExitCode, Box<dyn Error>> {
    let need = Need::of(asked);
    if asked.json {
        Output::write(&Shown::new(serde_json::to_string_pretty(&need.json())? + "\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let remark = match asked.packets_per_core {
        Some(_) => None,
        None => Some(
            "Packets a core depend on the machine and its ports: measure, and give \
             --packets-per-core."
                .to_owned(),
        ),
    };
    Output::write(&Shown { text: need.text(asked), remark })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Capacity {
        Capacity {
            sessions: None,
            connections: 50_000,
            duration: Some(40),
            packets: Some(4_000_000),
            real_servers: 20,
            mode: Mode::Fnat,
            ports: 64_512,
            ipv6: false,
            port: Port::Nic,
            packets_per_core: None,
            json: false,
        }
    }

    #[test]
    fn what_a_load_needs() {
        let need = Need::of(&asked());
        assert_eq!(need.sessions, 2_000_000);
        assert_eq!(need.limit, 2_667_000);
        assert_eq!(need.memory_bytes, 2_667_000 * 62);
        // 256 MB, and ten for each worker.
        assert_eq!(need.huge_pages, 123 + 20);
        // 0.4 of a core for packets, 0.1 for connections; and one more.
        assert_eq!(need.workers, 2);
        // 967,680 sessions an address; 21,500 connections a second.
        assert_eq!(need.local_addresses, 3);
        assert_eq!(need.reports_per_s, 350_000);
        insta::assert_snapshot!(need.text(&asked()));
    }

    #[test]
    fn each_option_counts() {
        let with = |change: fn(&mut Capacity)| {
            let mut other = asked();
            change(&mut other);
            Need::of(&other)
        };
        assert_eq!(with(|it| it.mode = Mode::Dr).local_addresses, 0);
        assert_eq!(with(|it| it.real_servers = 1).local_addresses, 47);
        assert_eq!(with(|it| it.ports = 1000).local_addresses, 134);
        assert_eq!(with(|it| it.ipv6 = true).memory_bytes, 2_667_000 * 156);
        assert_eq!(with(|it| it.ipv6 = true).huge_pages, 199 + 40);
        assert_eq!(with(|it| it.port = Port::AfXdp).workers, 13);
        assert_eq!(with(|it| it.packets_per_core = Some(1_000_000)).workers, 6);
        assert_eq!(with(|it| it.packets = None).packets, 500_000);
        assert_eq!(with(|it| it.sessions = Some(3)).sessions, 3);
        // The largest numbers that can be asked for.
        let most = with(|it| {
            (it.connections, it.duration) = (1_000_000_000_000, Some(1_000_000_000_000));
        });
        assert_eq!(most.sessions, u64::MAX);
    }
}
