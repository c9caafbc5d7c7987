//! The words of DPVS: what they ask for, what they show, and what is refused.

use crate::stage::Stage;
use sluice_ipvs::{
    Destination, Errno, Family, LocalAddress, LocalAddresses, Method, Protocol, Request, Service,
    ServiceKey, ServiceSpec, Settings, Stats, Tunnel,
};
use sluice_ipvsadm::{Command, parse};

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn asked(line: &str) -> Request {
    match parse("ipvsadm", &words(line), &mut Stage::new(0, None, false)) {
        Ok(Command::Change(_, request)) => request,
        other => panic!("{line}: {other:?}"),
    }
}

fn key() -> ServiceKey {
    let address = "192.0.2.1".parse().expect("an address");
    ServiceKey::Address { protocol: Protocol::Tcp, address, port: 80 }
}

#[test]
fn the_letter_b_is_full_nat_with_real_servers_and_flags_with_services() {
    for line in
        ["-a -t 192.0.2.1:80 -r 198.51.100.1:8080 -b", "-ab -t 192.0.2.1:80 -r 198.51.100.1:8080"]
    {
        let Request::AddDestination(_, it) = asked(line) else { panic!("{line}") };
        assert_eq!((it.method, it.port), (Method::FullNat, 8080), "{line}");
    }
    let line = "-e --fullnat -t 192.0.2.1:80 -r 198.51.100.1 -w 0";
    let Request::EditDestination(_, it) = asked(line) else { panic!("{line}") };
    assert_eq!((it.method, it.weight), (Method::FullNat, 0));
    // Full NAT goes from one family to the other.
    let line = "-a -t 192.0.2.1:80 -r [2001:db8::9]:80 -b";
    assert!(matches!(asked(line), Request::AddDestination(_, it) if it.address.is_ipv6()));
    let line = "-A -t 192.0.2.1:80 -s sh -b sh-port";
    assert!(matches!(asked(line), Request::AddService(spec) if spec.flags == 0x10));
}

#[test]
fn a_method_that_is_not_named_is_direct_routing_again() {
    let line = "-e -t 192.0.2.1:80 -r 198.51.100.1:8080 -w 0";
    let Request::EditDestination(_, it) = asked(line) else { panic!("{line}") };
    assert_eq!((it.method, it.port), (Method::Route, 80));
}

#[test]
fn local_addresses_and_lists_are_asked_for() {
    let address = "192.0.2.9".parse().expect("an address");
    for line in [
        "--add-laddr -z 192.0.2.9 -t 192.0.2.1:80 -F dpdk0",
        "-P -t 192.0.2.1:80 --laddr=192.0.2.9 --ifname dpdk0",
        "-Pz 192.0.2.9 -t 192.0.2.1:80",
    ] {
        assert_eq!(asked(line), Request::AddLocal(key(), address), "{line}");
    }
    assert_eq!(asked("-Q -z 192.0.2.9 -t 192.0.2.1:80"), Request::DeleteLocal(key(), address));
    for (line, list) in [("-U -t 192.0.2.1:80 -k", "deny"), ("-O -t 192.0.2.1:80 -2", "allow")] {
        let request = asked(&format!("{line} 198.51.100.0/24"));
        let text = serde_json::to_string(&request).expect("JSON");
        assert!(text.starts_with("{\"add_listed\":[") && text.contains(list), "{text}");
        assert!(text.contains("198.51.100.0/24"), "{text}");
    }
}

#[test]
fn settings_are_sent_only_when_one_is_named() {
    let settings = |line: &str| match asked(line) {
        Request::AddService(spec) | Request::EditService(spec) => spec.settings,
        other => panic!("{other:?}"),
    };
    assert_eq!(settings("-E -t 192.0.2.1:80 -s rr"), None);
    let line = "-A -t 192.0.2.1:80 --proxy-protocol v2 --conn-timeout 90 --expire-quiescent \
                -j disable --hash-target sip";
    let wanted = Settings {
        client_address: Some("proxy_v2".to_owned()),
        connection_timeout_s: Some(90),
        expire_quiescent: true,
    };
    assert_eq!(settings(line), Some(wanted));
    let line = "-E -t 192.0.2.1:80 --proxy-protocol disable";
    assert_eq!(settings(line), Some(Settings::default()));
}

#[test]
fn what_the_director_has_nothing_like_is_refused_and_nothing_is_asked() {
    for line in [
        "-A -t 192.0.2.1:80 -j enable",
        "-A -t 192.0.2.1:80 --hash-target qid",
        "-A -t 192.0.2.1:80 --quic",
        "-A -t 192.0.2.1:80 --dest-check default",
        "-A -t 192.0.2.1:80 --proxy-protocol v1-insecure",
        "-A -q 192.0.2.1 -s rr",
        "-A -1 2001:db8::1 -s rr",
        "-U -t 192.0.2.1:80 -k ipset:bad",
        "-L --cpu 1",
    ] {
        let mut stage = Stage::new(0, None, false);
        let code = sluice_ipvsadm::run("ipvsadm", &words(line), &mut stage);
        assert_eq!((code, stage.calls.len(), stage.out.as_str()), (2, 0, ""), "{line}");
        assert!(stage.err.ends_with("; nothing was changed\n"), "{line}: {}", stage.err);
    }
}

#[test]
fn what_is_wrong_with_dpvs_words_is_said_in_the_stock_programs_way() {
    for (line, said) in [
        ("-P -t 192.0.2.1:80", "You need to supply the 'laddr' option for the 'add-laddr' command"),
        ("-P -z 192.0.2.9", "You need to supply the 'service-address' option for the 'add-laddr' "),
        ("-P -t 192.0.2.1:80 -z bad", "illegal local address specified"),
        (
            "-A -t 192.0.2.1:80 -z 192.0.2.9",
            "Illegal 'laddr' option with the 'add-service' command",
        ),
        ("-L --local", "--local is for connections: give -c, too"),
        ("-L -c --sockpair x", "illegal sockpair specified: it is one of PROTOCOL:CLIENT:PORT:"),
        ("-U -t 192.0.2.1:80 -k 192.0.2.0/33", "illegal blklst specified: it is one of an address"),
        ("-A -t 192.0.2.1:80 --conn-timeout 0", "invalid timeout value `0' specified"),
        ("-a -t 192.0.2.1:80 -r 198.51.100.1 -b -m", "multiple 'forwarding-method' options "),
    ] {
        let mut stage = Stage::new(0, None, false);
        let code = sluice_ipvsadm::run("ipvsadm", &words(line), &mut stage);
        assert_eq!(code, 2, "{line}");
        assert!(stage.err.starts_with(said), "{line}: {}", stage.err);
    }
}

#[test]
fn local_addresses_and_lists_have_dpvs_columns() {
    let show = |line: &str| {
        let mut stage = Stage::new(0, None, false);
        stage.lenient = true;
        let address = "192.0.2.9".parse().expect("an address");
        let addresses = vec![LocalAddress { address, conflicts: 3, connections: 7 }];
        stage.locals = vec![LocalAddresses { key: key(), addresses }];
        stage.listed = vec![(key(), vec!["198.51.100.0/24".to_owned(), "203.0.113.9".to_owned()])];
        let code = sluice_ipvsadm::run("ipvsadm", &words(line), &mut stage);
        assert_eq!((code, stage.err.as_str()), (0, ""));
        stage.out.replace(' ', "_")
    };
    assert_eq!(
        show("-G"),
        "VIP:VPORT____________TOTAL____SNAT_IP______________CONFLICTS__CONNS_____\n\
         192.0.2.1:80_________1________\n\
         ______________________________192.0.2.9____________3__________7_________\n"
    );
    assert_eq!(
        show("-B -t 192.0.2.1:80"),
        "PROTO____VIP:VPORT______________________BLACKLIST_____________________\n\
         TCP______192.0.2.1:80___________________198.51.100.0/24_______________\n\
         TCP______192.0.2.1:80___________________203.0.113.9___________________\n"
    );
    assert!(show("-W").starts_with("PROTO____VIP:VPORT______________________WHITELIST_"));
}

/// The lines of DPVS's tutorial for source NAT.
#[test]
fn services_by_match_are_asked_for() {
    let list = "proto=tcp,src-range=192.0.2.0-192.0.2.254,oif=dpdk0";
    let key = ServiceKey::Match(list.parse().expect("a match"));
    let Request::AddService(spec) = asked(&format!("-A -s rr -H {list}")) else { panic!() };
    assert_eq!((spec.key, &*spec.scheduler, spec.netmask), (key, "rr", u32::MAX));
    for line in ["-w 100 -J", "-J --weight=100", "-w 100"] {
        let line = format!("-a -H {list} -r 198.51.100.10:0 {line}");
        let Request::AddDestination(of, it) = asked(&line) else { panic!("{line}") };
        assert_eq!((of, it.method, it.weight, it.port), (key, Method::Snat, 100, 0), "{line}");
    }
    // Whatever else is named is the director's to refuse.
    let Request::EditDestination(_, it) = asked(&format!("-e -H {list} -r 198.51.100.10 -m"))
    else {
        panic!()
    };
    assert_eq!((it.method, it.port), (Method::Masq, 0));
    assert_eq!(asked(&format!("-D --match {list}")), Request::DeleteService(key));
    assert_eq!(asked(&format!("-Z --match={list}:0-0").replace(",oif=dpdk0", "")), {
        let list = "proto=tcp,src-range=192.0.2.0-192.0.2.254";
        Request::Zero(Some(ServiceKey::Match(list.parse().expect("a match"))))
    });
    let six = "proto=tcp,src-range=2001:db8::1-2001:db8::9";
    let Request::AddService(spec) = asked(&format!("-A -H {six}")) else { panic!() };
    assert_eq!((spec.netmask, &*spec.scheduler), (128, "wlc"));
}

#[test]
fn a_match_that_cannot_be_is_refused_and_nothing_is_asked() {
    for (line, says) in [
        ("-A -H proto=tcp", "add src-range, dst-range or oif"),
        ("-A -H src-range=192.0.2.1", "begin with proto=tcp"),
        ("-A -H proto=sctp,src-range=192.0.2.1", "is left to Linux"),
        ("-A -H proto=tcp,src-range=192.0.2.1:80", "leave the ports out"),
        ("-A -H proto=tcp,src-range=192.0.2.1,iif=dpdk1", "cannot be matched"),
        ("-A -H proto=tcp,af=ipv4,oif=a -H proto=tcp,af=ipv4,oif=a", "multiple 'service-address'"),
        ("-a -H proto=tcp,af=ipv4,oif=a -r [2001:db8::1]:0 -J", "Different address family"),
    ] {
        let mut stage = Stage::new(0, None, false);
        let code = sluice_ipvsadm::run("ipvsadm", &words(line), &mut stage);
        assert_eq!((code, stage.calls.len(), stage.out.as_str()), (2, 0, ""), "{line}");
        assert!(stage.err.contains(says), "{line}: {}", stage.err);
    }
}

#[test]
fn services_by_match_are_listed_as_dpvs_lists_them_behind_the_others() {
    let service = |list: &str, address: &str| {
        let key = ServiceKey::Match(list.parse().expect("a match"));
        let spec = ServiceSpec {
            key,
            scheduler: "rr".to_owned(),
            flags: 2,
            timeout_s: 0,
            netmask: if key.family() == Family::Ipv4 { u32::MAX } else { 128 },
            persistence_engine: None,
            settings: None,
        };
        let destination = Destination {
            address: address.parse().expect("an address"),
            port: 0,
            method: Method::Snat,
            tunnel: Tunnel::IPIP,
            weight: 100,
            upper: 0,
            lower: 0,
            active: 0,
            inactive: 0,
            persistent: 0,
            stats: Stats::default(),
        };
        let stats = Stats { connections: 7, ..Stats::default() };
        let (owner, name) = ("ipvsadm".to_owned(), String::new());
        Service { spec, owner, name, stats, destinations: vec![destination] }
    };
    let show = |line: &str| {
        let mut stage = Stage::new(0, Some("st4"), false);
        stage.lenient = true;
        stage.matches = vec![
            service("proto=udp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1", "198.51.100.10"),
            service("proto=tcp,src-range=2001:db8::1-2001:db8::9,dst-range=::1", "2001:db8::7"),
            service("proto=icmp,af=ipv4,oif=dpdk1", "198.51.100.10"),
        ];
        let code = sluice_ipvsadm::run("ipvsadm", &words(line), &mut stage);
        assert_eq!((code, stage.err.as_str()), (0, ""));
        let from = if line == "-S" { "-A -H" } else { "MATCH" };
        stage.out.split_once(from).map(|(_, rest)| format!("{from}{rest}")).expect("a match")
    };
    assert_eq!(
        show("-L -n"),
        "MATCH udp,from=192.0.2.0-192.0.2.254:0-0,oif=dpdk1 rr\n  \
         -> 198.51.100.10:0              SNAT    100    0          0         \n\
         MATCH tcp,from=[2001:db8::1]-[2001:db8::9]:0-0,to=[::1]-[::1]:0-0 rr\n  \
         -> [2001:db8::7]:0              SNAT    100    0          0         \n\
         MATCH icmp,oif=dpdk1 rr\n  \
         -> 198.51.100.10:0              SNAT    100    0          0         \n"
    );
    let stats = show("-L -n --stats");
    assert!(stats.contains("MATCH icmp,oif=dpdk1                     7        0 "), "{stats}");
    assert_eq!(
        show("-S"),
        "-A -H proto=udp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1 -s rr\n\
         -a -H proto=udp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1 -r 198.51.100.10:0 -J -w 100\n\
         -A -H proto=tcp,src-range=2001:db8::1-2001:db8::9,dst-range=::1-::1 -s rr\n\
         -a -H proto=tcp,src-range=2001:db8::1-2001:db8::9,dst-range=::1-::1 \
         -r [2001:db8::7]:0 -J -w 100\n\
         -A -H proto=icmp,af=ipv4,oif=dpdk1 -s rr\n\
         -a -H proto=icmp,af=ipv4,oif=dpdk1 -r 198.51.100.10:0 -J -w 100\n"
    );
}

#[test]
fn errors_of_dpvs_commands_have_its_words() {
    for (line, errno, said) in [
        ("-P -t 192.0.2.1:80 -z 192.0.2.9", Errno::Exist, "Local address already exists\n"),
        ("-Q -t 192.0.2.1:80 -z 192.0.2.9", Errno::NoEnt, "No such Local address\n"),
        ("-P -t 192.0.2.1:80 -z 192.0.2.9", Errno::Srch, "Service not defined\n"),
        ("-U -t 192.0.2.1:80 -k 192.0.2.9", Errno::Exist, "blacklist address already exists\n"),
    ] {
        let mut stage = Stage::new(errno.number(), None, false);
        stage.lenient = true;
        let code = sluice_ipvsadm::run("ipvsadm", &words(line), &mut stage);
        assert_eq!((code, stage.err.as_str()), (255, said), "{line}");
    }
}
