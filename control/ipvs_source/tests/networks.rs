//! IPVS knows the default network only: what is in another is neither seen nor in its way.

use sluice_config::Config;
use sluice_ipvs::{Protocol, Request, ServiceKey, ServiceSpec};
use sluice_ipvs_source::{edits, local_addresses, services};
use sluice_state::{Author, Desired, FileContent, Request as Wish, Source, What};

const FILE: &str = r#"
    port = [{ name = "front", device = "tap:a" }, { name = "b", device = "tap:b", network = "n" }]
    network = [{ name = "n", table = 100 }]
    [[pool]]
    name = "there"
    network = "n"
    addresses = ["192.0.2.32-192.0.2.39"]
    [[service]]
    name = "web"
    network = "n"
    protocol = "tcp"
    vip = "198.51.100.200"
    port = 80
    pool = "there"
    real = [{ address = "192.0.2.11" }]
"#;

fn commit(desired: &mut Desired, source: Source, what: What) {
    let by = Author::of(source);
    let wish = Wish { by, if_epoch: None, dry_run: false, force: false, what };
    desired.commit(&[wish], 0, &mut |_| Ok(())).answers.remove(0).expect("right");
}

fn ask(desired: &mut Desired, request: &Request) {
    let edits = edits(desired.state(), request).expect("a right command");
    commit(desired, Source::Ipvsadm, What::Edits(edits));
}

#[test]
fn what_is_in_another_network_is_not_seen_and_takes_nothing() {
    let mut desired = Desired::default();
    let loaded = Config::parse("file", FILE).expect("a right file");
    commit(&mut desired, Source::File, What::File(FileContent::of(&loaded.document)));
    assert!(services(desired.state()).is_empty());
    assert!(local_addresses(desired.state(), None).expect("none").is_empty());
    let address = "198.51.100.200".parse().expect("an address");
    let key = ServiceKey::Address { protocol: Protocol::Tcp, address, port: 80 };
    let spec = ServiceSpec {
        key,
        scheduler: "rr".to_owned(),
        flags: 0,
        timeout_s: 0,
        netmask: u32::MAX,
        persistence_engine: None,
        settings: None,
    };
    ask(&mut desired, &Request::AddService(spec));
    let seen = services(desired.state());
    assert_eq!((seen.len(), &*seen[0].owner), (1, "ipvsadm"));
    let local = "192.0.2.32".parse().expect("an address");
    ask(&mut desired, &Request::AddLocal(key, local));
    let own = local_addresses(desired.state(), Some(&key)).expect("a service");
    assert_eq!(own[0].addresses.len(), 1);
}
