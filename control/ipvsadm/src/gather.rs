//! Takes options one by one. What is wrong with a value is said at once; what does not go
//! together, when all are known (`check.rs`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_ipvs::{
    Daemon, Family, Match, Method, Protocol, Role, Timeouts, Tunnel, TunnelKind, flags,
};

use crate::address::{self, Place};
use crate::dpvs::Additions;
use crate::number::{leading_number, number};
use crate::options::{OPTIONS, Opt, Tag};
use crate::parse::Fault;
use crate::verb::Verb;
use crate::world::{Transport, World};

/// The longest persistence and timeout, in seconds: 31 days.
const LONGEST_S: i64 = 31 * 24 * 60 * 60;
/// Persistence when no number is given.
const PERSISTENCE_S: u32 = 360;
/// What IPVS keeps of names of schedulers, engines and interfaces, in bytes.
const NAME_BYTES: usize = 15;

/// Which service a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Mark(u32),
    Address(Protocol, Place),
    Match(Match),
}

/// All that was said.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    pub(crate) given: [bool; OPTIONS.len()],
    pub(crate) subject: Option<Subject>,
    pub(crate) family: Family,
    pub(crate) scheduler: Option<String>,
    pub(crate) flags: u32,
    flag_names: Option<String>,
    pub(crate) timeout_s: u32,
    pub(crate) netmask: u32,
    pub(crate) engine: Option<String>,
    pub(crate) server: Option<Place>,
    pub(crate) method: Method,
    pub(crate) weight: u32,
    pub(crate) upper: u32,
    pub(crate) lower: u32,
    pub(crate) tunnel: Tunnel,
    pub(crate) daemon: Daemon,
    pub(crate) timeouts: Timeouts,
    pub(crate) additions: Additions,
}

impl Gathered {
    pub(crate) fn new() -> Self {
        Self {
            given: [false; OPTIONS.len()],
            subject: None,
            family: Family::Ipv4,
            scheduler: None,
            flags: 0,
            flag_names: None,
            timeout_s: 0,
            netmask: u32::MAX,
            engine: None,
            server: None,
            method: Method::Route,
            weight: 1,
            upper: 0,
            lower: 0,
            tunnel: Tunnel::IPIP,
            daemon: Daemon {
                role: Role::Master,
                interface: String::new(),
                sync_id: 0,
                maximum_length: 0,
                group: None,
                port: 0,
                ttl: 0,
            },
            timeouts: Timeouts { tcp_s: 0, tcp_fin_s: 0, udp_s: 0 },
            additions: Additions::default(),
        }
    }

    /// Which daemon `--start-daemon` and `--stop-daemon` name.
    pub(crate) fn role(&mut self, verb: Verb, name: Option<&str>) -> Result<(), Fault> {
        let complaint = match verb {
            Verb::StartDaemon => "illegal start-daemon parameter specified",
            Verb::StopDaemon => "illegal start_daemon specified",
            _ => return Ok(()),
        };
        self.daemon.role = match name {
            Some("master") => Role::Master,
            Some("backup") => Role::Backup,
            _ => return Err(Fault::usage(complaint)),
        };
        Ok(())
    }

    /// Takes one option. `with_value` tells an empty value from none; `argument` is where it
    /// stands.
    pub(crate) fn take(
        &mut self,
        tag: Tag,
        value: &str,
        with_value: bool,
        argument: &str,
        world: &mut impl World,
    ) -> Result<(), Fault> {
        match tag {
            Tag::Tcp => self.service(Protocol::Tcp, value, world),
            Tag::Udp => self.service(Protocol::Udp, value, world),
            Tag::Sctp => self.service(Protocol::Sctp, value, world),
            Tag::Mark => self.mark(value),
            Tag::Icmp | Tag::Icmpv6 => {
                self.once(Opt::Service)?;
                self.additions.refuse_icmp();
                Ok(())
            }
            Tag::Match => self.matching(value),
            Tag::Ipv6 => self.ipv6(),
            Tag::Route => self.method(Method::Route),
            Tag::Tunnel => self.method(Method::Tunnel),
            Tag::Masq => self.method(Method::Masq),
            Tag::FullNat => self.method(Method::FullNat),
            Tag::Snat => self.method(Method::Snat),
            Tag::Sort => Ok(()),
            Tag::Plain(option) => {
                self.once(option)?;
                self.plain(option, value, with_value, world)
            }
            Tag::Verb(_) | Tag::Help | Tag::Version => {
                Err(Fault::usage(format!("invalid option `{argument}'")))
            }
        }
    }

    fn once(&mut self, option: Opt) -> Result<(), Fault> {
        if std::mem::replace(&mut self.given[option as usize], true) {
            return Err(Fault::usage(format!("multiple '{}' options specified", option.name())));
        }
        Ok(())
    }

    fn service(
        &mut self,
        protocol: Protocol,
        value: &str,
        world: &mut impl World,
    ) -> Result<(), Fault> {
        self.once(Opt::Service)?;
        let complaint = "illegal virtual server address[:port] specified";
        let place = address::place(value, Some(protocol.into()), world)
            .ok_or_else(|| Fault::usage(complaint))?;
        self.subject = Some(Subject::Address(protocol, place));
        if place.address.is_ipv6() {
            (self.family, self.netmask) = (Family::Ipv6, 128);
        }
        Ok(())
    }

    fn mark(&mut self, value: &str) -> Result<(), Fault> {
        self.once(Opt::Service)?;
        let mark = count(value, 1, i64::from(u32::MAX))
            .ok_or_else(|| Fault::usage(format!("invalid fwmark value `{value}' specified")))?;
        self.subject = Some(Subject::Mark(mark));
        Ok(())
    }

    fn matching(&mut self, value: &str) -> Result<(), Fault> {
        self.once(Opt::Service)?;
        let it: Match =
            value.parse().map_err(|why| Fault::usage(format!("illegal match specified: {why}")))?;
        self.subject = Some(Subject::Match(it));
        if it.family() == Family::Ipv6 {
            (self.family, self.netmask) = (Family::Ipv6, 128);
        }
        Ok(())
    }

    fn ipv6(&mut self) -> Result<(), Fault> {
        if !matches!(self.subject, Some(Subject::Mark(_))) {
            return Err(Fault::usage("-6 used before -f\n"));
        }
        (self.family, self.netmask) = (Family::Ipv6, 128);
        Ok(())
    }

    fn method(&mut self, method: Method) -> Result<(), Fault> {
        self.once(Opt::Method)?;
        self.method = method;
        Ok(())
    }

    fn plain(
        &mut self,
        option: Opt,
        value: &str,
        with_value: bool,
        world: &mut impl World,
    ) -> Result<(), Fault> {
        let most = i64::from(i32::MAX);
        let within = |least, most, complaint| {
            count(value, least, most).ok_or_else(|| Fault::usage(complaint))
        };
        match option {
            Opt::Scheduler => self.scheduler = Some(cut(value)),
            Opt::Persistent => {
                self.flags |= flags::PERSISTENT;
                self.timeout_s = PERSISTENCE_S;
                if with_value {
                    self.timeout_s = seconds(value, 1)?;
                }
            }
            Opt::Netmask => self.netmask(value)?,
            Opt::Engine => self.engine = Some(cut(value)),
            Opt::SchedFlags => self.flag_names = Some(value.to_owned()),
            Opt::OnePacket => self.flags |= flags::ONE_PACKET,
            Opt::RealServer => self.server(value, world)?,
            Opt::Weight => self.weight = within(0, most, "illegal weight specified")?,
            Opt::Upper => self.upper = within(0, most, "illegal u_threshold specified")?,
            Opt::Lower => self.lower = within(0, most, "illegal l_threshold specified")?,
            Opt::TunType => {
                self.tunnel.kind = match value {
                    "ipip" => TunnelKind::Ipip,
                    "gue" => TunnelKind::Gue,
                    "gre" => TunnelKind::Gre,
                    _ => return Err(Fault::usage("illegal tunnel type specified")),
                }
            }
            Opt::TunPort => {
                self.tunnel.port = within(1, 65535, "illegal tunnel port specified")? as u16;
            }
            Opt::TunNoCsum => self.tunnel.flags = 0,
            Opt::TunCsum => self.tunnel.flags = 1,
            Opt::TunRemCsum => self.tunnel.flags = 2,
            Opt::SyncId => self.daemon.sync_id = within(0, 255, "illegal syncid specified")?,
            Opt::McastInterface => self.daemon.interface = cut(value),
            Opt::McastGroup => self.daemon.group = Some(group(value)?),
            Opt::McastPort => {
                self.daemon.port = within(1, 65535, "illegal mcast-port specified")? as u16;
            }
            Opt::McastTtl => {
                self.daemon.ttl = within(1, 255, "illegal mcast-ttl specified")? as u8;
            }
            Opt::SyncMaxlen => {
                let most = 65535 - 20 - 8;
                self.daemon.maximum_length =
                    within(1, most, "illegal sync-maxlen specified")? as u16;
            }
            option => self.additions.take(option, value)?,
        }
        Ok(())
    }

    fn netmask(&mut self, value: &str) -> Result<(), Fault> {
        self.netmask = match self.family {
            Family::Ipv6 => match leading_number(value) {
                length @ 1..=128 => length as u32,
                _ => return Err(Fault::usage("illegal ipv6 netmask specified")),
            },
            Family::Ipv4 => {
                let complaint = "illegal virtual server persistent mask specified";
                let mask = address::ipv4(value).ok_or_else(|| Fault::usage(complaint))?;
                mask.to_bits()
            }
        };
        Ok(())
    }

    fn server(&mut self, value: &str, world: &mut impl World) -> Result<(), Fault> {
        // A service's name is looked up among those of the service's protocol, when that is known.
        // And so is its port, where none is given: the order of options matters here.
        let (transport, port) = match self.subject {
            Some(Subject::Address(protocol, place)) => {
                (Some(protocol.into()), place.port.unwrap_or(0))
            }
            Some(Subject::Mark(_)) => (Some(Transport::Tcp), 0),
            Some(Subject::Match(_)) | None => (None, 0),
        };
        let complaint = "illegal real server address[:port] specified";
        let place =
            address::place(value, transport, world).ok_or_else(|| Fault::usage(complaint))?;
        self.server = Some(Place { port: place.port.or(Some(port)), ..place });
        Ok(())
    }

    /// The three values of `--set`.
    pub(crate) fn timeouts<'a>(
        &mut self,
        values: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), Fault> {
        let complaint = "--set option requires 3 timeout values";
        let mut next = || values.next().ok_or_else(|| Fault::usage(complaint));
        let [tcp, tcp_fin, udp] = [next()?, next()?, next()?];
        self.timeouts = Timeouts {
            tcp_s: seconds(tcp, 0)?,
            tcp_fin_s: seconds(tcp_fin, 0)?,
            udp_s: seconds(udp, 0)?,
        };
        Ok(())
    }

    /// The scheduler's name.
    pub(crate) fn scheduler(&self) -> &str {
        let named = self.scheduler.as_deref().filter(|name| !name.is_empty());
        named.unwrap_or(crate::build::SCHEDULER)
    }

    /// What `-b` named, now that the scheduler is known.
    pub(crate) fn scheduler_flags(&mut self) -> Result<(), Fault> {
        let Some(names) = self.flag_names.clone() else { return Ok(()) };
        let scheduler = self.scheduler().to_owned();
        let mut listed = names.split(',').filter(|name| !name.is_empty()).peekable();
        if listed.peek().is_none() {
            // The stock program crashes here.
            return Err(Fault::usage(format!("invalid scheduler flag `{names}'")));
        }
        for name in listed {
            let (owner, flag) = match name {
                "flag-1" => (None, flags::SCHEDULER_1),
                "flag-2" => (None, flags::SCHEDULER_2),
                "flag-3" => (None, flags::SCHEDULER_3),
                "sh-fallback" => (Some("sh"), flags::SCHEDULER_1),
                "sh-port" => (Some("sh"), flags::SCHEDULER_2),
                "mh-fallback" => (Some("mh"), flags::SCHEDULER_1),
                "mh-port" => (Some("mh"), flags::SCHEDULER_2),
                _ => return Err(Fault::usage(format!("invalid scheduler flag `{name}'"))),
            };
            if owner.is_some_and(|owner| owner != scheduler) {
                return Err(Fault::usage(format!("incompatible scheduler flag `{name}'")));
            }
            self.flags |= flag;
        }
        Ok(())
    }
}

fn count(value: &str, least: i64, most: i64) -> Option<u32> {
    number(value, least, most).and_then(|count| u32::try_from(count).ok())
}

pub(crate) fn seconds(value: &str, least: i64) -> Result<u32, Fault> {
    let complaint = || Fault::usage(format!("invalid timeout value `{value}' specified"));
    count(value, least, LONGEST_S).ok_or_else(complaint)
}

/// What IPVS keeps of a name.
fn cut(name: &str) -> String {
    let end = (0..=NAME_BYTES.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    name[..end.unwrap_or(0)].to_owned()
}

fn group(value: &str) -> Result<IpAddr, Fault> {
    if value.contains(':') {
        let group = value.parse::<Ipv6Addr>().ok().filter(Ipv6Addr::is_multicast);
        let complaint = || Fault::usage(format!("invalid IPv6 mcast-group `{value}'"));
        return group.map(IpAddr::V6).ok_or_else(complaint);
    }
    let group = value.parse::<Ipv4Addr>().ok().filter(Ipv4Addr::is_multicast);
    let complaint = || Fault::usage(format!("invalid IPv4 mcast-group `{value}'"));
    group.map(IpAddr::V4).ok_or_else(complaint)
}
