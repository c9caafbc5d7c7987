//! The command line: each option defined and explained once.

pub mod capacity;
pub mod desired;
#[cfg(test)]
mod documents;
pub mod elephants;
pub mod events;
pub mod ha;
pub mod import;
pub mod look;
pub mod machine;
pub mod run;
pub mod sessions;
pub mod token;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;
use sluice::replay::Input;
use sluice_api::model::Elephants;
use sluice_api::{DEFAULT_SOCKET, parse_limit};
use sluice_director::path::Stage;

use crate::complete;

const EXAMPLES: &str = "\
Examples:
  sluice status
  sluice services web
  sluice services --network blue
  sluice sessions --service web --state established --limit 20
  sluice sessions --client 198.51.100.48 --json
  sluice drops --all
  sluice health
  sluice ha check
  sluice stages --interval 5
  sluice metrics | grep sluice_worker
  sluice elephants --limit 10
  sluice trace --filter 'host 203.0.113.9' --count 3
  sluice capture -w drops.pcapng --reason dropped
  sluice top
  sluice doctor
  sluice services --watch
  sluice real drain web 192.0.2.11:80
  sluice config history
  sluice --socket /run/sluice/blue.sock ports
  sluice --url https://lb1.example.net:8443 --token-file ~/.sluice-token status
  sluice replay --config sluice.toml --in front=front.pcap --out-dir out

Exit codes: 0 success, 1 failure (of `config diff`: there is a difference), \
2 the command line is wrong. `doctor` has its own.";

/// What the stages are.
fn stages() -> String {
    let line = |stage: Stage| format!("\n  {:<9} {}", stage.name(), stage.about());
    let lines: String = Stage::ALL.into_iter().map(line).collect();
    format!("Stages, timed in one burst in 32 and as many sweeps:{lines}")
}

const SESSIONS_EXAMPLES: &str = "\
Examples:
  sluice sessions
  sluice sessions --service web --real 192.0.2.11
  sluice sessions --client 198.51.100.48:40000
  sluice sessions --protocol tcp --state syn_recv --limit 1000
  sluice sessions --limit 100000 --json > sessions.json
  sluice sessions kill --client 198.51.100.48 --dry-run
  sluice sessions kill --service web --real 192.0.2.11:80";

const REPLAY_ABOUT: &str = "\
Runs captures through the director's data path.

It needs no director, no root and no network: packets come from capture files (pcap or pcapng), \
the time from their time stamps, and routes and neighbours from the configuration's [[route]] and \
[[neighbour]] sections. Frames of several captures are processed in the order of their time \
stamps. The same input gives the same output, byte for byte.

DIR gets PORT.pcap for each port of the configuration, with the frames that the director would \
have sent there, and counters.json with its counters: services, real servers, reasons, sessions, \
ports. Packets for the kernel (ARP, ping) are counted, not answered.";

const REPLAY_EXAMPLES: &str = "\
Examples:
  sluice replay --config sluice.toml --in front=front.pcap --out-dir out
  sluice replay --config sluice.toml --in front=a.pcap --in back=b.pcap --out-dir out --json

To record a capture: tcpdump -i eth0 -w front.pcap";

/// Shows and changes what a Sluice director does, and replays captures through its data path
#[derive(Debug, Parser)]
#[command(name = "sluice", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    /// How to reach the director.
    #[command(flatten)]
    pub reach: Reach,
    /// When to colour; auto: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        global = true,
        alias = "colour",
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help = "Colours: auto (on a terminal, unless NO_COLOR is set), always, never"
    )]
    pub color: Colour,
    /// Repeat every SECONDS, 0.1 to 3600, two by default; Ctrl-C ends it
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = interval
    )]
    pub watch: Option<f64>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How to reach the director.
#[derive(Debug, Args)]
pub struct Reach {
    /// Control socket of the director
    #[arg(
        long,
        value_name = "PATH",
        env = "SLUICE_SOCKET",
        hide_env_values = true,
        default_value = DEFAULT_SOCKET
    )]
    pub socket: PathBuf,
    /// A director over the network: https://HOST:PORT, as `listen` of its [api] says
    #[arg(long, value_name = "URL", env = "SLUICE_URL", hide_env_values = true)]
    pub url: Option<String>,
    /// File with the token for --url, which only its owner and group may read
    #[arg(long, value_name = "FILE", env = "SLUICE_TOKEN_FILE", hide_env_values = true)]
    pub token_file: Option<PathBuf>,
    /// PEM file with the authority of the certificate behind --url; without it the system's
    #[arg(long, value_name = "FILE", env = "SLUICE_CA", hide_env_values = true)]
    pub ca: Option<PathBuf>,
}

/// When output has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless the environment says otherwise.
    #[default]
    Auto,
    /// In pipes and files, too.
    Always,
    /// Nowhere.
    Never,
}

impl Colour {
    /// Makes it so for standard output and standard error.
    pub fn choose(self) {
        match self {
            Self::Auto => anstream::ColorChoice::Auto,
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Version, configuration, last reload, sessions, memory and workers
    Status(Asking),
    /// Virtual services and their real servers, with sessions, packets and bytes
    Services {
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// Only the services with these names
        #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::services))]
        names: Vec<String>,
        /// Only those in this network; `default` for the default one
        #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::networks))]
        network: Option<String>,
    },
    /// Open sessions: endpoints, state, idle time, time left
    #[command(after_help = SESSIONS_EXAMPLES, args_conflicts_with_subcommands = true)]
    Sessions {
        /// To end them.
        #[command(subcommand)]
        kill: Option<sessions::Doing>,
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// Which.
        #[command(flatten)]
        filter: sessions::Filter,
        /// Which page.
        #[command(flatten)]
        page: sessions::Page,
    },
    /// Ports: state, addresses, traffic, and what XDP steering took or passed
    Ports {
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// Each rule of what is taken from a port: back-end, queue, hits, why not in hardware
        ///
        /// Hits are the packets that a NIC or the XDP program has counted for the rule. In software
        /// only services have any, by whatever port their packets came: the packet path looks up
        /// sessions, not rules, and a counter for each rule would cost every packet.
        #[arg(long)]
        rules: bool,
    },
    /// Isolated networks and the default one: ports, routes, sessions, services, drops
    Networks(Asking),
    /// Why packets were dropped or given to the kernel, with the meaning of each reason
    Drops {
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// Only packets of this service: why it refused new sessions or ended some
        #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::services))]
        service: Option<String>,
        /// Only packets in this network; `default` for the default one
        #[arg(
            long,
            value_name = "NAME",
            conflicts_with = "service",
            add = ArgValueCompleter::new(complete::networks)
        )]
        network: Option<String>,
        /// Also reasons that never happened (the JSON always has them)
        #[arg(long)]
        all: bool,
    },
    /// Health checks: state, since when, last probe, reason
    Health(Asking),
    /// Which virtual addresses this machine holds, since when, and its resulting role
    #[command(after_help = ha::EXAMPLES, args_conflicts_with_subcommands = true)]
    Ha {
        /// To check this director, or to configure keepalived.
        #[command(subcommand)]
        doing: Option<ha::Doing>,
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
    },
    /// Events: health, changes, ports, drops; the latest at the end
    #[command(after_help = events::EXAMPLES)]
    Events(events::Events),
    /// The workers' time: cycles per packet of each stage, burst fill, hit rate
    #[command(after_help = stages())]
    Stages {
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// Seconds to measure, 0.1 to 3600 (the JSON has the counts since the start)
        #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
        interval: f64,
    },
    /// The sessions with the most traffic, with their rates over the last second
    #[command(args_conflicts_with_subcommands = true, after_help = elephants::EXAMPLES)]
    Elephants {
        /// Spreads a flow over several workers, or gathers it in.
        #[command(subcommand)]
        doing: Option<elephants::Doing>,
        /// How to ask.
        #[command(flatten)]
        asking: Asking,
        /// At most this many, up to 1000
        #[arg(
            long,
            value_name = "N",
            default_value_t = Elephants::DEFAULT_LIMIT,
            value_parser = |text: &str| parse_limit(text, Elephants::MAX_LIMIT)
        )]
        limit: u32,
    },
    /// All metrics in Prometheus' text format (`GET /metrics`)
    Metrics {
        /// Control socket of the director, as before the subcommand
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
    },
    /// The desired state: check, show, diff, apply, history, rollback, reload
    #[command(subcommand, after_help = desired::CONFIG_EXAMPLES)]
    Config(desired::Config),
    /// Creates, shows and deletes virtual services
    #[command(subcommand, after_help = desired::SERVICE_EXAMPLES)]
    Service(desired::Service),
    /// Sets weights of, drains, adds and deletes real servers
    #[command(subcommand, after_help = desired::REAL_EXAMPLES)]
    Real(desired::Real),
    /// Creates, shows and deletes local pools
    #[command(subcommand)]
    Pool(desired::Pool),
    /// Creates tokens for the API over the network
    #[command(subcommand, after_help = token::EXAMPLES)]
    Token(token::Token),
    /// Follows packets through the director, decision by decision
    #[command(after_help = look::TRACE_EXAMPLES)]
    Trace(look::Trace),
    /// Captures packets as received and as sent, with the outcome of each, as pcapng
    #[command(after_help = look::CAPTURE_EXAMPLES)]
    Capture(look::Capture),
    /// Runs captures through the director's data path, without a director
    #[command(long_about = REPLAY_ABOUT, after_help = REPLAY_EXAMPLES)]
    Replay(Replay),
    /// A dashboard in the terminal: rates, services, real servers, workers, drops, elephants
    #[command(long_about = machine::TOP_ABOUT)]
    Top(machine::Top),
    /// Checks this machine and the configuration, and prints remedies
    #[command(long_about = machine::DOCTOR_ABOUT)]
    Doctor(machine::Doctor),
    /// Computes what a load needs: memory, workers, local addresses
    #[command(long_about = capacity::ABOUT, after_help = capacity::EXAMPLES)]
    Capacity(capacity::Capacity),
    /// Converts files of keepalived and lists of ipvsadm-save
    #[command(subcommand, after_help = import::EXAMPLES)]
    Import(import::Import),
    /// DPVS's command for addresses, routes, neighbours and links, applied to Linux
    #[command(disable_help_flag = true)]
    Dpip {
        /// An object, a command and more, as `sluice dpip help` shows
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// ipvsadm 1.31, byte for byte and with DPVS's additions, for this director
    #[command(disable_help_flag = true)]
    Ipvsadm {
        /// As `sluice ipvsadm -h` shows; also when called by the name `ipvsadm`
        #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Runs the stock `ipvsadm` with the director in place of the kernel's IPVS
    #[command(long_about = run::IPVSADM_ABOUT, after_help = run::IPVSADM_EXAMPLES)]
    RunIpvsadm(run::Run),
    /// Runs the stock `keepalived` with the director in place of the kernel's IPVS
    #[command(long_about = run::KEEPALIVED_ABOUT, after_help = run::KEEPALIVED_EXAMPLES)]
    RunKeepalived(run::Run),
    /// Prints a completion script for a shell
    #[command(after_help = machine::COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell: bash, zsh, fish, elvish, powershell
        #[arg(value_name = "SHELL", value_parser = complete::shells())]
        shell: String,
    },
    /// Writes the manual pages into a directory
    Man {
        /// The directory, created if it is missing
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

impl Command {
    /// Whether it only shows something, so that it may be asked again and again.
    pub fn shows(&self) -> bool {
        use desired::{Config, Pool, Real, Service};
        match self {
            Self::Config(config) => {
                matches!(config, Config::Show { .. } | Config::Diff { .. } | Config::History { .. })
            }
            Self::Service(service) => matches!(service, Service::Show(_)),
            Self::Real(real) => matches!(real, Real::Show { .. }),
            Self::Pool(pool) => matches!(pool, Pool::Show(_)),
            Self::Ha { doing, .. } => doing.is_none(),
            Self::Elephants { doing, .. } => doing.is_none(),
            Self::Dpip { .. } | Self::Import(_) | Self::Ipvsadm { .. } => false,
            Self::Capacity(_)
            | Self::Replay(_)
            | Self::Top(_)
            | Self::Completions { .. }
            | Self::Man { .. } => false,
            Self::RunIpvsadm(_) | Self::RunKeepalived(_) => false,
            _ => true,
        }
    }
}

pub(crate) fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.1 to 3600".to_owned()),
    }
}

/// How to ask.
#[derive(Debug, Args)]
pub struct Asking {
    /// Print the director's answer as JSON; an error, too
    #[arg(long)]
    pub json: bool,
    /// Control socket of the director, as before the subcommand
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// What to replay.
#[derive(Debug, Args)]
pub struct Replay {
    /// Configuration file of the director
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// What a port receives: its name in the configuration and a capture; may be repeated
    #[arg(long = "in", value_name = "PORT=FILE", required = true)]
    pub inputs: Vec<Input>,
    /// Directory for the output, created if it is missing
    #[arg(long, value_name = "DIR")]
    pub out_dir: PathBuf,
    /// Tell which steering rule takes the packets: what `sluice ports --rules` would list
    #[arg(long)]
    pub rules: bool,
    /// Print counters.json in place of a summary; with --rules, the packets by rule
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use sluice_api::SessionQuery;
    use sluice_api::model::SessionState;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn stages_are_documented() {
        let page = include_str!("../../../docs/cli.md");
        for stage in Stage::ALL {
            let row = format!("| `{}` | {} |\n", stage.name(), stage.about());
            assert!(page.contains(&row), "docs/cli.md has no {row}");
        }
    }

    #[test]
    fn help_says_what_there_is() {
        let mut command = Cli::command().term_width(100);
        command.build();
        insta::assert_snapshot!("help", command.render_long_help());
        for name in ["sessions", "replay", "trace", "capture", "top", "doctor"] {
            let sub = command.find_subcommand_mut(name).expect(name);
            insta::assert_snapshot!(format!("help_{name}"), sub.render_long_help());
        }
    }

    #[test]
    fn states_in_the_help_are_those_that_there_are() {
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("sessions").expect("sessions").render_help();
        let help = help.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let words = SessionState::ALL.map(|state| state.name().to_lowercase()).join(", ");
        assert!(help.contains(&words), "{help}");
        assert!(help.contains(&SessionQuery::MAX_LIMIT.to_string()), "{help}");
    }

    #[test]
    fn a_filter_becomes_a_query() {
        let line = "sluice sessions --service web --network blue --client 198.51.100.48 \
                    --real 192.0.2.11:80 --state fin-wait --protocol tcp --limit 7";
        let cli = Cli::try_parse_from(line.split_whitespace()).expect("a command line");
        let Command::Sessions { filter, page, .. } = cli.command else { panic!("{cli:?}") };
        let query = page.of(filter.query());
        assert_eq!(query.service.as_deref(), Some("web"));
        assert_eq!(query.network.as_deref(), Some("blue"));
        assert_eq!(query.client, "198.51.100.48".parse().ok());
        assert_eq!(query.real, "192.0.2.11:80".parse().ok());
        assert_eq!((query.state, query.protocol), ("FIN_WAIT".parse().ok(), "tcp".parse().ok()));
        assert_eq!(query.limit, 7);
    }
}
