//! Isolated networks: the file's own sections, and what each of them takes is taken from no other.

use serde_json::json;
use sluice_config::Config;
use sluice_state::{
    Applied, Author, Desired, Edit, FileContent, Key, Kind, Refusal, RefusalKind, Request, Source,
    What,
};

const FILE: &str = r#"
port = [{ name = "front", device = "tap:a" }, { name = "b", device = "tap:b", network = "blue" }]
network = [{ name = "blue", table = 100 }]

[[service]]
name = "web"
protocol = "tcp"
vip = "198.51.100.200"
port = 80
mode = "nat"
real = [{ address = "192.0.2.11" }]
"#;

fn commit(desired: &mut Desired, by: Source, what: What) -> Result<Applied, Refusal> {
    let by = Author::of(by);
    let request = Request { by, if_epoch: None, dry_run: false, force: false, what };
    desired.commit(&[request], 0, &mut |_| Ok(())).answers.remove(0)
}

fn file(desired: &mut Desired, text: &str) -> Result<Applied, Refusal> {
    let loaded = Config::parse("sluice.toml", text).expect("a right file");
    commit(desired, Source::File, What::File(FileContent::of(&loaded.document)))
}

fn put(desired: &mut Desired, name: &str, network: &str) -> Result<Applied, Refusal> {
    let mut value = json!({
        "protocol": "tcp", "vip": "198.51.100.200", "port": 80,
        "mode": "nat", "real": [{ "address": "192.0.2.11" }],
    });
    if !network.is_empty() {
        value["network"] = network.into();
    }
    let key = Key::new(Kind::Service, name);
    let edit = Edit::Put { key, value, pointer: "/spec".to_owned() };
    commit(desired, Source::Api, What::Edits(vec![edit]))
}

#[test]
fn the_same_endpoint_is_another_one_in_another_network() {
    let mut desired = Desired::default();
    file(&mut desired, FILE).expect("a right file");
    put(&mut desired, "blue-web", "blue").expect("nobody has it there");
    let rival = put(&mut desired, "rival", "").expect_err("the file has it");
    assert!(rival.detail.contains("taken by service \"web\""), "{}", rival.detail);
    let rival = put(&mut desired, "rival", "blue").expect_err("it is there twice");
    assert_eq!(rival.kind, RefusalKind::Invalid);
    let blue = FILE.replace("name = \"web\"\n", "name = \"web\"\nnetwork = \"blue\"\n");
    let refused = file(&mut desired, &blue).expect_err("the API has it");
    assert!(refused.detail.contains("taken by service \"blue-web\""), "{}", refused.detail);
    let vip = "198.51.100.200".parse().expect("an address");
    assert_eq!(desired.state().claimant("tcp", vip, "80"), Some("web"));
}

#[test]
fn what_names_no_network_is_refused_where_it_is_said() {
    let mut desired = Desired::default();
    file(&mut desired, FILE).expect("a right file");
    let refused = put(&mut desired, "lost", "bleu").expect_err("there is none");
    let fault = &refused.faults[0];
    assert_eq!(fault.pointer, "/spec/network");
    assert_eq!(fault.detail, "no network is called \"bleu\"");
    assert!(fault.hint.contains("did you mean \"blue\""), "{}", fault.hint);
    let refused = put(&mut desired, "lost", "default").expect_err("it has no name");
    assert!(refused.faults[0].hint.contains("leave the key out"), "{}", refused.faults[0].hint);
}

#[test]
fn networks_are_a_section_of_the_file() {
    let mut desired = Desired::default();
    file(&mut desired, FILE).expect("a right file");
    let more = FILE.replace("table = 100", "table = 101");
    let changed = file(&mut desired, &more).expect("right");
    assert_eq!(changed.changes.len(), 2, "the section, and that the file was read");
    assert!(changed.summary.contains("network"), "{}", changed.summary);
    let (config, ()) = desired.present(&mut |_| Ok(())).expect("right");
    assert_eq!((config.networks[0].table, &*config.ports[1].network), (Some(101), "blue"));
    let key = Key::new(Kind::Section, "network");
    let edit = Edit::Put { key, value: json!([]), pointer: String::new() };
    let refused = commit(&mut desired, Source::Api, What::Edits(vec![edit]));
    assert!(refused.is_err(), "the file has it");
    let gone = FILE.replace(", network = \"blue\"", "").replace("network = [", "#");
    put(&mut desired, "blue-web", "blue").expect("right");
    let refused = file(&mut desired, &gone).expect_err("a service is in it");
    assert!(refused.to_string().contains("no network is called \"blue\""), "{refused}");
}
