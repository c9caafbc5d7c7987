//! What a journal is after a crash, at whatever byte; and after a program of another version.

use std::fs;
use std::path::Path;

use serde_json::json;
use sluice_config::Config;
use sluice_state::{
    Author, Desired, EPOCHS_KEPT, Edit, FileContent, HISTORY_BYTES, Journal, Key, Kind,
    OverridePatch, Request, Source, State, What,
};
use tempfile::TempDir;

const FILE: &str = r#"
port = [{ name = "front", device = "tap:a" }]
pool = [{ name = "lan", addresses = ["192.0.2.10"] }]
service = [{ name = "web", protocol = "tcp", vip = "198.51.100.200", port = 80, pool = "lan",
    real = [{ address = "192.0.2.11" }, { address = "192.0.2.12" }] }]
"#;

fn commit(desired: &mut Desired, by: Source, what: What) {
    let request =
        Request { by: Author::of(by), if_epoch: None, dry_run: false, force: false, what };
    let mut compile = |_: &Config| Ok(());
    let outcome = desired.commit(&[request], 1, &mut compile);
    outcome.answers.into_iter().for_each(|answer| assert!(answer.is_ok(), "{answer:?}"));
}

fn file(desired: &mut Desired) {
    let document = Config::parse("sluice.toml", FILE).expect("right").document;
    commit(desired, Source::File, What::File(FileContent::of(&document)));
}

fn weigh(desired: &mut Desired, weight: u16) {
    let patch = OverridePatch { weight: Some(Some(weight)), state: None };
    let real = ("192.0.2.11".parse().unwrap(), None);
    let edit = Edit::Override { service: "web".to_owned(), real, patch };
    commit(desired, Source::Api, What::Edits(vec![edit]));
}

fn put(desired: &mut Desired, name: &str, port: u16) {
    let value = json!({ "protocol": "udp", "vip": "198.51.100.200", "port": port });
    let key = Key::new(Kind::Service, name);
    let edit = Edit::Put { key, value, pointer: String::new() };
    commit(desired, Source::Api, What::Edits(vec![edit]));
}

/// In memory where that can be had: a sync costs nothing there, and what it does for a crash of the
/// machine no test here sees.
fn new_folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a folder")
}

fn open(folder: &Path) -> Desired {
    Desired::open(folder).expect("a journal")
}

/// Cut anywhere, the journal holds all epochs whose last byte is there, and takes new ones.
#[test]
fn cut_at_every_byte_it_holds_what_is_whole() {
    let folder = new_folder();
    let path = folder.path().join("journal");
    let mut desired = open(folder.path());
    let mut states: Vec<(u64, State)> = Vec::new();
    let note = |desired: &Desired, states: &mut Vec<_>| {
        let length = fs::metadata(&path).expect("a journal").len();
        states.push((length, desired.state().clone()));
    };
    note(&desired, &mut states);
    file(&mut desired);
    note(&desired, &mut states);
    for weight in 2..6 {
        weigh(&mut desired, weight);
        note(&desired, &mut states);
    }
    put(&mut desired, "extra", 53);
    note(&desired, &mut states);
    commit(&mut desired, Source::Api, What::Rollback(2));
    note(&desired, &mut states);
    drop(desired);
    let whole = fs::read(&path).expect("a journal");
    for cut in 0..=whole.len() {
        let folder = new_folder();
        fs::write(folder.path().join("journal"), &whole[..cut]).expect("written");
        let mut desired = open(folder.path());
        let held = states.iter().rposition(|(length, _)| *length <= cut as u64).unwrap_or(0);
        assert_eq!(desired.state(), &states[held].1, "cut at {cut}");
        assert_eq!(desired.epoch(), held as u64, "cut at {cut}");
        let clean = states.iter().any(|(length, _)| *length == cut as u64) || cut == 0;
        let told = desired.take_notes();
        assert_eq!(told.is_empty(), clean && cut > 0, "cut at {cut}: {told:?}");
        let kept_aside = folder.path().join("journal.damaged").exists();
        assert_eq!(kept_aside, !clean, "cut at {cut}");
        if held > 0 && cut % 37 == 0 {
            put(&mut desired, "after", 99);
            let state = desired.state().clone();
            drop(desired);
            assert_eq!(open(folder.path()).state(), &state, "cut at {cut}, and a new epoch");
        }
    }
}

/// A byte turned in an epoch's record: what is before it holds, the rest is kept aside.
#[test]
fn a_damaged_record_ends_what_is_used() {
    let folder = new_folder();
    let path = folder.path().join("journal");
    let mut desired = open(folder.path());
    file(&mut desired);
    let before = fs::metadata(&path).expect("a journal").len() as usize;
    let state = desired.state().clone();
    weigh(&mut desired, 5);
    weigh(&mut desired, 6);
    drop(desired);
    let whole = fs::read(&path).expect("a journal");
    for at in (before..whole.len()).step_by(7) {
        let folder = new_folder();
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(folder.path().join("journal"), &bytes).expect("written");
        let mut desired = open(folder.path());
        assert!((1..=2).contains(&desired.epoch()), "byte {at}");
        assert!(desired.epoch() == 2 || desired.state() == &state, "byte {at}");
        assert!(desired.take_notes()[0].contains("torn or damaged"));
        let aside = fs::read(folder.path().join("journal.damaged")).expect("kept");
        assert!(aside == bytes);
    }
}

/// Whatever lies in the journal's place, a state can be kept from then on, nothing is lost, and it
/// is said where it is.
#[test]
fn what_is_no_journal_is_kept_aside_and_a_new_one_begins() {
    type Put = fn(&Path);
    let puts: [(&str, Put, &str); 5] = [
        ("a header is missing", |path| fs::write(path, "what is this?").unwrap(), "no header"),
        ("a header is damaged", |path| fs::write(path, b"sluice Journal").unwrap(), "no header"),
        ("it is a folder", |path| fs::create_dir(path).unwrap(), "no file"),
        ("a link leads nowhere", |path| std::os::unix::fs::symlink("x", path).unwrap(), "nowhere"),
        ("it is newer", |path| fs::write(path, newer()).unwrap(), "newer version"),
    ];
    for (what, put_there, said) in puts {
        let folder = new_folder();
        let path = folder.path().join("journal");
        for aside in ["", ".1", ".2"] {
            if !aside.is_empty() {
                fs::remove_file(&path).unwrap();
            }
            put_there(&path);
            let mut desired = open(folder.path());
            let name = if said == "newer version" { "newer" } else { "damaged" };
            let kept = folder.path().join(format!("journal.{name}{aside}"));
            assert!(fs::symlink_metadata(&kept).is_ok(), "{what}: {kept:?}");
            let notes = desired.take_notes();
            assert_eq!(notes.len(), 1, "{what}: {notes:?}");
            assert!(notes[0].contains(said), "{what}: {notes:?}");
            assert!(notes[0].contains(&kept.display().to_string()), "{what}: {notes:?}");
            assert!(desired.is_durable(), "{what}");
            file(&mut desired);
            let state = desired.state().clone();
            drop(desired);
            assert_eq!(open(folder.path()).state(), &state, "{what}");
        }
    }
}

fn newer() -> Vec<u8> {
    let payload = br#"{"format":2,"something":"else"}"#;
    let length = (payload.len() as u32).to_le_bytes();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&length), payload).to_le_bytes();
    [&b"sluice journal\n\0"[..], &length, &crc, payload].concat()
}

/// Large changes are few, and it is said which are gone.
#[test]
fn the_history_is_bounded_by_its_size_too() {
    let folder = new_folder();
    let mut desired = open(folder.path());
    file(&mut desired);
    let large = |round: usize| {
        let edits = (0..200).map(|number| {
            let text = format!("{round} {}", "x".repeat(4000));
            let port = 2000 + number;
            let value = json!({ "protocol": "udp", "vip": "198.51.100.200", "port": port,
                                "labels": { "a": text, "b": text, "c": text, "d": text,
                                            "e": text } });
            let key = Key::new(Kind::Service, format!("s{number}"));
            Edit::Put { key, value, pointer: String::new() }
        });
        What::Edits(edits.collect())
    };
    let mut notes = Vec::new();
    for round in 0..20 {
        commit(&mut desired, Source::Api, large(round));
        notes.extend(desired.take_notes());
        let history = desired.history();
        assert!(history.bytes() <= HISTORY_BYTES, "{} bytes", history.bytes());
    }
    let (first, last) = desired.history().reach();
    assert_eq!(last, 21);
    assert!((3..12).contains(&first), "back to {first}");
    let said = format!("and one can go back as far as epoch {first}");
    assert!(notes.last().is_some_and(|note| note.ends_with(&said)), "{notes:?}");
    let length = fs::metadata(folder.path().join("journal")).expect("a journal").len();
    assert!(length < 100 << 20, "{length} bytes");
    let what = What::Rollback(first - 1);
    let request =
        Request { by: Author::of(Source::Api), if_epoch: None, dry_run: false, force: false, what };
    let mut compile = |_: &Config| Ok(());
    let refusal = desired.commit(&[request], 1, &mut compile).answers.remove(0).expect_err("gone");
    assert!(refusal.to_string().contains("older ones were dropped"), "{refusal}");
    commit(&mut desired, Source::Api, What::Rollback(first));
    let state = desired.state().clone();
    drop(desired);
    let again = open(folder.path());
    assert_eq!(again.state(), &state);
    assert!(again.history().bytes() <= HISTORY_BYTES);
}

/// A journal that has grown is written anew, with as many epochs as are kept.
#[test]
fn it_does_not_grow_for_ever() {
    let folder = new_folder();
    let (mut journal, _) = Journal::open(folder.path()).expect("empty");
    let mut desired = Desired::default();
    file(&mut desired);
    for round in 0..EPOCHS_KEPT as u16 + 50 {
        weigh(&mut desired, 2 + round);
    }
    assert_eq!(desired.history().epochs().len(), EPOCHS_KEPT);
    journal.rewrite(desired.state(), desired.history()).expect("written");
    drop(journal);
    let again = open(folder.path());
    assert_eq!(again.state(), desired.state());
    assert_eq!(again.history().epochs(), desired.history().epochs());
    assert_eq!(again.history().reach(), (51, 1051));
    let past = again.history().state_at(51, again.state()).expect("kept");
    let real = "192.0.2.11:80".parse().unwrap();
    assert_eq!(past.over("web", real).and_then(|over| over.weight), Some(51));
}

/// A start with the file that was read last takes what was read of it just now; also of another
/// one it believes only what the journal says.
#[test]
fn a_start_may_learn_from_the_file() {
    let folder = new_folder();
    let mut desired = open(folder.path());
    file(&mut desired);
    weigh(&mut desired, 7);
    put(&mut desired, "dns", 53);
    drop(desired);
    let present = |learnt: Option<&str>| {
        let mut desired = open(folder.path());
        if let Some(text) = learnt {
            desired
                .learn(&FileContent::loaded(&Config::parse("sluice.toml", text).expect("right")));
        }
        desired.present(&mut |_: &Config| Ok(())).expect("right").0
    };
    let plain = present(None);
    assert_eq!(present(Some(FILE)), plain);
    assert_eq!(present(Some(&FILE.replace("port = 80", "port = 81"))), plain);
    assert_eq!((plain.services.len(), plain.services[0].reals[0].weight), (2, 7));
}

/// A director that is to take over reads the journal of the one that goes on: what is there, and
/// nothing of it changes, whatever is tried.
#[test]
fn a_journal_in_use_is_read_beside_its_owner() {
    let folder = new_folder();
    assert_eq!(Desired::peek(&folder.path().join("absent")).expect("none yet").epoch(), 0);
    let mut owner = open(folder.path());
    file(&mut owner);
    weigh(&mut owner, 7);
    assert!(Desired::open(folder.path()).is_err(), "it is the owner's");
    let mut beside = Desired::peek(folder.path()).expect("it can be read");
    assert_eq!((beside.epoch(), beside.is_durable()), (owner.epoch(), false));
    assert_eq!(beside.state(), owner.state());
    let journal = fs::read(folder.path().join("journal")).expect("a journal");
    weigh(&mut beside, 9);
    assert_eq!(fs::read(folder.path().join("journal")).expect("a journal"), journal);
    weigh(&mut owner, 8);
    // In the middle of a record of the owner's.
    let longer = fs::read(folder.path().join("journal")).expect("a journal");
    drop(owner);
    fs::write(folder.path().join("journal"), &longer[..longer.len() - 3]).expect("written");
    let torn = Desired::peek(folder.path()).expect("what is whole");
    assert_eq!(torn.epoch(), beside.epoch() - 1);
    let left = fs::read(folder.path().join("journal")).expect("a journal");
    assert_eq!(left.len(), longer.len() - 3, "and it is left as it is");
    fs::write(folder.path().join("journal"), newer()).expect("written");
    assert!(Desired::peek(folder.path()).is_err(), "of a later version");
}
