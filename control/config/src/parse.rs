//! From text to a checked configuration.

mod api;
mod check;
mod ipvs;
mod service;
mod sync;
mod values;

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path as FilePath;

use sluice_director::spec::Timeouts;
use toml::de::DeTable;

use crate::address::parse_address;
use crate::device::parse_interface;
use crate::errors::Diagnostic;
use crate::read::Table;
use crate::report::{Origin, Report};
use crate::schema::Key;
use crate::schema::keys::{
    self, FILE, announce, director, elephants, icmp, ipip, limits, metrics, neighbour, network,
    pool, port, route, snat, tcp, timeouts,
};
use crate::words::SnatProtocol;
use crate::{
    AddressRange, Announce, Config, ConfigErrors, Device, Director, Document, Elephants, Icmp,
    Ipip, IsolatedNetwork, Limits, Mac, Metrics, Neighbour, Pool, Port, Prefix, Route, Snat, Tcp,
    check as rules, document, syntax,
};
use values::{
    any_text, parse_folder, parse_group, parse_name, parse_network, parse_network_name,
    parse_ports, parse_socket, parse_source_v4, parse_source_v6,
};

/// The largest file that is read, in bytes.
const FILE_BYTES: u64 = 1 << 30;
/// Stands for an address that could not be read.
pub(crate) const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A configuration that may be used, and what is questionable about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What is legal but probably not meant, in the order of the file. What depends on where the
    /// configuration is used comes from [`Loaded::check_live`] and [`Loaded::check_machine`].
    pub warnings: Vec<Diagnostic>,
    /// The same as the file has it, section by section.
    pub document: Document,
    pub(crate) origin: Origin,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors::Unreadable`] when the file cannot be read, is larger than 1 GiB or is not
    /// UTF-8; [`ConfigErrors::Invalid`] with everything that is wrong with its content.
    pub fn load(path: impl AsRef<FilePath>) -> Result<Loaded, ConfigErrors> {
        let path = path.as_ref();
        let file = path.display().to_string();
        Self::parse(&file, &read_text(path, &file)?)
    }

    /// Checks `text`; messages call the file `file`.
    ///
    /// # Errors
    ///
    /// [`ConfigErrors::Invalid`] with everything that is wrong with the text.
    pub fn parse(file: &str, text: &str) -> Result<Loaded, ConfigErrors> {
        // Some editors begin a file with a mark that is no part of its first line.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut report = Report::new(file, text);
        let (document, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            syntax::report_all(&errors, text, &mut report);
            return Err(report.into_errors(&Self::default()));
        }
        let config = read(Table::file(document.get_ref(), &mut report), &mut report);
        rules::errors(&config, &rules::BOUNDS, &mut report);
        if report.has_errors() {
            return Err(report.into_errors(&config));
        }
        rules::warnings(&config, &mut report);
        let warnings = report.take_diagnostics(&config);
        let document = document::of_file(document.get_ref());
        Ok(Loaded { config, warnings, document, origin: report.into_origin() })
    }
}

impl Default for Config {
    /// What an empty file would say: every default, and no port, pool or service.
    fn default() -> Self {
        read(Table::absent(&FILE), &mut Report::default())
    }
}

fn read_text(path: &FilePath, file: &str) -> Result<String, ConfigErrors> {
    let unreadable = |what: String, hint, source| ConfigErrors::Unreadable {
        file: file.to_owned(),
        what,
        hint,
        source,
    };
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|opened| opened.take(FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            let hint = "name a configuration file that this user may read";
            unreadable(format!("cannot be read: {error}"), hint, Some(error))
        })?;
    if bytes.len() as u64 > FILE_BYTES {
        let hint = "name a configuration file in TOML";
        return Err(unreadable(format!("has more than {FILE_BYTES} bytes"), hint, None));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|&&byte| byte == b'\n').count() + 1;
        let hint = "save the file as UTF-8 text";
        unreadable(format!("line {line} is not UTF-8 (at byte {valid})"), hint, None)
    })
}

pub(crate) fn read(file: Table<'_>, report: &mut Report) -> Config {
    let limits = file.one(&limits::SECTION, report);
    let tcp = file.one(&tcp::SECTION, report);
    let icmp = file.one(&icmp::SECTION, report);
    let elephants = file.one(&elephants::SECTION, report);
    let ipip = file.one(&ipip::SECTION, report);
    let metrics = file.one(&metrics::SECTION, report);
    let announce = file.one(&announce::SECTION, report);
    Config {
        director: read_director(file.one(&director::SECTION, report), report),
        api: api::read(file.one(&keys::api::SECTION, report), report),
        limits: Limits {
            sessions: limits.integer(&limits::SESSIONS, report),
            held_frames: limits.integer(&limits::HELD_FRAMES, report),
            fragments: limits.integer(&limits::FRAGMENTS, report),
        },
        timeouts: read_timeouts(file.one(&timeouts::SECTION, report), report),
        tcp: Tcp {
            no_session: tcp.word(&tcp::NO_SESSION, report),
            accept_mid_stream: tcp.boolean(&tcp::ACCEPT_MID_STREAM, report),
        },
        elephants: Elephants {
            mode: elephants.word(&elephants::MODE, report),
            packets_per_s: elephants.integer(&elephants::PACKETS_PER_S, report),
            bits_per_s: elephants.integer(&elephants::BITS_PER_S, report),
            worker_percent: elephants.integer(&elephants::WORKER_PERCENT, report),
            leave_after_s: elephants.integer(&elephants::LEAVE_AFTER_S, report),
            max_flows: elephants.integer(&elephants::MAX_FLOWS, report),
            workers: elephants.integer(&elephants::WORKERS, report),
        },
        icmp: Icmp {
            errors_per_s: icmp.integer(&icmp::ERRORS_PER_S, report),
            refused: icmp.word(&icmp::REFUSED, report),
        },
        ipip: Ipip {
            source_v4: ipip.parsed(&ipip::SOURCE_V4, parse_source_v4, report),
            source_v6: ipip.parsed(&ipip::SOURCE_V6, parse_source_v6, report),
        },
        sync: sync::read(file.one(&keys::sync::SECTION, report), report),
        announce: Announce {
            interface: announce.parsed(&announce::INTERFACE, parse_interface, report),
            peer_interface: announce.parsed(&announce::PEER_INTERFACE, parse_interface, report),
        },
        ipvs: ipvs::read(file.one(&keys::ipvs::SECTION, report), report),
        metrics: Metrics { real_servers: metrics.boolean(&metrics::REAL_SERVERS, report) },
        networks: each(file.many(&network::SECTION, report), report, read_network),
        ports: each(file.many(&port::SECTION, report), report, read_port),
        pools: each(file.many(&pool::SECTION, report), report, read_pool),
        services: each(file.many(&keys::service::SECTION, report), report, service::read),
        checks: each(file.many(&keys::check::SECTION, report), report, self::check::read),
        snat: each(file.many(&snat::SECTION, report), report, read_snat),
        routes: each(file.many(&route::SECTION, report), report, read_route),
        neighbours: each(file.many(&neighbour::SECTION, report), report, read_neighbour),
    }
}

fn each<T>(
    tables: Vec<Table<'_>>,
    report: &mut Report,
    read: fn(Table<'_>, &mut Report) -> T,
) -> Vec<T> {
    tables.into_iter().map(|table| read(table, report)).collect()
}

fn read_director(table: Table<'_>, report: &mut Report) -> Director {
    let probes = table.list(&director::PROBE_ADDRESSES, parse_address, report);
    Director {
        cores: table.integers(&director::CORES, report),
        idle: table.word(&director::IDLE, report),
        huge_pages: table.word(&director::HUGE_PAGES, report),
        log_level: table.word(&director::LOG_LEVEL, report),
        log_format: table.word(&director::LOG_FORMAT, report),
        control_socket: table
            .parsed_or_default(&director::CONTROL_SOCKET, parse_socket, report)
            .unwrap_or_default(),
        control_group: table
            .parsed_or_default(&director::CONTROL_GROUP, parse_group, report)
            .unwrap_or_default(),
        state_dir: table
            .parsed_or_default(&director::STATE_DIR, parse_folder, report)
            .unwrap_or_default(),
        keep_sessions: table.boolean(&director::KEEP_SESSIONS, report),
        hold_s: table.integer(&director::HOLD_S, report),
        hash_seed: table.integer(&director::HASH_SEED, report),
        probe_addresses: probes.into_iter().flatten().flatten().collect(),
    }
}

fn read_timeouts(table: Table<'_>, report: &mut Report) -> Timeouts {
    Timeouts {
        tcp_syn_recv_s: table.integer(&timeouts::SYN_RECV, report),
        tcp_established_s: table.integer(&timeouts::ESTABLISHED, report),
        tcp_fin_wait_s: table.integer(&timeouts::FIN_WAIT, report),
        tcp_close_wait_s: table.integer(&timeouts::CLOSE_WAIT, report),
        tcp_last_ack_s: table.integer(&timeouts::LAST_ACK, report),
        tcp_time_wait_s: table.integer(&timeouts::TIME_WAIT, report),
        tcp_close_s: table.integer(&timeouts::CLOSE, report),
        udp_s: table.integer(&timeouts::UDP, report),
        one_packet_s: table.integer(&timeouts::ONE_PACKET, report),
        sctp_s: table.integer(&timeouts::SCTP, report),
        icmp_s: table.integer(&timeouts::ICMP, report),
        other_s: table.integer(&timeouts::OTHER, report),
    }
}

fn read_network(table: Table<'_>, report: &mut Report) -> IsolatedNetwork {
    let cidr = prefixes(table, &network::CIDR, report);
    if cidr.as_ref().is_some_and(Vec::is_empty) {
        let path = table.path.key(network::CIDR.name);
        report.error(path, "the list is empty", "leave the key out for all addresses");
    }
    IsolatedNetwork {
        name: table.parsed(&network::NAME, parse_network_name, report).unwrap_or_default(),
        table: table.integer_if_given(&network::TABLE, report),
        vrf: table.parsed(&network::VRF, parse_interface, report),
        cidr: cidr.unwrap_or_default(),
        tunnel: Ipip {
            source_v4: table.parsed(&network::SOURCE_V4, parse_source_v4, report),
            source_v6: table.parsed(&network::SOURCE_V6, parse_source_v6, report),
        },
        sessions: table.integer(&network::SESSIONS, report),
        probe_addresses: table
            .list(&network::PROBE_ADDRESSES, parse_address, report)
            .into_iter()
            .flatten()
            .flatten()
            .collect(),
        announce: Announce {
            interface: table.parsed(&network::ANNOUNCE, parse_interface, report),
            peer_interface: table.parsed(&network::ANNOUNCE_PEERS, parse_interface, report),
        },
    }
}

/// The name of the network that a table is in; empty for the default one.
fn network_of(table: Table<'_>, key: &'static Key, report: &mut Report) -> String {
    table.parsed(key, parse_network, report).unwrap_or_default()
}

fn read_port(table: Table<'_>, report: &mut Report) -> Port {
    // A device that could not be read is taken for one that allows everything else.
    let unknown = Device::Dpdk { devargs: String::new() };
    Port {
        name: table.parsed(&port::NAME, parse_name, report).unwrap_or_default(),
        device: table.parsed(&port::DEVICE, str::parse, report).unwrap_or(unknown),
        network: network_of(table, &port::NETWORK, report),
        queues: table.integer_if_given(&port::QUEUES, report),
        twin: table.parsed(&port::TWIN, parse_interface, report),
        mac: table.parsed(&port::MAC, str::parse, report),
        mtu: table.integer_if_given(&port::MTU, report),
        flow_rules: table.boolean(&port::FLOW_RULES, report),
    }
}

fn read_pool(table: Table<'_>, report: &mut Report) -> Pool {
    // An item that could not be read keeps its place, so that the others keep their numbers.
    let unknown = AddressRange::from(NO_ADDRESS);
    let mut ranges = |key| {
        let read = table.list::<AddressRange>(key, str::parse, report).unwrap_or_default();
        read.into_iter().map(|range| range.unwrap_or(unknown)).collect()
    };
    let (addresses, peer_addresses) = (ranges(&pool::ADDRESSES), ranges(&pool::PEER_ADDRESSES));
    Pool {
        name: table.parsed(&pool::NAME, parse_name, report).unwrap_or_default(),
        network: network_of(table, &pool::NETWORK, report),
        addresses,
        peer_addresses,
        ports: table.parsed_or_default(&pool::PORTS, parse_ports, report).unwrap_or(1..=u16::MAX),
    }
}

fn read_snat(table: Table<'_>, report: &mut Report) -> Snat {
    table.labels(&keys::service::LABELS, report);
    let protocols = table.words::<SnatProtocol>(&snat::PROTOCOLS, report);
    Snat {
        name: table.parsed(&snat::NAME, parse_name, report).unwrap_or_default(),
        network: network_of(table, &snat::NETWORK, report),
        sources: prefixes(table, &snat::SOURCES, report).unwrap_or_default(),
        destinations: prefixes(table, &snat::DESTINATIONS, report),
        protocols: protocols.map(|words| words.into_iter().map(|word| word.0).collect()),
        egress: table.parsed(&snat::EGRESS, any_text, report),
        pool: table.parsed(&snat::POOL, any_text, report).unwrap_or_default(),
        mapping: table.word(&snat::MAPPING, report),
        hairpinning: table.boolean(&snat::HAIRPINNING, report),
        tcp_established_s: table.integer(&snat::ESTABLISHED, report),
    }
}

/// A list of prefixes; one that could not be read keeps its place.
fn prefixes(table: Table<'_>, key: &'static Key, report: &mut Report) -> Option<Vec<Prefix>> {
    let unknown = Prefix::from(NO_ADDRESS);
    let read = table.list::<Prefix>(key, str::parse, report)?;
    Some(read.into_iter().map(|prefix| prefix.unwrap_or(unknown)).collect())
}

fn read_route(table: Table<'_>, report: &mut Report) -> Route {
    let unknown = Prefix::from(NO_ADDRESS);
    Route {
        prefix: table.parsed(&route::PREFIX, str::parse, report).unwrap_or(unknown),
        via: table.parsed(&route::VIA, parse_address, report),
        port: table.parsed(&route::PORT, any_text, report).unwrap_or_default(),
    }
}

fn read_neighbour(table: Table<'_>, report: &mut Report) -> Neighbour {
    Neighbour {
        address: address(table, &neighbour::ADDRESS, report),
        mac: table.parsed(&neighbour::MAC, str::parse, report).unwrap_or(Mac::UNKNOWN),
        port: table.parsed(&neighbour::PORT, any_text, report).unwrap_or_default(),
        vlan: table.integer_if_given(&neighbour::VLAN, report),
    }
}

fn address(table: Table<'_>, key: &'static Key, report: &mut Report) -> IpAddr {
    table.parsed(key, parse_address, report).unwrap_or(NO_ADDRESS)
}
