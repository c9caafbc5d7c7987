//! Services by match against a desired state without a disk: which rules and pools they become,
//! what is refused and whose it is, and that all of it is listed as it was said.

use sluice_config::{Config, document};
use sluice_ipvs::{
    Destination, Errno, Family, List, Method, Protocol, Request, ServiceKey, ServiceSpec, Settings,
    Stats, Tunnel, flags,
};
use sluice_ipvs_source::{
    Refused, edits, lists, local_addresses, matches, service, service_name, services,
};
use sluice_state::{Author, Desired, Edit, FileContent, Key, Kind, Request as Wish, Source, What};

const FILE: &str = r#"
    [[port]]
    name = "dpdk0"
    device = "af_packet:eth0"
    twin = "kni0"
    [[port]]
    name = "dpdk1"
    device = "af_xdp:eth1"
    [[pool]]
    name = "outside"
    addresses = ["198.51.100.64/28"]
    [[snat]]
    name = "servers"
    sources = ["203.0.113.0/24"]
    protocols = ["tcp", "udp"]
    pool = "outside"
"#;

fn began() -> Desired {
    let mut desired = Desired::default();
    let loaded = Config::parse("file", FILE).expect("a right file");
    let what = What::File(FileContent::of(&loaded.document));
    commit(&mut desired, Author::of(Source::File), what).expect("a right file");
    desired
}

fn commit(desired: &mut Desired, by: Author, what: What) -> Result<u64, Refused> {
    let wish = Wish { by, if_epoch: None, dry_run: false, force: false, what };
    let answer = desired.commit(&[wish], 0, &mut |_| Ok(())).answers.remove(0);
    Ok(answer?.epoch)
}

fn ask(desired: &mut Desired, request: &Request) -> Result<(), Refused> {
    let edits = edits(desired.state(), request)?;
    commit(desired, Author::of(Source::Ipvsadm), What::Edits(edits)).map(drop)
}

fn refused(desired: &mut Desired, request: &Request) -> (Errno, String) {
    let epoch = desired.epoch();
    let refused = ask(desired, request).expect_err("it must be refused");
    assert_eq!(desired.epoch(), epoch, "a refused command changes nothing");
    (refused.errno, refused.detail)
}

fn key(list: &str) -> ServiceKey {
    ServiceKey::Match(list.parse().expect("a match"))
}

/// DPVS's line.
fn tcp() -> ServiceKey {
    key("proto=tcp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1")
}

fn udp() -> ServiceKey {
    key("proto=udp,src-range=192.0.2.0-192.0.2.254,oif=dpdk1")
}

fn spec(key: ServiceKey) -> ServiceSpec {
    ServiceSpec {
        key,
        scheduler: "rr".to_owned(),
        flags: 0,
        timeout_s: 0,
        netmask: if key.family() == Family::Ipv4 { u32::MAX } else { 128 },
        persistence_engine: None,
        settings: None,
    }
}

fn to(address: &str, weight: u32) -> Destination {
    Destination {
        address: address.parse().expect("an address"),
        port: 0,
        method: Method::Snat,
        tunnel: Tunnel::IPIP,
        weight,
        upper: 0,
        lower: 0,
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
    }
}

fn with(keys: &[ServiceKey]) -> Desired {
    let mut desired = began();
    for key in keys {
        ask(&mut desired, &Request::AddService(spec(*key))).expect("added");
    }
    desired
}

/// Objects of a kind that came by this source, without labels, as a file would have them.
fn made(desired: &Desired, kind: Kind) -> String {
    let mut document = sluice_config::Document::new();
    let all = desired.state().in_order().into_iter();
    let own = all.filter(|(key, it)| key.kind == kind && it.owner.source == Source::Ipvsadm);
    let values = own.map(|(_, object)| {
        let mut value = (*object.value).clone();
        value.as_object_mut().expect("a table").remove("labels");
        value
    });
    document.insert(kind.name().to_owned(), values.collect::<Vec<_>>().into());
    document::to_toml(&document, &|_, _| None).replace('\n', ";")
}

/// The rules that are checked and compiled, with their pools.
fn compiled(desired: &mut Desired) -> Vec<(String, String)> {
    let mut rules = Vec::new();
    let wish = Wish {
        by: Author::of(Source::Api),
        if_epoch: None,
        dry_run: true,
        force: false,
        what: What::Edits(vec![Edit::Put {
            key: Key::new(Kind::Pool, "spare"),
            value: serde_json::json!({ "addresses": ["198.51.100.99"] }),
            pointer: String::new(),
        }]),
    };
    let answers = desired
        .commit(&[wish], 0, &mut |config: &Config| {
            let all = config.snat.iter().map(|rule| (rule.name.clone(), rule.pool.clone()));
            rules = all.collect();
            Ok(())
        })
        .answers;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    rules
}

#[test]
fn a_service_is_a_rule_and_its_destinations_are_a_pool() {
    let mut desired = with(&[tcp()]);
    let name = "match-tcp-192.0.2.0-192.0.2.254-dpdk1";
    assert_eq!(service_name(&tcp()), name);
    // Nothing is translated before there is an address.
    assert_eq!(compiled(&mut desired), [("servers".to_owned(), "outside".to_owned())]);
    let sources = "192.0.2.0/25 192.0.2.128/26 192.0.2.192/27 192.0.2.224/28 192.0.2.240/29 \
                   192.0.2.248/30 192.0.2.252/31 192.0.2.254/32";
    let rule = made(&desired, Kind::Snat);
    for prefix in sources.split_whitespace() {
        assert!(rule.contains(&format!("\"{prefix}\"")), "{rule}");
    }
    assert!(
        rule.contains("protocols = [\"tcp\"]") && rule.contains("egress = \"dpdk1\""),
        "{rule}"
    );

    ask(&mut desired, &Request::AddDestination(tcp(), to("198.51.100.10", 100))).expect("added");
    ask(&mut desired, &Request::AddDestination(tcp(), to("198.51.100.11", 0))).expect("added");
    let pool = |addresses: &str| {
        format!("[[pool]];name = \"ipvs-198.51.100.10\";addresses = [{addresses}];")
    };
    // Weight 0 is not used.
    assert_eq!(made(&desired, Kind::Pool), pool("\"198.51.100.10\""));
    assert_eq!(compiled(&mut desired)[1], (name.to_owned(), "ipvs-198.51.100.10".to_owned()));
    ask(&mut desired, &Request::EditDestination(tcp(), to("198.51.100.11", 5))).expect("edited");
    assert_eq!(made(&desired, Kind::Pool), pool("\"198.51.100.10\", \"198.51.100.11\""));

    let listed = service(desired.state(), &tcp()).expect("it is there");
    assert_eq!(listed.destinations, [to("198.51.100.10", 100), to("198.51.100.11", 5)]);
    assert_eq!(listed.spec, ServiceSpec { flags: flags::HASHED, ..spec(tcp()) });
    assert_eq!((&*listed.owner, &*listed.name), ("ipvsadm", name));
    assert_eq!(matches(desired.state()), [listed]);
    // Who knows the kernel's keys alone is told of none.
    assert_eq!(services(desired.state()), []);

    for last in [10, 11] {
        let at = ([198, 51, 100, last].into(), 0);
        ask(&mut desired, &Request::DeleteDestination(tcp(), at)).expect("deleted");
    }
    assert_eq!(made(&desired, Kind::Pool), "");
    assert_eq!(compiled(&mut desired).len(), 1);
    assert!(service(desired.state(), &tcp()).expect("it is there").destinations.is_empty());
    ask(&mut desired, &Request::DeleteService(tcp())).expect("deleted");
    assert_eq!((made(&desired, Kind::Snat), matches(desired.state())), (String::new(), vec![]));
}

#[test]
fn an_address_of_several_services_is_in_one_pool() {
    let icmp = key("proto=icmp,src-range=192.0.2.0-192.0.2.255,oif=dpdk1");
    let mut desired = with(&[tcp(), udp(), icmp]);
    let web = ServiceKey::Address {
        protocol: Protocol::Tcp,
        address: [198, 51, 100, 200].into(),
        port: 80,
    };
    ask(&mut desired, &Request::AddService(spec(web))).expect("added");
    for (key, address) in [(tcp(), "198.51.100.11"), (udp(), "198.51.100.10")] {
        ask(&mut desired, &Request::AddDestination(key, to(address, 1))).expect("added");
    }
    let pools = |desired: &mut Desired| -> Vec<String> {
        compiled(desired).into_iter().skip(1).map(|(_, pool)| pool).collect()
    };
    assert_eq!(pools(&mut desired), ["ipvs-198.51.100.11", "ipvs-198.51.100.10"]);
    ask(&mut desired, &Request::AddDestination(udp(), to("198.51.100.11", 1))).expect("added");
    ask(&mut desired, &Request::AddDestination(icmp, to("198.51.100.10", 1))).expect("added");
    // A local address for full NAT is one of them, too.
    ask(&mut desired, &Request::AddLocal(web, [198, 51, 100, 10].into())).expect("added");
    assert_eq!(pools(&mut desired), ["ipvs-198.51.100.10"; 3]);
    let shared = made(&desired, Kind::Pool);
    assert_eq!(shared.matches("[[pool]]").count(), 1, "{shared}");
    ask(&mut desired, &Request::DeleteService(udp())).expect("deleted");
    assert_eq!(pools(&mut desired), ["ipvs-198.51.100.11", "ipvs-198.51.100.10"]);
    let locals = local_addresses(desired.state(), None).expect("a list");
    assert_eq!((locals.len(), locals[0].key), (1, web));
    ask(&mut desired, &Request::Flush).expect("flushed");
    assert_eq!((made(&desired, Kind::Snat), made(&desired, Kind::Pool)), Default::default());
}

#[test]
fn rules_are_in_the_order_in_which_services_were_added() {
    let narrow = key("proto=tcp,src-range=192.0.2.0-192.0.2.9");
    let mut desired = with(&[tcp(), narrow]);
    // Whichever has an address first, and after it was without one.
    for key in [narrow, tcp()] {
        ask(&mut desired, &Request::AddDestination(key, to("198.51.100.10", 1))).expect("added");
    }
    let order = |desired: &mut Desired| -> Vec<String> {
        compiled(desired).into_iter().skip(1).map(|(name, _)| name).collect()
    };
    let names = [service_name(&tcp()), service_name(&narrow)];
    assert_eq!(order(&mut desired), names);
    let at = ([198, 51, 100, 10].into(), 0);
    ask(&mut desired, &Request::DeleteDestination(tcp(), at)).expect("deleted");
    assert_eq!(order(&mut desired), names[1..]);
    ask(&mut desired, &Request::AddDestination(tcp(), to("198.51.100.10", 1))).expect("added");
    assert_eq!(order(&mut desired), names);
    assert_eq!(matches(desired.state())[0].spec.key, tcp());
}

#[test]
fn ranges_of_both_families_and_interfaces_behind_ports() {
    for (list, has) in [
        ("proto=udp,dst-range=198.51.100.8-198.51.100.11", "sources = [\"0.0.0.0/0\"]"),
        ("proto=udp,dst-range=198.51.100.8-198.51.100.11", "[\"198.51.100.8/30\"]"),
        ("proto=icmpv6,src-range=2001:db8::-2001:db8::ffff", "[\"2001:db8::/112\"]"),
        ("proto=icmpv6,src-range=2001:db8::-2001:db8::ffff", "protocols = [\"icmp\"]"),
        ("proto=tcp,af=ipv6,oif=dpdk0", "sources = [\"::/0\"]"),
        ("proto=tcp,af=ipv4,oif=eth1", "egress = \"dpdk1\""),
        ("proto=tcp,af=ipv4,oif=kni0", "egress = \"dpdk0\""),
        ("proto=tcp,af=ipv4,oif=eth0", "egress = \"dpdk0\""),
    ] {
        let mut desired = with(&[key(list)]);
        let rule = made(&desired, Kind::Snat);
        assert!(rule.contains(has), "{list}: {rule}");
        let address = if list.contains("v6") { "2001:db8:1::10" } else { "198.51.100.10" };
        ask(&mut desired, &Request::AddDestination(key(list), to(address, 1))).expect("added");
        assert_eq!(compiled(&mut desired).len(), 2);
        assert_eq!(matches(desired.state())[0].spec.key, key(list));
    }
}

#[test]
fn names_are_legal_and_tell_keys_apart() {
    let one = key("proto=tcp,src-range=2001:db8:1111:2222::1-2001:db8:1111:2222::9999,oif=bond0.1");
    let other =
        key("proto=tcp,src-range=2001:db8:1111:2222::1-2001:db8:1111:2222::9999,oif=bond0.2");
    let (one, other) = (service_name(&one), service_name(&other));
    assert!(one.len() == 64 && other.len() == 64 && one != other, "{one} {other}");
    assert_eq!(one[..47], other[..47]);
    let to = key("proto=udp,dst-range=192.0.2.1,oif=dpdk0");
    assert_eq!(service_name(&to), "match-udp-to-192.0.2.1-192.0.2.1-dpdk0");
    assert_eq!(service_name(&key("proto=icmp,af=ipv4,oif=a")), "match-icmp-ipv4-a");
}

#[test]
fn refusals_have_the_kernels_errno_and_say_what_would_be_right() {
    let mut desired = with(&[tcp()]);
    ask(&mut desired, &Request::AddDestination(tcp(), to("198.51.100.10", 1))).expect("added");
    let add = |it: Destination| Request::AddDestination(tcp(), it);
    let method = |method| Destination { method, ..to("198.51.100.11", 1) };
    let at = |last: u8| ([198, 51, 100, last].into(), 0);
    let web =
        ServiceKey::Address { protocol: Protocol::Tcp, address: [198, 51, 100, 9].into(), port: 1 };
    let with = |spec: ServiceSpec| Request::EditService(spec);
    let rows = [
        (Request::AddService(spec(tcp())), Errno::Exist, "already"),
        (Request::EditService(spec(udp())), Errno::Srch, "there is no service MATCH proto=udp"),
        (Request::DeleteService(udp()), Errno::Srch, "no service"),
        (Request::Zero(Some(udp())), Errno::Srch, "no service"),
        (Request::AddDestination(udp(), to("198.51.100.11", 1)), Errno::Srch, "no service"),
        (add(to("198.51.100.10", 9)), Errno::Exist, "a destination of MATCH"),
        (add(method(Method::Masq)), Errno::Inval, "use -J"),
        (add(method(Method::FullNat)), Errno::Inval, "use -J"),
        (add(Destination { port: 80, ..to("198.51.100.11", 1) }), Errno::Inval, "use port 0"),
        (add(Destination { upper: 9, ..to("198.51.100.11", 1) }), Errno::Inval, "no thresholds"),
        (add(to("198.51.100.11", 65_536)), Errno::Inval, "above 65535"),
        (add(to("2001:db8::1", 1)), Errno::Inval, "different families"),
        (add(to("224.0.0.1", 1)), Errno::Inval, "224.0.0.1"),
        (Request::EditDestination(tcp(), to("198.51.100.11", 1)), Errno::NoEnt, "no destination"),
        (Request::DeleteDestination(tcp(), at(11)), Errno::NoEnt, "no destination"),
        (Request::AddLocal(tcp(), at(11).0), Errno::Inval, "-J"),
        (Request::AddListed(tcp(), List::Deny, "192.0.2.1".to_owned()), Errno::Inval, "src-range"),
        (
            Request::AddService(spec(key("proto=tcp,af=ipv4,oif=eth7"))),
            Errno::Inval,
            "dpdk1 (eth1)",
        ),
        (with(ServiceSpec { scheduler: "none".to_owned(), ..spec(tcp()) }), Errno::NoEnt, "none"),
        (with(ServiceSpec { flags: flags::PERSISTENT, ..spec(tcp()) }), Errno::Inval, "-p"),
        (with(ServiceSpec { flags: flags::ONE_PACKET, ..spec(tcp()) }), Errno::Inval, "-o"),
        (with(ServiceSpec { flags: flags::SCHEDULER_1, ..spec(tcp()) }), Errno::Inval, "-b"),
        (
            with(ServiceSpec { settings: Some(Settings::default()), ..spec(tcp()) }),
            Errno::Inval,
            "settings",
        ),
        (Request::AddDestination(web, method(Method::Snat)), Errno::Srch, "no service"),
    ];
    for (request, errno, says) in rows {
        let (was, detail) = refused(&mut desired, &request);
        assert!(was == errno && detail.contains(says), "{request:?}: {was:?} {detail}");
    }
    ask(&mut desired, &Request::AddService(spec(web))).expect("added");
    let snat = Request::AddDestination(web, method(Method::Snat));
    let (errno, detail) = refused(&mut desired, &snat);
    assert!(errno == Errno::Inval && detail.contains("services by match (-H)"), "{detail}");
    assert_eq!(lists(desired.state(), List::Deny, Some(&tcp())), Ok(vec![(tcp(), vec![])]));
}

#[test]
fn what_another_door_has_is_refused_with_its_name() {
    let mut desired = with(&[tcp()]);
    let theirs = Request::AddDestination(tcp(), to("198.51.100.70", 1));
    let (errno, detail) = refused(&mut desired, &theirs);
    assert_eq!(errno, Errno::Perm);
    assert!(detail.contains("pool \"outside\"") && detail.contains("file"), "{detail}");
    // It would never match.
    let covered = key("proto=udp,src-range=203.0.113.7-203.0.113.9,oif=dpdk1");
    let (errno, detail) = refused(&mut desired, &Request::AddService(spec(covered)));
    assert_eq!(errno, Errno::Perm);
    assert!(detail.contains("snat \"servers\"") && detail.contains("file"), "{detail}");
    for part in ["proto=icmp,src-range=203.0.113.7", "proto=udp,src-range=203.0.112.9-203.0.113.7"]
    {
        ask(&mut desired, &Request::AddService(spec(key(part)))).expect("not all of it");
    }
    let put = Edit::Put {
        key: Key::new(Kind::Snat, service_name(&udp())),
        value: serde_json::json!({ "sources": ["203.0.112.0/24"], "pool": "outside" }),
        pointer: String::new(),
    };
    commit(&mut desired, Author::of(Source::Api), What::Edits(vec![put])).expect("the API's");
    let (errno, detail) = refused(&mut desired, &Request::AddService(spec(udp())));
    assert!(errno == Errno::Perm && detail.contains("api"), "{detail}");
    // And the other way around: the API does not change what came by this source.
    let put = Edit::Delete(Key::new(Kind::Snat, service_name(&tcp())));
    let delete = commit(&mut desired, Author::of(Source::Api), What::Edits(vec![put]));
    assert_eq!(delete.map_err(|refused| refused.errno), Err(Errno::Perm));
    // A rule of theirs needs its pool; only by this source one may wait for it.
    let put = Edit::Put {
        key: Key::new(Kind::Snat, "bare"),
        value: serde_json::json!({ "sources": ["192.0.2.0/24"] }),
        pointer: String::new(),
    };
    let bare = commit(&mut desired, Author::of(Source::Api), What::Edits(vec![put]));
    assert!(bare.is_err_and(|refused| refused.detail.contains("this key is missing")));
}
