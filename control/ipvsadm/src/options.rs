//! The options, as the table that the scanner reads.

use crate::verb::Verb;

/// An option that is either given or not, by the order in which the checks go through them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Opt {
    Numeric,
    Connection,
    Service,
    Scheduler,
    Persistent,
    Netmask,
    RealServer,
    Method,
    Weight,
    Upper,
    Lower,
    McastInterface,
    Timeout,
    Daemon,
    Stats,
    Rate,
    Thresholds,
    PersistentConn,
    NoSort,
    SyncId,
    Exact,
    OnePacket,
    Engine,
    SchedFlags,
    McastGroup,
    McastPort,
    McastTtl,
    SyncMaxlen,
    TunInfo,
    TunType,
    TunPort,
    TunNoCsum,
    TunCsum,
    TunRemCsum,
    // From here on: DPVS's, and one of ours.
    LocalAddress,
    Interface,
    Denied,
    Allowed,
    SynProxy,
    HashTarget,
    ExpireQuiescent,
    DestCheck,
    ConnTimeout,
    ProxyProtocol,
    Quic,
    SockPair,
    Cpu,
    Local,
}

/// All of them in their order, with their names in messages.
pub(crate) const OPTIONS: [(Opt, &str); 48] = [
    (Opt::Numeric, "numeric"),
    (Opt::Connection, "connection"),
    (Opt::Service, "service-address"),
    (Opt::Scheduler, "scheduler"),
    (Opt::Persistent, "persistent"),
    (Opt::Netmask, "netmask"),
    (Opt::RealServer, "real-server"),
    (Opt::Method, "forwarding-method"),
    (Opt::Weight, "weight"),
    (Opt::Upper, "u-threshold"),
    (Opt::Lower, "l-threshold"),
    (Opt::McastInterface, "mcast-interface"),
    (Opt::Timeout, "timeout"),
    (Opt::Daemon, "daemon"),
    (Opt::Stats, "stats"),
    (Opt::Rate, "rate"),
    (Opt::Thresholds, "thresholds"),
    (Opt::PersistentConn, "persistent-conn"),
    (Opt::NoSort, "nosort"),
    (Opt::SyncId, "syncid"),
    (Opt::Exact, "exact"),
    (Opt::OnePacket, "ops"),
    (Opt::Engine, "pe"),
    (Opt::SchedFlags, "sched-flags"),
    (Opt::McastGroup, "mcast-group"),
    (Opt::McastPort, "mcast-port"),
    (Opt::McastTtl, "mcast-ttl"),
    (Opt::SyncMaxlen, "sync-maxlen"),
    (Opt::TunInfo, "tun-info"),
    (Opt::TunType, "tun-type"),
    (Opt::TunPort, "tun-port"),
    (Opt::TunNoCsum, "tun-nocsum"),
    (Opt::TunCsum, "tun-csum"),
    (Opt::TunRemCsum, "tun-remcsum"),
    (Opt::LocalAddress, "laddr"),
    (Opt::Interface, "ifname"),
    (Opt::Denied, "blklst"),
    (Opt::Allowed, "whtlst"),
    (Opt::SynProxy, "synproxy"),
    (Opt::HashTarget, "hash-target"),
    (Opt::ExpireQuiescent, "expire-quiescent"),
    (Opt::DestCheck, "dest-check"),
    (Opt::ConnTimeout, "conn-timeout"),
    (Opt::ProxyProtocol, "proxy-protocol"),
    (Opt::Quic, "quic"),
    (Opt::SockPair, "sockpair"),
    (Opt::Cpu, "cpu"),
    (Opt::Local, "local"),
];

const _: () = {
    let mut at = 0;
    while at < OPTIONS.len() {
        assert!(OPTIONS[at].0 as usize == at);
        at += 1;
    }
};

impl Opt {
    /// Its name in messages.
    pub(crate) const fn name(self) -> &'static str {
        OPTIONS[self as usize].1
    }
}

/// Whether an option has an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    Nothing,
    /// One that does not begin with `-`, if there is one.
    Perhaps,
    Argument,
}

/// What an option means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Verb(Verb),
    Help,
    Version,
    Tcp,
    Udp,
    Sctp,
    Mark,
    Icmp,
    Icmpv6,
    Match,
    Ipv6,
    Route,
    Tunnel,
    Masq,
    FullNat,
    Snat,
    /// Does nothing.
    Sort,
    Plain(Opt),
}

/// A row of the table: name, letter, argument, meaning.
pub(crate) type Row = (&'static str, Option<char>, Takes, Tag);

const fn word(name: &'static str, takes: Takes, tag: Tag) -> Row {
    (name, None, takes, tag)
}

const fn both(name: &'static str, letter: char, takes: Takes, tag: Tag) -> Row {
    (name, Some(letter), takes, tag)
}

use Takes::{Argument, Nothing, Perhaps};

/// All options. Where two rows have one letter, the command decides ([`by_letter`]).
pub(crate) const TABLE: &[Row] = &[
    both("add-service", 'A', Nothing, Tag::Verb(Verb::AddService)),
    both("edit-service", 'E', Nothing, Tag::Verb(Verb::EditService)),
    both("delete-service", 'D', Nothing, Tag::Verb(Verb::DeleteService)),
    both("clear", 'C', Nothing, Tag::Verb(Verb::Flush)),
    both("list", 'L', Nothing, Tag::Verb(Verb::List)),
    both("list", 'l', Nothing, Tag::Verb(Verb::List)),
    both("zero", 'Z', Nothing, Tag::Verb(Verb::Zero)),
    both("add-server", 'a', Nothing, Tag::Verb(Verb::AddServer)),
    both("edit-server", 'e', Nothing, Tag::Verb(Verb::EditServer)),
    both("delete-server", 'd', Nothing, Tag::Verb(Verb::DeleteServer)),
    word("set", Nothing, Tag::Verb(Verb::Set)),
    both("restore", 'R', Nothing, Tag::Verb(Verb::Restore)),
    both("save", 'S', Nothing, Tag::Verb(Verb::Save)),
    word("start-daemon", Argument, Tag::Verb(Verb::StartDaemon)),
    word("stop-daemon", Argument, Tag::Verb(Verb::StopDaemon)),
    both("help", 'h', Nothing, Tag::Help),
    both("version", 'v', Nothing, Tag::Version),
    both("tcp-service", 't', Argument, Tag::Tcp),
    both("udp-service", 'u', Argument, Tag::Udp),
    word("sctp-service", Argument, Tag::Sctp),
    both("fwmark-service", 'f', Argument, Tag::Mark),
    both("ipv6", '6', Nothing, Tag::Ipv6),
    both("scheduler", 's', Argument, Tag::Plain(Opt::Scheduler)),
    both("persistent", 'p', Perhaps, Tag::Plain(Opt::Persistent)),
    both("netmask", 'M', Argument, Tag::Plain(Opt::Netmask)),
    word("pe", Argument, Tag::Plain(Opt::Engine)),
    both("ops", 'o', Nothing, Tag::Plain(Opt::OnePacket)),
    both("sched-flags", 'b', Argument, Tag::Plain(Opt::SchedFlags)),
    both("real-server", 'r', Argument, Tag::Plain(Opt::RealServer)),
    both("gatewaying", 'g', Nothing, Tag::Route),
    both("ipip", 'i', Nothing, Tag::Tunnel),
    both("masquerading", 'm', Nothing, Tag::Masq),
    both("weight", 'w', Argument, Tag::Plain(Opt::Weight)),
    both("u-threshold", 'x', Argument, Tag::Plain(Opt::Upper)),
    both("l-threshold", 'y', Argument, Tag::Plain(Opt::Lower)),
    word("tun-type", Argument, Tag::Plain(Opt::TunType)),
    word("tun-port", Argument, Tag::Plain(Opt::TunPort)),
    word("tun-nocsum", Nothing, Tag::Plain(Opt::TunNoCsum)),
    word("tun-csum", Nothing, Tag::Plain(Opt::TunCsum)),
    word("tun-remcsum", Nothing, Tag::Plain(Opt::TunRemCsum)),
    both("numeric", 'n', Nothing, Tag::Plain(Opt::Numeric)),
    both("connection", 'c', Nothing, Tag::Plain(Opt::Connection)),
    word("timeout", Nothing, Tag::Plain(Opt::Timeout)),
    word("daemon", Nothing, Tag::Plain(Opt::Daemon)),
    word("stats", Nothing, Tag::Plain(Opt::Stats)),
    word("rate", Nothing, Tag::Plain(Opt::Rate)),
    word("thresholds", Nothing, Tag::Plain(Opt::Thresholds)),
    word("persistent-conn", Nothing, Tag::Plain(Opt::PersistentConn)),
    word("tun-info", Nothing, Tag::Plain(Opt::TunInfo)),
    word("nosort", Nothing, Tag::Plain(Opt::NoSort)),
    word("sort", Nothing, Tag::Sort),
    both("exact", 'X', Nothing, Tag::Plain(Opt::Exact)),
    word("syncid", Argument, Tag::Plain(Opt::SyncId)),
    word("mcast-interface", Argument, Tag::Plain(Opt::McastInterface)),
    word("mcast-group", Argument, Tag::Plain(Opt::McastGroup)),
    word("mcast-port", Argument, Tag::Plain(Opt::McastPort)),
    word("mcast-ttl", Argument, Tag::Plain(Opt::McastTtl)),
    word("sync-maxlen", Argument, Tag::Plain(Opt::SyncMaxlen)),
    // DPVS's.
    both("add-laddr", 'P', Nothing, Tag::Verb(Verb::AddLocal)),
    both("del-laddr", 'Q', Nothing, Tag::Verb(Verb::DeleteLocal)),
    both("get-laddr", 'G', Nothing, Tag::Verb(Verb::GetLocal)),
    both("add-blklst", 'U', Nothing, Tag::Verb(Verb::AddDenied)),
    both("del-blklst", 'V', Nothing, Tag::Verb(Verb::DeleteDenied)),
    both("get-blklst", 'B', Nothing, Tag::Verb(Verb::GetDenied)),
    both("add-whtlst", 'O', Nothing, Tag::Verb(Verb::AddAllowed)),
    both("del-whtlst", 'Y', Nothing, Tag::Verb(Verb::DeleteAllowed)),
    both("get-whtlst", 'W', Nothing, Tag::Verb(Verb::GetAllowed)),
    both("icmp-service", 'q', Argument, Tag::Icmp),
    both("icmpv6-service", '1', Argument, Tag::Icmpv6),
    both("match", 'H', Argument, Tag::Match),
    both("fullnat", 'b', Nothing, Tag::FullNat),
    both("snat", 'J', Nothing, Tag::Snat),
    both("laddr", 'z', Argument, Tag::Plain(Opt::LocalAddress)),
    both("ifname", 'F', Argument, Tag::Plain(Opt::Interface)),
    both("blklst", 'k', Argument, Tag::Plain(Opt::Denied)),
    both("whtlst", '2', Argument, Tag::Plain(Opt::Allowed)),
    both("synproxy", 'j', Argument, Tag::Plain(Opt::SynProxy)),
    word("hash-target", Argument, Tag::Plain(Opt::HashTarget)),
    word("expire-quiescent", Nothing, Tag::Plain(Opt::ExpireQuiescent)),
    word("dest-check", Argument, Tag::Plain(Opt::DestCheck)),
    word("conn-timeout", Argument, Tag::Plain(Opt::ConnTimeout)),
    word("proxy-protocol", Argument, Tag::Plain(Opt::ProxyProtocol)),
    word("quic", Nothing, Tag::Plain(Opt::Quic)),
    word("sockpair", Argument, Tag::Plain(Opt::SockPair)),
    word("cpu", Argument, Tag::Plain(Opt::Cpu)),
    // Ours.
    word("local", Nothing, Tag::Plain(Opt::Local)),
];

/// The row of a name.
pub(crate) fn by_name(name: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.0 == name)
}

/// The row of a letter. `-b` is the scheduler's flags, but with a real server full NAT.
pub(crate) fn by_letter(letter: char, verb: Option<Verb>) -> Option<&'static Row> {
    if letter == 'b' && matches!(verb, Some(Verb::AddServer | Verb::EditServer)) {
        return by_name("fullnat");
    }
    TABLE.iter().find(|row| row.1 == Some(letter))
}
