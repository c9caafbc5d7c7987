//! Commands against a desired state without a disk: errnos, owners, and that what was said comes
//! back when it is listed.

use std::net::IpAddr;

use sluice_config::{Config, Document, document};
use sluice_ipvs::{
    Daemon, Destination, Errno, Family, List, Method, Protocol, Request, Role, ServiceKey,
    ServiceSpec, Settings, Stats, Timeouts, Tunnel, TunnelKind, flags,
};
use sluice_ipvs_source::{Refused, edits, service, service_name, services};
use sluice_state::{
    Author, Desired, Edit, FileContent, Key, Kind, Override, Request as Wish, Source, What,
};

const FILE: &str = r#"
    [[port]]
    name = "front"
    device = "af_xdp:eth0"
    [ipip]
    source_v4 = "192.0.2.1"
    source_v6 = "2001:db8::1"
    [[pool]]
    name = "lan"
    addresses = ["192.0.2.32-192.0.2.39"]
    [[service]]
    name = "web"
    protocol = "tcp"
    vip = "198.51.100.200"
    port = 80
    mode = "nat"
    real = [{ address = "192.0.2.11", weight = 5 }, { address = "192.0.2.12", port = 8080 }]
    [[service]]
    name = "range"
    protocol = "udp"
    vip = "198.51.100.200"
    port = "8000-8099"
    pool = "lan"
"#;

fn file(text: &str) -> FileContent {
    let loaded = Config::parse("file", text).expect("a right file");
    FileContent::of(&loaded.document)
}

fn began() -> Desired {
    let mut desired = Desired::default();
    let by = Author::of(Source::File);
    commit(&mut desired, by, What::File(file(FILE))).expect("a right file");
    desired
}

fn commit(desired: &mut Desired, by: Author, what: What) -> Result<u64, Refused> {
    let wish = Wish { by, if_epoch: None, dry_run: false, force: false, what };
    let answer = desired.commit(&[wish], 0, &mut |_| Ok(())).answers.remove(0);
    Ok(answer?.epoch)
}

fn ask(desired: &mut Desired, request: &Request) -> Result<u64, Refused> {
    let edits = edits(desired.state(), request)?;
    if edits.is_empty() {
        return Ok(desired.epoch());
    }
    commit(desired, Author::of(Source::Ipvsadm), What::Edits(edits))
}

fn errno(desired: &mut Desired, request: &Request) -> Errno {
    let epoch = desired.epoch();
    let refused = ask(desired, request).expect_err("it must be refused");
    assert_eq!(desired.epoch(), epoch, "a refused command changes nothing");
    assert!(!refused.detail.is_empty());
    refused.errno
}

fn at(protocol: Protocol, address: &str, port: u16) -> ServiceKey {
    ServiceKey::Address { protocol, address: address.parse().expect("an address"), port }
}

fn spec(key: ServiceKey, scheduler: &str) -> ServiceSpec {
    ServiceSpec {
        key,
        scheduler: scheduler.to_owned(),
        flags: 0,
        timeout_s: 0,
        netmask: if key.family() == Family::Ipv4 { u32::MAX } else { 128 },
        persistence_engine: None,
        settings: None,
    }
}

fn to(address: &str, port: u16, method: Method) -> Destination {
    Destination {
        address: address.parse().expect("an address"),
        port,
        method,
        tunnel: Tunnel::IPIP,
        weight: 1,
        upper: 0,
        lower: 0,
        active: 0,
        inactive: 0,
        persistent: 0,
        stats: Stats::default(),
    }
}

fn mail() -> ServiceKey {
    at(Protocol::Tcp, "198.51.100.200", 25)
}

fn with_mail() -> Desired {
    let mut desired = began();
    ask(&mut desired, &Request::AddService(spec(mail(), "wlc"))).expect("added");
    desired
}

#[test]
fn names_are_legal_and_stay_the_same() {
    let mark = |mark, family| ServiceKey::Mark { mark, family };
    for (key, name) in [
        (mail(), "tcp-198.51.100.200-25"),
        (at(Protocol::Udp, "2001:db8::1", 0), "udp-2001_db8__1-all"),
        (
            at(Protocol::Sctp, "2001:db8:1111:2222:3333:4444:5555:6666", 65_535),
            "sctp-2001_db8_1111_2222_3333_4444_5555_6666-65535",
        ),
        (mark(7, Family::Ipv4), "fwm-7"),
        (mark(7, Family::Ipv6), "fwm-7-ipv6"),
    ] {
        assert_eq!(service_name(&key), name);
        assert!(name.len() <= 64);
    }
}

#[test]
fn what_was_said_of_a_service_is_listed_again() {
    let v6 = at(Protocol::Udp, "2001:db8::200", 53);
    let mark = ServiceKey::Mark { mark: 7, family: Family::Ipv6 };
    let plain = |key| spec(key, "rr");
    let all_flags = flags::SCHEDULER_1 | flags::SCHEDULER_2 | flags::SCHEDULER_3;
    for wanted in [
        plain(mail()),
        ServiceSpec { scheduler: "mh".to_owned(), flags: flags::SCHEDULER_2, ..plain(mail()) },
        ServiceSpec { scheduler: "sh".to_owned(), flags: all_flags, ..plain(mail()) },
        ServiceSpec { scheduler: "wrr".to_owned(), flags: flags::SCHEDULER_2, ..plain(mark) },
        ServiceSpec { flags: flags::ONE_PACKET, ..plain(v6) },
        ServiceSpec {
            flags: flags::PERSISTENT | flags::ONE_PACKET,
            timeout_s: 300,
            netmask: 64,
            persistence_engine: Some("sip".to_owned()),
            ..plain(v6)
        },
        ServiceSpec {
            flags: flags::PERSISTENT,
            timeout_s: 2_678_400,
            netmask: 0xffff_ff00,
            ..plain(at(Protocol::Tcp, "198.51.100.200", 0))
        },
        ServiceSpec { flags: flags::PERSISTENT, timeout_s: 3_000_000, ..plain(mark) },
    ] {
        let mut desired = began();
        ask(&mut desired, &Request::AddService(wanted.clone())).expect("added");
        let listed = ServiceSpec { flags: wanted.flags | flags::HASHED, ..wanted.clone() };
        let found = service(desired.state(), &wanted.key).expect("listed");
        assert_eq!(found.spec, listed);
        assert_eq!((&*found.owner, found.name), ("ipvsadm", service_name(&wanted.key)));
        // An edit to something else takes all of it away again.
        let other = ServiceSpec { netmask: plain(wanted.key).netmask, ..plain(wanted.key) };
        ask(&mut desired, &Request::EditService(other.clone())).expect("edited");
        let found = service(desired.state(), &wanted.key).expect("listed");
        assert_eq!(found.spec, ServiceSpec { flags: flags::HASHED, ..other });
        ask(&mut desired, &Request::DeleteService(wanted.key)).expect("deleted");
        assert_eq!(desired.state(), &{ began() }.state().clone(), "nothing is left behind");
    }
}

#[test]
fn destinations_are_listed_as_they_were_added() {
    let mut desired = with_mail();
    let v6 = at(Protocol::Tcp, "2001:db8::200", 25);
    let mark = ServiceKey::Mark { mark: 7, family: Family::Ipv4 };
    ask(&mut desired, &Request::AddService(spec(v6, "rr"))).expect("added");
    ask(&mut desired, &Request::AddService(spec(mark, "rr"))).expect("added");
    for (key, it) in [
        (mail(), to("192.0.2.11", 2525, Method::Masq)),
        (mail(), Destination { weight: 0, ..to("192.0.2.12", 25, Method::Route) }),
        (mail(), Destination { upper: 9, lower: 4, ..to("192.0.2.13", 25, Method::Tunnel) }),
        (mail(), to("2001:db8::13", 25, Method::Tunnel)),
        // Without a local address yet.
        (mail(), Destination { weight: 65_535, ..to("192.0.2.14", 25, Method::FullNat) }),
        (v6, to("192.0.2.14", 25, Method::FullNat)),
        (v6, to("2001:db8::15", 25, Method::Masq)),
        (mark, Destination { weight: 3, ..to("192.0.2.16", 0, Method::Masq) }),
        (mark, Destination { upper: 9, lower: 4, ..to("192.0.2.17", 80, Method::Route) }),
    ] {
        ask(&mut desired, &Request::AddDestination(key, it.clone())).expect("added");
        let found = service(desired.state(), &key).expect("listed").destinations;
        assert!(found.contains(&it), "{it:?} {found:?}");
        assert_eq!(errno(&mut desired, &Request::AddDestination(key, it.clone())), Errno::Exist);
        let heavier = Destination { weight: 7, ..it.clone() };
        ask(&mut desired, &Request::EditDestination(key, heavier.clone())).expect("edited");
        let found = service(desired.state(), &key).expect("listed").destinations;
        assert!(found.contains(&heavier) && !found.contains(&it), "{found:?}");
    }
    for (key, address, port) in
        [(mail(), "192.0.2.11", 2525), (v6, "2001:db8::15", 25), (mark, "192.0.2.16", 0)]
    {
        let request = Request::DeleteDestination(key, (address.parse().expect("one"), port));
        ask(&mut desired, &request).expect("deleted");
        assert_eq!(errno(&mut desired, &request), Errno::NoEnt);
    }
}

#[test]
fn refusals_are_the_kernels() {
    let mut desired = with_mail();
    let nowhere = at(Protocol::Udp, "198.51.100.200", 25);
    let no_mark = ServiceKey::Mark { mark: 9, family: Family::Ipv4 };
    let it = to("192.0.2.11", 25, Method::Masq);
    let odd = ServiceSpec {
        flags: flags::PERSISTENT,
        timeout_s: 300,
        netmask: 0xff00_ff00,
        ..spec(nowhere, "rr")
    };
    let engine = Some("sap".to_owned());
    // Remote checksum offload.
    let gue = Tunnel { kind: TunnelKind::Gue, port: 6080, flags: 2 };
    let add = |it: &Destination| Request::AddDestination(mail(), it.clone());
    for (request, wanted) in [
        (Request::AddService(spec(mail(), "rr")), Errno::Exist),
        (Request::AddService(spec(nowhere, "none-such")), Errno::NoEnt),
        (Request::EditService(spec(mail(), "none-such")), Errno::NoEnt),
        (
            Request::AddService(ServiceSpec { persistence_engine: engine, ..spec(nowhere, "rr") }),
            Errno::NoEnt,
        ),
        (Request::AddService(odd), Errno::Inval),
        (Request::AddService(spec(at(Protocol::Tcp, "224.0.0.1", 80), "rr")), Errno::Inval),
        (Request::AddService(ServiceSpec { flags: 4, ..spec(mail(), "rr") }), Errno::Exist),
        (
            Request::AddService(spec(ServiceKey::Mark { mark: 0, family: Family::Ipv4 }, "rr")),
            Errno::Inval,
        ),
        (Request::EditService(spec(nowhere, "rr")), Errno::Srch),
        (Request::EditService(spec(no_mark, "rr")), Errno::Srch),
        (Request::DeleteService(nowhere), Errno::Srch),
        (Request::DeleteService(no_mark), Errno::Srch),
        (Request::Zero(Some(nowhere)), Errno::Srch),
        (Request::AddDestination(nowhere, it.clone()), Errno::Srch),
        (Request::EditDestination(nowhere, it.clone()), Errno::Srch),
        (Request::DeleteDestination(nowhere, (it.address, 25)), Errno::Srch),
        (Request::EditDestination(mail(), it.clone()), Errno::NoEnt),
        (Request::DeleteDestination(mail(), (it.address, 25)), Errno::NoEnt),
        (add(&Destination { upper: 4, lower: 5, ..it.clone() }), Errno::Range),
        (add(&Destination { lower: 5, ..it.clone() }), Errno::Range),
        (add(&Destination { weight: 65_536, ..it.clone() }), Errno::Inval),
        (add(&to("2001:db8::11", 25, Method::Masq)), Errno::Inval),
        (add(&to("127.0.0.1", 25, Method::Masq)), Errno::Inval),
        (add(&to("192.0.2.11", 26, Method::Route)), Errno::Inval),
        (add(&to("192.0.2.11", 25, Method::Bypass)), Errno::Inval),
        (add(&Destination { tunnel: gue, ..to("192.0.2.11", 25, Method::Tunnel) }), Errno::Inval),
        (Request::StopDaemon(Role::Master), Errno::Srch),
        (Request::SetTimeouts(Timeouts { tcp_s: 86_401, tcp_fin_s: 0, udp_s: 0 }), Errno::Inval),
        (Request::AddLocal(nowhere, it.address), Errno::Srch),
        (Request::DeleteLocal(mail(), it.address), Errno::NoEnt),
    ] {
        assert_eq!(errno(&mut desired, &request), wanted, "{request:?}");
    }
}

#[test]
fn what_another_door_owns_is_refused_by_its_name() {
    let mut desired = began();
    let web = at(Protocol::Tcp, "198.51.100.200", 80);
    let it = to("192.0.2.11", 80, Method::Masq);
    for request in [
        Request::EditService(spec(web, "rr")),
        Request::DeleteService(web),
        Request::AddDestination(web, to("192.0.2.19", 80, Method::Masq)),
        Request::DeleteDestination(web, (it.address, 80)),
        Request::EditDestination(web, Destination { upper: 5, ..it.clone() }),
        Request::EditDestination(web, to("192.0.2.11", 80, Method::Route)),
        Request::AddLocal(web, "192.0.2.77".parse().expect("one")),
    ] {
        let refused = ask(&mut desired, &request).expect_err("it is the file's");
        assert_eq!(refused.errno, Errno::Perm, "{request:?}");
        let told = ["service \"web\"", "file", "reload"];
        assert!(told.iter().all(|word| refused.detail.contains(word)), "{}", refused.detail);
    }
    assert_eq!(errno(&mut desired, &Request::AddService(spec(web, "rr"))), Errno::Exist);
    // An address of the file's pool, for a service of this source.
    ask(&mut desired, &Request::AddService(spec(mail(), "rr"))).expect("added");
    let lan = Request::AddLocal(mail(), "192.0.2.33".parse().expect("one"));
    assert_eq!(errno(&mut desired, &lan), Errno::Perm);
    // And the other way round.
    let key = Key::new(Kind::Service, "tcp-198.51.100.200-25");
    let refused =
        commit(&mut desired, Author::of(Source::Api), What::Edits(vec![Edit::Delete(key)]));
    let refused = refused.expect_err("it is ipvsadm's");
    assert!(refused.detail.contains("belongs to ipvsadm"), "{}", refused.detail);
}

#[test]
fn the_weight_of_a_files_destination_is_an_override() {
    let mut desired = began();
    let web = at(Protocol::Tcp, "198.51.100.200", 80);
    let real = "192.0.2.11:80".parse().expect("an endpoint");
    let weighs = |weight| {
        Request::EditDestination(web, Destination { weight, ..to("192.0.2.11", 80, Method::Masq) })
    };
    ask(&mut desired, &weighs(0)).expect("drained");
    let over = Override { weight: Some(0), state: None };
    assert_eq!(desired.state().over("web", real), Some(over));
    let listed = service(desired.state(), &web).expect("listed");
    assert_eq!((listed.destinations[0].weight, &*listed.owner), (0, "file"));
    // As configured: nothing is overridden any more.
    ask(&mut desired, &weighs(5)).expect("weighed");
    assert_eq!(desired.state().over("web", real), None);
}

#[test]
fn flushing_takes_only_what_came_by_this_door() {
    let mut desired = with_mail();
    let before = began().state().clone();
    let local = "192.0.2.77".parse().expect("one");
    let mark = ServiceKey::Mark { mark: 7, family: Family::Ipv4 };
    ask(&mut desired, &Request::AddLocal(mail(), local)).expect("added");
    ask(&mut desired, &Request::AddService(spec(mark, "rr"))).expect("added");
    let keys = services(desired.state()).iter().map(|it| it.spec.key).collect::<Vec<_>>();
    assert_eq!(keys, [at(Protocol::Tcp, "198.51.100.200", 80), mail(), mark]);
    ask(&mut desired, &Request::Flush).expect("flushed");
    assert_eq!(desired.state(), &before);
}

fn pool_of(desired: &Desired, service: &str) -> Option<Vec<String>> {
    let state = desired.state();
    let service = state.object(&Key::new(Kind::Service, service))?;
    let pool = state.object(&Key::new(Kind::Pool, service.value.get("pool")?.as_str()?))?;
    let list = pool.value.get("addresses")?.as_array()?;
    Some(list.iter().filter_map(|it| Some(it.as_str()?.to_owned())).collect())
}

#[test]
fn services_that_share_a_local_address_share_a_pool() {
    let mut desired = with_mail();
    let news = at(Protocol::Tcp, "198.51.100.200", 119);
    let (mail_name, news_name) = (service_name(&mail()), service_name(&news));
    ask(&mut desired, &Request::AddService(spec(news, "rr"))).expect("added");
    let ip = |last: u8| IpAddr::from([192, 0, 2, last]);
    let mut local = |request: &Request| {
        ask(&mut desired, request).map_err(|it| it.errno)?;
        Ok::<_, Errno>([pool_of(&desired, &mail_name), pool_of(&desired, &news_name)])
    };
    let list = |all: &[u8]| Some(all.iter().map(|last| ip(*last).to_string()).collect());
    assert_eq!(local(&Request::AddLocal(mail(), ip(71))), Ok([list(&[71]), None]));
    assert_eq!(local(&Request::AddLocal(mail(), ip(71))), Err(Errno::Exist));
    assert_eq!(local(&Request::AddLocal(news, ip(72))), Ok([list(&[71]), list(&[72])]));
    let both = list(&[71, 72]);
    assert_eq!(local(&Request::AddLocal(news, ip(71))), Ok([both.clone(), both]));
    let apart = local(&Request::DeleteLocal(news, ip(71)));
    assert_eq!(apart, Ok([list(&[71]), list(&[72])]));
    assert_eq!(local(&Request::DeleteLocal(news, ip(71))), Err(Errno::NoEnt));
    assert_eq!(local(&Request::DeleteService(mail())), Ok([None, list(&[72])]));
    assert_eq!(local(&Request::DeleteLocal(news, ip(72))), Ok([None, None]));
    let pools = desired.state().objects().keys().filter(|key| key.kind == Kind::Pool);
    assert_eq!(pools.map(|key| &*key.name).collect::<Vec<_>>(), ["lan"]);
}

#[test]
fn full_nat_waits_for_its_first_local_address() {
    let mut desired = with_mail();
    let it = to("192.0.2.11", 25, Method::FullNat);
    ask(&mut desired, &Request::AddDestination(mail(), it)).expect("added");
    let reals = |desired: &mut Desired| {
        let (config, ()) = desired.present(&mut |_| Ok(())).expect("right");
        config.services.iter().find(|it| it.name.starts_with("tcp-")).map(|it| it.reals.len())
    };
    assert_eq!(reals(&mut desired), Some(0));
    let local = "192.0.2.77".parse().expect("one");
    ask(&mut desired, &Request::AddLocal(mail(), local)).expect("added");
    assert_eq!(reals(&mut desired), Some(1));
    ask(&mut desired, &Request::DeleteLocal(mail(), local)).expect("deleted");
    assert_eq!(reals(&mut desired), Some(0));
    assert_eq!(service(desired.state(), &mail()).expect("listed").destinations.len(), 1);
}

#[test]
fn timeouts_hold_in_place_of_the_files() {
    let mut desired = began();
    let set = |tcp_s, tcp_fin_s, udp_s| Request::SetTimeouts(Timeouts { tcp_s, tcp_fin_s, udp_s });
    ask(&mut desired, &set(1000, 0, 50)).expect("set");
    ask(&mut desired, &set(0, 60, 0)).expect("set");
    let (config, ()) = desired.present(&mut |_| Ok(())).expect("right");
    let held = config.spec().timeouts;
    assert_eq!((held.tcp_established_s, held.tcp_fin_wait_s, held.udp_s), (1000, 60, 50));
    assert_eq!(held.tcp_syn_recv_s, 60);
    // The file may take the section for itself, and keeps it then.
    let taken = FILE.to_owned() + "[ipvs]\nudp_s = 20\n";
    let refused = commit(&mut desired, Author::of(Source::File), What::File(file(&taken)));
    assert!(refused.expect_err("it is ipvsadm's").detail.contains("[ipvs] belongs to ipvsadm"));
    let mut desired = Desired::default();
    commit(&mut desired, Author::of(Source::File), What::File(file(&taken))).expect("read");
    assert_eq!(errno(&mut desired, &set(1, 1, 1)), Errno::Perm);
}

#[test]
fn daemons_are_there_once_each() {
    let mut desired = began();
    let daemon = |role| Daemon {
        role,
        interface: "eth0".to_owned(),
        sync_id: 5,
        maximum_length: 1400,
        group: Some([224, 0, 0, 90].into()),
        port: 8849,
        ttl: 2,
    };
    let (master, backup) = (daemon(Role::Master), daemon(Role::Backup));
    for it in [&backup, &master] {
        ask(&mut desired, &Request::StartDaemon(it.clone())).expect("started");
        assert_eq!(errno(&mut desired, &Request::StartDaemon(it.clone())), Errno::Exist);
    }
    assert_eq!(sluice_ipvs_source::daemons(desired.state()), [master, backup.clone()]);
    ask(&mut desired, &Request::StopDaemon(Role::Master)).expect("stopped");
    assert_eq!(sluice_ipvs_source::daemons(desired.state()), [backup]);
    let wrong = Daemon { sync_id: 256, ..daemon(Role::Master) };
    assert_eq!(errno(&mut desired, &Request::StartDaemon(wrong)), Errno::Inval);
    ask(&mut desired, &Request::StopDaemon(Role::Backup)).expect("stopped");
    assert_eq!(desired.state(), began().state());
}

#[test]
fn all_of_it_is_a_file_that_can_be_read() {
    let mut desired = with_mail();
    let mark = ServiceKey::Mark { mark: 7, family: Family::Ipv4 };
    let persistent =
        ServiceSpec { flags: flags::PERSISTENT | 8, timeout_s: 3_000_000, ..spec(mark, "wrr") };
    for request in [
        Request::AddService(persistent),
        Request::AddDestination(mark, to("192.0.2.16", 0, Method::Masq)),
        Request::SetTimeouts(Timeouts { tcp_s: 1, tcp_fin_s: 2, udp_s: 3 }),
        Request::AddDestination(mail(), to("192.0.2.11", 25, Method::FullNat)),
        Request::AddLocal(mail(), "192.0.2.77".parse().expect("one")),
    ] {
        ask(&mut desired, &request).expect("done");
    }
    let shown: Document = desired.view().document();
    let text = document::to_toml(&shown, &|_, _| None);
    let again = Config::parse("shown", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let again = document::to_toml(&again.document, &|_, _| None);
    assert_eq!(again, text);
    assert!(text.contains("labels = { \"ipvs.local\" = \"192.0.2.77\" }"), "{text}");
    assert!(text.contains("destinations = [\"192.0.2.16:0 nat 1\"]"), "{text}");
}

/// A list survives an edit of its service, and says each client once.
#[test]
fn lists_of_clients_are_kept_and_listed() {
    let mut desired = with_mail();
    let add = |list, who: &str| Request::AddListed(mail(), list, who.to_owned());
    let delete = |list, who: &str| Request::DeleteListed(mail(), list, who.to_owned());
    for who in ["203.0.113.9", "203.0.113.200/25"] {
        ask(&mut desired, &add(List::Deny, who)).expect("added");
    }
    ask(&mut desired, &add(List::Allow, "198.51.100.0/24")).expect("added");
    assert_eq!(errno(&mut desired, &add(List::Deny, "203.0.113.9/32")), Errno::Exist);
    assert_eq!(errno(&mut desired, &delete(List::Allow, "203.0.113.9")), Errno::NoEnt);
    assert_eq!(errno(&mut desired, &add(List::Deny, "ipset:bad")), Errno::Inval);
    let stranger = at(Protocol::Tcp, "198.51.100.201", 25);
    let wanted = Request::AddListed(stranger, List::Deny, "203.0.113.9".to_owned());
    assert_eq!(errno(&mut desired, &wanted), Errno::Srch);
    ask(&mut desired, &Request::EditService(spec(mail(), "wrr"))).expect("edited");
    let all = |desired: &Desired, list| {
        sluice_ipvs_source::lists(desired.state(), list, None).expect("lists of all")
    };
    let denied = vec!["203.0.113.9".to_owned(), "203.0.113.128/25".to_owned()];
    assert_eq!(all(&desired, List::Deny), [(mail(), denied)]);
    assert_eq!(all(&desired, List::Allow), [(mail(), vec!["198.51.100.0/24".to_owned()])]);
    ask(&mut desired, &delete(List::Allow, "198.51.100.0/24")).expect("taken away");
    assert_eq!(all(&desired, List::Allow), []);
    assert!(sluice_ipvs_source::lists(desired.state(), List::Deny, Some(&stranger)).is_err());
}

#[test]
fn a_services_own_timeout_is_kept_by_commands_that_do_not_say_it() {
    let mut desired = with_mail();
    let settings = Settings { connection_timeout_s: Some(90), ..Settings::default() };
    let said = ServiceSpec { settings: Some(settings.clone()), ..spec(mail(), "rr") };
    ask(&mut desired, &Request::EditService(said)).expect("edited");
    ask(&mut desired, &Request::EditService(spec(mail(), "wlc"))).expect("edited");
    let listed = sluice_ipvs_source::service(desired.state(), &mail()).expect("there");
    assert_eq!(listed.spec.settings, Some(settings));
}
