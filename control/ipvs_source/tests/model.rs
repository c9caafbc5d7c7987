//! Any order of commands against a model of IPVS as small as it can be: the same errnos, and the
//! same lists after each.

use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;
use sluice_config::Config;
use sluice_ipvs::{
    Destination, Errno, Family, Method, Protocol, Request, ServiceKey, ServiceSpec, Stats, Tunnel,
    flags,
};
use sluice_ipvs_source::{edits, services};
use sluice_state::{Author, Desired, FileContent, Request as Wish, Source, What};

/// Nothing but what `ipip` needs.
const FILE: &str = r#"
    [ipip]
    source_v4 = "192.0.2.1"
    source_v6 = "2001:db8::1"
    [[port]]
    name = "front"
    device = "af_xdp:eth0"
"#;

/// IPVS's table.
#[derive(Default)]
struct Kernel {
    services: BTreeMap<ServiceKey, (ServiceSpec, Destinations)>,
}

type Destinations = BTreeMap<(IpAddr, u16), Destination>;

impl Kernel {
    fn obey(&mut self, request: &Request) -> Result<(), Errno> {
        match request {
            Request::AddService(spec) if self.services.contains_key(&spec.key) => {
                return Err(Errno::Exist);
            }
            Request::AddService(spec) => {
                let spec = kept(spec)?;
                self.services.insert(spec.key, (spec, BTreeMap::new()));
            }
            Request::EditService(spec) => {
                let place = self.services.get_mut(&spec.key).ok_or(Errno::Srch)?;
                place.0 = kept(spec)?;
            }
            Request::DeleteService(key) => {
                self.services.remove(key).ok_or(Errno::Srch)?;
            }
            Request::Flush => self.services.clear(),
            Request::AddDestination(key, it) => {
                let (_, all) = self.services.get_mut(key).ok_or(Errno::Srch)?;
                in_range(it)?;
                if all.contains_key(&(it.address, it.port)) {
                    return Err(Errno::Exist);
                }
                all.insert((it.address, it.port), it.clone());
            }
            Request::EditDestination(key, it) => {
                let (_, all) = self.services.get_mut(key).ok_or(Errno::Srch)?;
                in_range(it)?;
                let place = all.get_mut(&(it.address, it.port)).ok_or(Errno::NoEnt)?;
                *place = it.clone();
            }
            Request::DeleteDestination(key, at) => {
                let (_, all) = self.services.get_mut(key).ok_or(Errno::Srch)?;
                all.remove(at).ok_or(Errno::NoEnt)?;
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }
}

fn kept(spec: &ServiceSpec) -> Result<ServiceSpec, Errno> {
    match &*spec.scheduler {
        "rr" | "wlc" | "mh" => {
            Ok(ServiceSpec { flags: spec.flags | flags::HASHED, ..spec.clone() })
        }
        _ => Err(Errno::NoEnt),
    }
}

fn in_range(it: &Destination) -> Result<(), Errno> {
    if it.lower > it.upper { Err(Errno::Range) } else { Ok(()) }
}

fn keys() -> impl Strategy<Value = ServiceKey> {
    let at = |protocol, address: &str, port| {
        let address = address.parse().expect("an address");
        ServiceKey::Address { protocol, address, port }
    };
    prop::sample::select(vec![
        at(Protocol::Tcp, "198.51.100.1", 80),
        at(Protocol::Udp, "198.51.100.1", 80),
        at(Protocol::Tcp, "198.51.100.1", 0),
        at(Protocol::Udp, "198.51.100.2", 53),
        at(Protocol::Tcp, "2001:db8::100", 80),
        ServiceKey::Mark { mark: 7, family: Family::Ipv4 },
        ServiceKey::Mark { mark: 7, family: Family::Ipv6 },
    ])
}

fn specs() -> impl Strategy<Value = ServiceSpec> {
    let schedulers = prop::sample::select(vec!["rr", "wlc", "mh", "none-such"]);
    let persistent = prop::option::of((1_u32..2_678_400, 1_u32..=32));
    let scheduler_flags = (0_u32..8).prop_map(|bits| bits << 3);
    let engine = prop::option::of(Just("sip".to_owned()));
    let parts = (keys(), schedulers, persistent, scheduler_flags, engine, any::<bool>());
    parts.prop_map(|(key, scheduler, persistent, bits, engine, one_packet)| {
        let (timeout_s, prefix) = persistent.unwrap_or((0, 32));
        let is_udp = matches!(key, ServiceKey::Address { protocol: Protocol::Udp, .. });
        let mut flags = bits;
        flags |= if persistent.is_some() { flags::PERSISTENT } else { 0 };
        flags |= if one_packet && is_udp { flags::ONE_PACKET } else { 0 };
        let netmask = match (key.family(), persistent) {
            (Family::Ipv4, _) => u32::MAX << (32 - prefix),
            (Family::Ipv6, Some(_)) => prefix * 4,
            (Family::Ipv6, None) => 128,
        };
        let scheduler = scheduler.to_owned();
        let persistence_engine = engine;
        ServiceSpec {
            key,
            scheduler,
            flags,
            timeout_s,
            netmask,
            persistence_engine,
            settings: None,
        }
    })
}

/// A key, and a destination that may be one of its.
fn destinations() -> impl Strategy<Value = (ServiceKey, Destination)> {
    let methods = vec![Method::Masq, Method::Route, Method::Tunnel, Method::FullNat];
    let parts =
        (keys(), 1_u8..4, prop::sample::select(methods), 0_u32..=65_535, 0_u32..4, 0_u32..4);
    parts.prop_map(|(key, last, method, weight, upper, lower)| {
        let (port, address) = match key {
            ServiceKey::Address { port, .. } => (port, key.family()),
            ServiceKey::Mark { .. } | ServiceKey::Match(_) => (8080, key.family()),
        };
        let address = match address {
            Family::Ipv4 => IpAddr::from([192, 0, 2, last]),
            Family::Ipv6 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()]),
        };
        let it = Destination {
            address,
            port,
            method,
            tunnel: Tunnel::IPIP,
            weight,
            upper,
            lower,
            active: 0,
            inactive: 0,
            persistent: 0,
            stats: Stats::default(),
        };
        (key, it)
    })
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        6 => specs().prop_map(Request::AddService),
        3 => specs().prop_map(Request::EditService),
        1 => keys().prop_map(Request::DeleteService),
        1 => Just(Request::Flush),
        8 => destinations().prop_map(|(key, it)| Request::AddDestination(key, it)),
        4 => destinations().prop_map(|(key, it)| Request::EditDestination(key, it)),
        2 => destinations()
            .prop_map(|(key, it)| Request::DeleteDestination(key, (it.address, it.port))),
    ]
}

fn ask(desired: &mut Desired, request: &Request) -> Result<(), Errno> {
    let edits = edits(desired.state(), request).map_err(|refused| refused.errno)?;
    if edits.is_empty() {
        return Ok(());
    }
    let by = Author::of(Source::Ipvsadm);
    let wish = Wish { by, if_epoch: None, dry_run: false, force: false, what: What::Edits(edits) };
    let answer = desired.commit(&[wish], 0, &mut |_| Ok(())).answers.remove(0);
    answer.map(drop).map_err(|refusal| sluice_ipvs_source::Refused::from(refusal).errno)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn commands_do_what_the_kernel_would(requests in prop::collection::vec(requests(), 1..60)) {
        let mut desired = Desired::default();
        let loaded = Config::parse("file", FILE).expect("a right file");
        let what = What::File(FileContent::of(&loaded.document));
        let by = Author::of(Source::File);
        let wish = Wish { by, if_epoch: None, dry_run: false, force: false, what };
        desired.commit(&[wish], 0, &mut |_| Ok(())).answers.remove(0).expect("a right file");
        let mut kernel = Kernel::default();
        for request in &requests {
            let (ours, theirs) = (ask(&mut desired, request), kernel.obey(request));
            prop_assert_eq!(ours, theirs, "{:?}", request);
            let listed = services(desired.state()).into_iter().map(|service| {
                let all = service.destinations.into_iter().map(|it| ((it.address, it.port), it));
                (service.spec.key, (service.spec, all.collect::<Destinations>()))
            });
            prop_assert_eq!(&listed.collect::<BTreeMap<_, _>>(), &kernel.services);
        }
    }
}
