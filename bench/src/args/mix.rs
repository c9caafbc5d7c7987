//! The command line of the mix, and what it means for a run of `throughput`.

use super::suite::Turns;
use super::{Family, Mode, Protocol, Throughput, count};
use crate::traffic::{MIX_FIRST_EVERY, MIX_UDP};
use clap::Args;
use sluice_director::spec::Timeouts;
use std::borrow::Cow;

pub const ABOUT: &str = "\
Cycles a packet of the mix that users have.

Of the packets 70 % are TCP and 30 % UDP, 5 % are the first of a session, and frames have 64 to \
1518 bytes (3/8 of them 64, 1/8 each 128, 256 and 576, 1/4 1518). The others go to random ones of \
the established sessions, half inbound and half outbound. New sessions are not answered and time \
out after one second (TCP) or four (UDP); measuring begins when as many end as begin. One worker, \
then two, then two with half of the outbound packets misdirected (as RSS gives them without Flow \
Director), by turns.

Special paths are judged by this mix: a build with the path and one \
without it take turns.";

#[derive(Clone, Debug, Args)]
pub struct Mix {
    /// Forwarding mode
    #[arg(long, value_enum, default_value_t = Mode::Fnat)]
    pub mode: Mode,
    /// IP version
    #[arg(long, value_enum, default_value_t = Family::V4)]
    pub family: Family,
    /// Established sessions of each worker; 10_000 or 10k or 10M
    #[arg(long, default_value = "1M", value_parser = count)]
    pub sessions: u64,
    /// The most workers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=2))]
    pub workers: u16,
    #[command(flatten)]
    pub turns: Turns,
}

/// Seconds after which a new session's time is over, by protocol. Each established one of UDP is
/// seen some forty times in its seconds, so that none of them expires.
const TCP_S: u32 = 1;
const UDP_S_PER_MILLION: u32 = 4;
/// Seconds of a sweep.
const SWEEP_S: f64 = 2.0;
/// Seconds of a worker's time after which as many sessions end as begin.
pub const SETTLED_S: f64 = UDP_S_PER_MILLION as f64 + SWEEP_S;
/// Sessions that a worker may open in a second: at 40 Mpps.
const OPENED_PER_S: f64 = 40e6 / MIX_FIRST_EVERY as f64;

impl Throughput {
    /// The run that these arguments ask for: of a mix, with room for what comes and goes.
    pub fn settled(&self) -> Cow<'_, Self> {
        if !self.mix {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            protocol: Protocol::Tcp,
            size: None,
            spare: self.waiting(),
            to_come: (OPENED_PER_S * (SETTLED_S + self.seconds)) as u64,
            ..self.clone()
        })
    }

    /// Timeouts of the run: of a mix, new sessions that nobody answers end soon.
    pub fn timeouts(&self) -> Timeouts {
        match self.mix {
            true => Timeouts { tcp_syn_recv_s: TCP_S, udp_s: self.udp_s(), ..Timeouts::default() },
            false => Timeouts::default(),
        }
    }

    /// New sessions that wait for their end.
    fn waiting(&self) -> u32 {
        let udp = f64::from(MIX_UDP) / 10.0;
        let stay_s = [(udp, self.udp_s()), (1.0 - udp, TCP_S)];
        let stay_s = stay_s.map(|(share, stay_s)| share * (f64::from(stay_s) + SWEEP_S));
        (OPENED_PER_S * stay_s.iter().sum::<f64>()) as u32
    }

    fn udp_s(&self) -> u32 {
        let millions = u64::from(self.sessions_each()).div_ceil(1_000_000) as u32;
        UDP_S_PER_MILLION * millions
    }
}
