//! `sluice ha`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Asking;

pub const EXAMPLES: &str = "\
Examples:
  sluice ha
  sluice ha check
  sluice ha drain --stop
  sluice ha upgrade
  sluice ha notify GROUP sluice MASTER 0
  sluice ha config keepalived --interface eth0 --role primary > /etc/keepalived/keepalived.conf";

pub const CHECK_ABOUT: &str = "\
Whether this director may be the VRRP master: exit code 0 yes, 1 no, with the reason.

Ready means: a director answers on the control socket, its workers are listed, its ports are up, \
and its sessions are synchronised where it has a peer for that. It answers within a second, so \
that keepalived's vrrp_script can call it.";

pub const DRAIN_ABOUT: &str = "\
Has another director take over, and waits until it has.

`sluice ha check` fails from now on, so that keepalived lowers the priority of this director and \
moves the addresses. Packets are forwarded as ever. Drained means: this machine has no virtual \
address any more, and the other directors have acknowledged all sessions, or none is left. Exit \
code 0 when it is drained, 1 when the deadline came first.";

pub const DRAIN_EXAMPLES: &str = "\
Examples:
  sluice ha drain
  sluice ha drain --deadline 600 --stop
  sluice ha drain --undo";

pub const UPGRADE_ABOUT: &str = "\
Starts the director's program again and hands over to the new process: connections go on.

The program is read from its path, so that a package that was installed meanwhile takes effect; so \
does the configuration file, as at a restart. The new process readies itself beside the running \
one, which needs packet and session memory for both. Then the sessions and the sockets of AF_XDP \
and AF_PACKET ports change hands within some milliseconds, in which arriving packets wait. Other \
ports (DPDK devices, memif) are opened again, and connections by them pause as over a restart.

If the new process does not come up, the running one goes on and the reason is told. Exit code 0 \
when the new process has taken over, otherwise 1.

With --stand-in the new process is none of the service manager's: the unit of the package calls it \
so at `systemctl restart`, which ends a service before it starts it again.";

pub const UPGRADE_EXAMPLES: &str = "\
Examples:
  sluiced --check /etc/sluice/sluice.toml && sluice ha upgrade
  sluice ha upgrade --json
  kill -USR2 \"$(pidof sluiced)\"       # the same, without waiting for what comes of it";

pub const NOTIFY_ABOUT: &str = "\
Tells the director what keepalived says it has done: called by keepalived, not by people.

With one word: the FIFO to read from, as keepalived's `vrrp_notify_fifo_script` names it; it reads \
until the FIFO ends, and tells what a director that is away has missed when it is back. With four \
words: one transition, as keepalived's `notify` has them.

The director shows and records it (`sluice ha`, `sluice events --kind ha`, metrics) and decides \
nothing by it: its role is by the kernel's addresses.";

pub const NOTIFY_EXAMPLES: &str = "\
Examples:
  sluice ha notify /run/sluice-vrrp.fifo
  sluice ha notify GROUP sluice MASTER 0
  sluice ha notify INSTANCE sluice_v4 BACKUP 240";

pub const KEEPALIVED_ABOUT: &str = "\
Prints a complete keepalived.conf for one of two directors.

VRRPv3, priority 250 for the primary and 240 for the secondary. All VIPs of services and all \
addresses of pools move together, IPv4 in one vrrp_instance, IPv6 in another one, both in one \
vrrp_sync_group. keepalived calls `sluice ha check` every second: a director that is not ready \
loses 20, and one that does not answer is in state FAULT.

With --secondary-vip both directors are active: two groups, each director master of its own and \
backup of the other one's. Addresses of pools move with the director's own VIPs, `peer_addresses` \
with those of the other.";

pub const KEEPALIVED_EXAMPLES: &str = "\
Examples:
  sluice ha config keepalived --interface eth0 --role primary
  sluice ha config keepalived --interface front --local-interface back --role secondary
  sluice ha config keepalived --interface eth0 --role primary \\
      --source 192.0.2.1 --peer 192.0.2.2
  sluice ha config keepalived --interface front --local-interface back --role primary \\
      --address 192.0.2.254 --advert-ms 300 --config /etc/sluice/sluice.toml
  sluice ha config keepalived --interface eth0 --role primary --secondary-vip 198.51.100.201";

/// What there is besides showing.
#[derive(Debug, Subcommand)]
pub enum Doing {
    /// Whether this director may be the VRRP master: exit code 0 yes, 1 no
    #[command(long_about = CHECK_ABOUT)]
    Check(Check),
    /// Has another director take over, and waits until it has
    #[command(long_about = DRAIN_ABOUT, after_help = DRAIN_EXAMPLES)]
    Drain(Drain),
    /// Starts the director's program again and hands over to the new process
    #[command(long_about = UPGRADE_ABOUT, after_help = UPGRADE_EXAMPLES)]
    Upgrade(Upgrade),
    /// Tells the director what keepalived says it has done
    #[command(long_about = NOTIFY_ABOUT, after_help = NOTIFY_EXAMPLES)]
    Notify(Notify),
    /// Prints the configuration of a program that moves the addresses
    #[command(subcommand)]
    Config(Config),
}

/// `sluice ha check`.
#[derive(Debug, Args)]
pub struct Check {
    /// How to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Only whether a director answers on the control socket
    #[arg(long)]
    pub alive: bool,
    /// Stay connected for so long, 1 to 10000, and fail at once when the director ends
    #[arg(long, value_name = "MS", requires = "alive",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub hold_ms: Option<u64>,
    /// With --hold-ms: fail when the API does not answer for so long, 50 to 900; it is asked every
    /// 50 ms
    #[arg(long, value_name = "MS", requires = "hold_ms", default_value_t = 200,
          value_parser = clap::value_parser!(u64).range(50..=900))]
    pub patience_ms: u64,
}

/// `sluice ha drain`.
#[derive(Debug, Args)]
pub struct Drain {
    /// How to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// Most seconds to wait, 0 to 86400
    #[arg(long, value_name = "S", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub deadline: u64,
    /// Stop the director of this machine afterwards, at the deadline at the latest
    #[arg(long, conflicts_with = "undo")]
    pub stop: bool,
    /// Take it back
    #[arg(long)]
    pub undo: bool,
}

/// `sluice ha upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// How to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// For a restart by the service manager: the new process forwards until the manager has started
    /// another, which takes over from it; after 60 s without one it stops
    #[arg(long)]
    pub stand_in: bool,
}

/// `sluice ha notify`.
#[derive(Debug, Args)]
pub struct Notify {
    /// How to ask.
    #[command(flatten)]
    pub asking: Asking,
    /// A FIFO; or GROUP or INSTANCE, its name, its state (MASTER, BACKUP, FAULT, STOP, DELETED) and
    /// its priority
    #[arg(required = true, num_args = 1..=4, value_name = "WORD")]
    pub words: Vec<String>,
}

/// `sluice ha config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Prints keepalived.conf for one of two directors
    #[command(long_about = KEEPALIVED_ABOUT, after_help = KEEPALIVED_EXAMPLES)]
    Keepalived(Keepalived),
}

/// Which of the two directors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Master whenever it is ready.
    Primary,
    /// Master while the primary is not.
    Secondary,
}

impl Role {
    /// Its VRRP priority.
    pub const fn priority(self) -> u8 {
        match self {
            Self::Primary => 250,
            Self::Secondary => 240,
        }
    }

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
        }
    }
}

/// `sluice ha config keepalived`.
#[derive(Debug, Args)]
pub struct Keepalived {
    /// Interface that sends and receives adverts and gets the VIPs
    #[arg(long, value_name = "IF", value_parser = interface)]
    pub interface: String,
    /// Interface that gets the addresses of pools, unless only source NAT uses them; default:
    /// that of --interface
    #[arg(long, value_name = "IF", value_parser = interface)]
    pub local_interface: Option<String>,
    /// Which of the two directors: primary (priority 250), secondary (240)
    #[arg(long, value_name = "ROLE", hide_possible_values = true)]
    pub role: Role,
    /// Virtual router identifier, 1 to 255, the same at both and unique on the network
    #[arg(long, value_name = "N", default_value_t = 51,
          value_parser = clap::value_parser!(u8).range(1..))]
    pub virtual_router_id: u8,
    /// Send adverts by unicast from this address; one for each family that moves
    #[arg(long, value_name = "ADDRESS", requires = "peer")]
    pub source: Vec<IpAddr>,
    /// Send adverts by unicast to this address; may be repeated
    #[arg(long, value_name = "ADDRESS", requires = "source", num_args = 1..)]
    pub peer: Vec<IpAddr>,
    /// Milliseconds between adverts, 10 to 40950, a multiple of 10, the same at both
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = advert)]
    pub advert_ms: u32,
    /// Another address that moves, such as the gateway of real servers; it goes to
    /// --local-interface; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub address: Vec<IpAddr>,
    /// Both are active: this VIP is the secondary's while it is ready, all others are the
    /// primary's; the same at both, may be repeated. Pools then need `peer_addresses`
    #[arg(long, value_name = "VIP", num_args = 1..)]
    pub secondary_vip: Vec<IpAddr>,
    /// Configuration file; default: what the running director has, else /etc/sluice/sluice.toml
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// A name that the kernel allows for an interface and keepalived reads as one word.
fn interface(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    match (1..=15).contains(&text.len()) && text.chars().all(plain) && ![".", ".."].contains(&text)
    {
        true => Ok(text.to_owned()),
        false => Err("an interface has 1 to 15 letters, digits, '.', '_', '-'".to_owned()),
    }
}

/// Adverts of VRRPv3 have their interval in hundredths of a second, in 12 bits.
fn advert(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(ms) if (10..=40_950).contains(&ms) && ms % 10 == 0 => Ok(ms),
        _ => Err("a number of milliseconds from 10 to 40950, a multiple of 10".to_owned()),
    }
}
