//! Whole changes, as the daemon makes them: what is applied, what is refused and in which words,
//! and what is there after a restart.

use std::net::IpAddr;
use std::path::Path;

use serde_json::{Value, json};
use sluice_config::{Config, RealServer};
use sluice_state::{
    Applied, Author, Change, Desired, Edit, FileContent, Key, Kind, OpenError, Override,
    OverridePatch, Publish, RealState, Refusal, RefusalKind, Request, Source, Weight, What,
};
use tempfile::TempDir;

const FILE: &str = r#"
port = [{ name = "front", device = "tap:a" }]

[[pool]]
name = "lan"
addresses = ["192.0.2.10"]

[[service]]
name = "web"
protocol = "tcp"
vip = "198.51.100.200"
port = 80
pool = "lan"
real = [{ address = "192.0.2.11" }, { address = "192.0.2.12", weight = 3 }]
"#;

struct Place {
    folder: TempDir,
    desired: Desired,
    now: u64,
    /// What the director would run with.
    in_force: Option<Config>,
    /// How often only weights were to be put in force.
    weighed: u32,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let desired = Desired::open(folder.path()).expect("an empty folder");
        Self { folder, desired, now: 1000, in_force: None, weighed: 0 }
    }

    fn with_file() -> Self {
        let mut place = Self::new();
        place.file(FILE).expect("a right file");
        place
    }

    /// The director ends, however, and starts again.
    fn restart(&mut self) {
        self.desired = Desired::default();
        self.desired = Desired::open(self.folder.path()).expect("what was kept");
        self.in_force = self.desired.present(&mut |config| Ok(config.clone())).ok().map(|it| it.0);
    }

    fn all(&mut self, requests: &[Request]) -> Vec<Result<Applied, Refusal>> {
        self.now += 1;
        let mut compile = |config: &Config| Ok(config.clone());
        let outcome = self.desired.commit(requests, self.now, &mut compile);
        self.put_in_force(outcome.publish);
        outcome.answers
    }

    /// As the director does: what is in force is the state.
    fn put_in_force(&mut self, publish: Option<Publish<Config>>) {
        match publish {
            None => return,
            Some(Publish::Whole(config, compiled)) => {
                assert_eq!(*config, compiled);
                self.in_force = Some(compiled);
            }
            Some(Publish::Weights(weights)) => {
                assert!(!weights.is_empty());
                self.weighed += 1;
                let running = self.in_force.as_mut().expect("weights of nothing");
                weights.iter().for_each(|one| weigh(running, one));
            }
        }
        let state = self.config();
        assert_eq!(self.in_force.as_ref(), Some(&state));
    }

    fn one(&mut self, by: Source, what: What) -> Result<Applied, Refusal> {
        self.all(&[request(by, what)]).remove(0)
    }

    fn edit(&mut self, edit: Edit) -> Result<Applied, Refusal> {
        self.one(Source::Api, What::Edits(vec![edit]))
    }

    fn file(&mut self, text: &str) -> Result<Applied, Refusal> {
        self.one(Source::File, What::File(content(text)))
    }

    fn config(&mut self) -> Config {
        self.desired.present(&mut |config| Ok(config.clone())).expect("right").0
    }

    fn weights(&mut self) -> Vec<(u16, bool)> {
        let config = self.config();
        config.services[0].reals.iter().map(|real| (real.weight, real.down)).collect()
    }
}

fn weigh(config: &mut Config, Weight { service, real, weight }: &Weight) {
    let service = config.services.iter_mut().find(|it| it.name == *service).expect("a service");
    let is_it = |it: &&mut RealServer| it.address == real.ip() && it.port == real.port();
    service.reals.iter_mut().find(is_it).expect("a real server").weight = *weight;
}

fn whole(publish: Publish<()>) -> Config {
    match publish {
        Publish::Whole(config, ()) => *config,
        Publish::Weights(weights) => panic!("only {weights:?}"),
    }
}

fn request(by: Source, what: What) -> Request {
    Request { by: Author::of(by), if_epoch: None, dry_run: false, force: false, what }
}

fn content(text: &str) -> FileContent {
    FileContent::of(&Config::parse("sluice.toml", text).expect("a right file").document)
}

fn put(name: &str, port: u16) -> Edit {
    let value = json!({
        "protocol": "tcp", "vip": "198.51.100.200", "port": port, "pool": "lan",
        "real": [{ "address": "192.0.2.11" }],
    });
    Edit::Put { key: Key::new(Kind::Service, name), value, pointer: String::new() }
}

fn over(real: &str, patch: OverridePatch) -> Edit {
    let real: IpAddr = real.parse().expect("an address");
    Edit::Override { service: "web".to_owned(), real: (real, None), patch }
}

fn weight(weight: u16) -> OverridePatch {
    OverridePatch { weight: Some(Some(weight)), state: None }
}

fn state(state: RealState) -> OverridePatch {
    OverridePatch { weight: None, state: Some(Some(state)) }
}

#[test]
fn a_file_is_an_epoch_and_the_same_file_is_none() {
    let mut place = Place::new();
    let first = place.file(FILE).expect("right");
    assert_eq!((first.epoch, first.durable), (1, true));
    let again = place.file(&FILE.replace("weight = 3", "weight = 0x3")).expect("right");
    assert_eq!((again.epoch, again.changes.len()), (1, 0), "only its writing differs");
    let more = place.file(&FILE.replace("weight = 3", "weight = 4")).expect("right");
    assert_eq!(more.epoch, 2);
    assert_eq!(more.summary, "service \"web\": real 192.0.2.12:80: weight: 3 -> 4");
    assert_eq!(place.weights(), [(1, false), (4, false)]);
}

#[test]
fn what_the_api_makes_outlives_reloads_and_restarts() {
    let mut place = Place::with_file();
    let made = place.edit(put("extra", 81)).expect("right");
    assert_eq!((made.epoch, &*made.summary), (2, "service \"extra\": added"));
    place.file(&FILE.replace("port = 80", "port = 8080")).expect("right");
    place.restart();
    let names: Vec<_> = place.config().services.iter().map(|it| it.name.clone()).collect();
    assert_eq!(names, ["web", "extra"], "the file's come first");
    assert_eq!(place.desired.epoch(), 3);
    let authors: Vec<_> =
        place.desired.history().epochs().iter().map(|it| it.author.source).collect();
    assert_eq!(authors, [Source::File, Source::Api, Source::File]);
    assert!(place.desired.has_read(&content(&FILE.replace("port = 80", "port = 8080"))));
}

#[test]
fn nobody_changes_what_is_anothers() {
    let mut place = Place::with_file();
    place.edit(put("extra", 81)).expect("right");
    for edit in [
        put("web", 80),
        Edit::Delete(Key::new(Kind::Service, "web")),
        Edit::Delete(Key::new(Kind::Pool, "lan")),
        Edit::DeleteReal { service: "web".into(), real: ("192.0.2.11".parse().unwrap(), None) },
    ] {
        let refusal = place.edit(edit).expect_err("it is the file's");
        assert_eq!(refusal.kind, RefusalKind::Conflict);
        assert_eq!(refusal.owner, Some(Author::of(Source::File)));
        assert!(refusal.detail.contains("belongs to file: change it in the configuration file"));
    }
    let refusal = place.edit(put("rival", 80)).expect_err("the endpoint is taken");
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    assert!(refusal.detail.contains("taken by service \"web\", which belongs to file"));
    // And the other way around.
    let second = FILE.replace("port = 80", "port = 81");
    let refusal = place.file(&second).expect_err("the API's service has it");
    assert!(refusal.detail.contains("service \"extra\", which belongs to api"), "{refusal}");
    let named = FILE.replace("\"web\"", "\"extra\"");
    let refusal = place.file(&named).expect_err("the API's service is called that");
    assert!(refusal.detail.contains("service \"extra\" belongs to api"), "{refusal}");
    assert_eq!(place.desired.epoch(), 2);
    assert_eq!(place.weights(), [(1, false), (3, false)]);
}

#[test]
fn overrides_hold_until_reset_or_until_the_owner_speaks() {
    let mut place = Place::with_file();
    place.edit(over("192.0.2.11", weight(7))).expect("anybody may");
    place.edit(over("192.0.2.12", state(RealState::Drain))).expect("anybody may");
    assert_eq!(place.weights(), [(7, false), (0, false)]);
    place.restart();
    assert_eq!(place.weights(), [(7, false), (0, false)]);
    // Another real server's change leaves both, its own takes it back.
    place.file(&FILE.replace("weight = 3", "weight = 4")).expect("right");
    assert_eq!(place.weights(), [(7, false), (4, false)]);
    place.edit(over("192.0.2.11", state(RealState::Down))).expect("right");
    assert_eq!(place.weights(), [(7, true), (4, false)]);
    place.edit(over("192.0.2.11", state(RealState::Up))).expect("right");
    let real = "192.0.2.11:80".parse().unwrap();
    let left = Some(Override { weight: Some(7), state: None });
    assert_eq!(place.desired.state().over("web", real), left, "up is what is configured");
    place.edit(over("192.0.2.11", OverridePatch::RESET)).expect("right");
    assert_eq!(place.weights(), [(1, false), (4, false)]);
    let nothing = place.edit(over("192.0.2.11", weight(1))).expect("right");
    assert!(nothing.changes.is_empty(), "that is its weight");
    let refusal = place.edit(over("192.0.2.99", weight(1))).expect_err("not there");
    assert_eq!(refusal.kind, RefusalKind::NotFound);
    assert!(refusal.detail.contains("it has 192.0.2.11:80, 192.0.2.12:80"), "{refusal}");
}

#[test]
fn going_back_is_an_epoch_of_its_own() {
    let mut place = Place::with_file();
    place.edit(over("192.0.2.11", weight(7))).expect("right");
    place.file(&FILE.replace("weight = 3", "weight = 9")).expect("right");
    place.edit(put("extra", 81)).expect("right");
    let back = place.one(Source::Api, What::Rollback(2)).expect("known");
    assert_eq!(back.epoch, 5);
    assert!(back.summary.starts_with("back to epoch 2: "), "{}", back.summary);
    assert_eq!(place.weights(), [(7, false), (3, false)]);
    assert_eq!(place.config().services.len(), 1);
    assert!(place.desired.differs_from_file());
    place.restart();
    assert!(place.desired.differs_from_file());
    assert_eq!(place.weights(), [(7, false), (3, false)]);
    // The file that was read last is not read again at a start, but by a reload.
    let file = FILE.replace("weight = 3", "weight = 9");
    assert!(place.desired.has_read(&content(&file)));
    place.file(&file).expect("right");
    assert!(!place.desired.differs_from_file());
    assert_eq!(place.weights(), [(7, false), (9, false)]);
    let refusal = place.one(Source::Api, What::Rollback(99)).expect_err("to come");
    assert!(refusal.detail.contains("epochs 0 to 6 are known"), "{refusal}");
}

#[test]
fn wrong_values_are_told_by_pointer_and_change_nothing() {
    let mut place = Place::with_file();
    let wrong = |change: &dyn Fn(&mut Value)| {
        let Edit::Put { key, mut value, .. } = put("extra", 81) else { unreachable!() };
        change(&mut value);
        Edit::Put { key, value, pointer: "/service/0".to_owned() }
    };
    let faults = |refusal: Refusal| -> Vec<String> {
        assert_eq!(refusal.kind, RefusalKind::Invalid);
        refusal
            .faults
            .iter()
            .map(|it| format!("{}: {}; {}", it.pointer, it.detail, it.hint))
            .collect()
    };
    let told = |place: &mut Place, edit| faults(place.edit(edit).expect_err("wrong"));
    let found = told(&mut place, wrong(&|it| it["schedular"] = json!("rr")));
    assert_eq!(
        found,
        ["/service/0/schedular: there is no such key here; did you mean `scheduler`?"]
    );
    let found = told(&mut place, wrong(&|it| it["real"][0]["weight"] = json!("heavy")));
    assert!(found[0].starts_with("/service/0/real/0/weight: \"heavy\" is a string"), "{found:?}");
    let found = told(&mut place, wrong(&|it| it["pool"] = json!("wan")));
    assert!(found[0].starts_with("/service/0/pool: no pool is called \"wan\""), "{found:?}");
    let found = told(&mut place, wrong(&|it| it["vip"] = json!("192.0.2.10")));
    assert!(found[0].starts_with("/service/0/vip: 192.0.2.10 is a local address;"), "{found:?}");
    let found = told(&mut place, wrong(&|it| *it = json!([1])));
    assert!(found[0].starts_with("/service/0: a service must be an object"), "{found:?}");
    let found = told(&mut place, wrong(&|it| it["name"] = json!("\u{7f}\"\n")));
    assert!(found[0].starts_with("/service/0/name:"), "{found:?}");
    assert_eq!(place.desired.epoch(), 1);
}

#[test]
fn one_bad_request_of_many_costs_the_others_nothing() {
    let mut place = Place::with_file();
    let mut requests: Vec<Request> = (0..20)
        .map(|at| request(Source::Api, What::Edits(vec![put(&format!("s{at}"), 1000 + at)])))
        .collect();
    // Fits by itself, and not with the others.
    let Edit::Put { key, mut value, pointer } = put("bad", 4000) else { unreachable!() };
    value["vip"] = json!("192.0.2.10");
    requests.insert(7, request(Source::Api, What::Edits(vec![Edit::Put { key, value, pointer }])));
    let answers = place.all(&requests);
    let epochs: Vec<_> = answers.iter().filter_map(|it| Some(it.as_ref().ok()?.epoch)).collect();
    assert_eq!(epochs, (2..22).collect::<Vec<_>>(), "an epoch each, in their order");
    assert!(answers[7].is_err());
    assert_eq!(place.config().services.len(), 21);
}

#[test]
fn several_objects_are_made_together_or_not_at_all() {
    let mut place = Place::with_file();
    let pool = |address: &str| Edit::Put {
        key: Key::new(Kind::Pool, "second"),
        value: json!({ "addresses": [address] }),
        pointer: "/pool/0".to_owned(),
    };
    let Edit::Put { key, mut value, .. } = put("extra", 81) else { unreachable!() };
    value["pool"] = json!("second");
    let service = Edit::Put { key, value, pointer: "/service/0".to_owned() };
    let wrong = What::Edits(vec![pool("192.0.2.10"), service.clone()]);
    let refusal = place.one(Source::Api, wrong).expect_err("the address is in another pool");
    assert_eq!(refusal.faults[0].pointer, "/pool/0/addresses/0", "{refusal}");
    assert_eq!(place.config().pools.len(), 1);
    // The service comes first in the document, and may name the pool all the same.
    let right = What::Edits(vec![service, pool("192.0.2.20")]);
    let made = place.one(Source::Api, right).expect("right");
    assert_eq!(made.summary, "pools: 1 added; services: 1 added");
    assert_eq!(place.desired.epoch(), 2);
}

#[test]
fn a_dry_run_tells_and_changes_nothing() {
    let mut place = Place::with_file();
    let what = What::Edits(vec![put("extra", 81)]);
    let dry = Request { dry_run: true, ..request(Source::Api, what.clone()) };
    let told = place.all(std::slice::from_ref(&dry)).remove(0).expect("right");
    assert_eq!((told.epoch, &*told.summary), (1, "service \"extra\": added"));
    assert_eq!(place.config().services.len(), 1);
    let late = Request { if_epoch: Some(0), ..request(Source::Api, what) };
    let refusal = place.all(&[late]).remove(0).expect_err("epoch 1 is in force");
    assert_eq!((refusal.kind, refusal.epoch), (RefusalKind::Stale, Some(1)));
}

#[test]
fn what_cannot_be_compiled_is_not_written() {
    let mut place = Place::with_file();
    let mut refuse = |_: &Config| Err::<(), _>("no room".to_owned());
    let asked = [request(Source::Api, What::Edits(vec![put("extra", 81)]))];
    let outcome = place.desired.commit(&asked, 5, &mut refuse);
    assert!(outcome.publish.is_none());
    assert_eq!(outcome.answers[0].as_ref().map_err(|it| &*it.detail), Err("no room"));
    place.restart();
    assert_eq!((place.desired.epoch(), place.config().services.len()), (1, 1));
}

#[test]
fn real_servers_of_the_api_come_and_go() {
    let mut place = Place::with_file();
    place.edit(put("extra", 81)).expect("right");
    let real: (IpAddr, _) = ("2001:db8:2::11".parse().unwrap(), Some(8080));
    let put_real = |value| Edit::PutReal { service: "extra".into(), real, value };
    let refusal = place.edit(put_real(json!({ "weight": -1 }))).expect_err("no weight");
    assert_eq!(refusal.faults[0].pointer, "/weight", "{refusal}");
    let refusal = place.edit(put_real(json!({}))).expect_err("the pool has no IPv6");
    assert!(refusal.detail.contains("no IPv6 address"), "{refusal}");
    let real = ("192.0.2.15".parse().unwrap(), Some(8080));
    let put_real = |value| Edit::PutReal { service: "extra".into(), real, value };
    let made = place.edit(put_real(json!({ "weight": 2 }))).expect("right");
    assert!(matches!(&made.changes[..], [Change::Real { at: 1, before: None, .. }]), "{made:?}");
    let made = place.edit(put_real(json!({ "weight": 5 }))).expect("right");
    assert_eq!(made.summary, "service \"extra\": real 192.0.2.15:8080: weight: 2 -> 5");
    place.restart();
    assert_eq!(place.config().services[1].reals[1].weight, 5);
    place.edit(Edit::DeleteReal { service: "extra".into(), real }).expect("right");
    assert_eq!(place.config().services[1].reals.len(), 1);
}

#[test]
fn two_directors_do_not_share_a_folder() {
    let place = Place::with_file();
    let error = Desired::open(place.folder.path()).expect_err("it is in use");
    assert!(matches!(error, OpenError::Locked(_)));
    assert!(error.to_string().contains("state_dir of its own"), "{error}");
}

#[test]
fn without_a_folder_it_goes_on_and_says_so() {
    let mut desired = Desired::open(Path::new("/proc/no/such/place")).expect("goes on");
    let notes = desired.take_notes();
    assert!(notes[0].contains("will not survive a restart"), "{notes:?}");
    assert!(!desired.is_durable());
}

#[test]
fn a_check_comes_by_the_api_too_but_runs_no_program() {
    let mut place = Place::with_file();
    let check = |value| Edit::Put {
        key: Key::new(Kind::Check, "page"),
        value,
        pointer: "/check/0".to_owned(),
    };
    place.edit(check(json!({ "kind": "http", "path": "/live" }))).expect("right");
    assert_eq!(place.config().checks.iter().map(|it| &*it.path).collect::<Vec<_>>(), ["/live"]);
    let script = json!({ "kind": "script", "command": ["/bin/true"] });
    let refusal = place.edit(check(script)).expect_err("a program");
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert_eq!(refusal.faults[0].pointer, "/check/0/kind");
    place.restart();
    assert_eq!(place.config().checks.len(), 1);
}

/// What was read of a file serves in place of reading its objects again, also of a changed file.
#[test]
fn a_file_need_not_be_read_twice() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let mut both = [Desired::default(), Desired::default()];
        for text in [text.replacen("weight = ", "weight = 1", 1), text] {
            let loaded = Config::parse("sluice.toml", &text).expect("a right file");
            let contents = [FileContent::loaded(&loaded), FileContent::of(&loaded.document)];
            let published = both.iter_mut().zip(contents).map(|(desired, content)| {
                let by = Author::of(Source::File);
                let what = What::File(content);
                let request = Request { by, if_epoch: None, dry_run: false, force: false, what };
                let outcome = desired.commit(&[request], 1, &mut |_: &Config| Ok(()));
                assert!(outcome.answers[0].is_ok() && !desired.differs_from_file());
                outcome.publish.map(whole)
            });
            let published: Vec<_> = published.collect();
            assert_eq!(published[0], published[1], "{}", path.display());
            seen += usize::from(published[0].is_some());
        }
    }
    assert!(seen >= 4, "only {seen}");
}

#[test]
fn null_is_no_value() {
    let mut place = Place::new();
    place.file(FILE).expect("right");
    let key = Key::new(Kind::Check, "page");
    for (value, pointer) in [
        (json!({ "kind": "tcp", "mark": null }), "/mark"),
        (json!({ "kind": "http", "status": ["200", null] }), "/status/1"),
    ] {
        let edit = Edit::Put { key: key.clone(), value, pointer: String::new() };
        let refused = place.edit(edit).expect_err("refused");
        assert_eq!(refused.faults[0].pointer, pointer, "{refused}");
    }
}

/// Weights and draining need no compiling; what else an override says does, and so does a weight
/// beside another change.
#[test]
fn only_weights_are_put_in_force_as_such() {
    let mut place = Place::with_file();
    let steps = [
        (weight(7), 1),
        (state(RealState::Drain), 2),
        (weight(9), 3),
        (state(RealState::Up), 4),
        (state(RealState::Down), 4),
        (weight(5), 5),
        (state(RealState::Drain), 5),
    ];
    for (patch, weighed) in steps {
        place.edit(over("192.0.2.11", patch)).expect("right");
        assert_eq!(place.weighed, weighed, "{patch:?}");
    }
    let edits = [over("192.0.2.11", weight(2)), put("other", 81)];
    let requests = edits.map(|edit| request(Source::Api, What::Edits(vec![edit])));
    assert!(place.all(&requests).iter().all(Result::is_ok));
    let both = ["192.0.2.11", "192.0.2.12"].map(|real| {
        request(
            Source::Api,
            What::Edits(vec![over(real, state(RealState::Up)), over(real, weight(4))]),
        )
    });
    assert!(place.all(&both[1..]).iter().chain(&place.all(&both)).all(Result::is_ok));
    assert_eq!(place.weighed, 7);
}
