//! Files that somebody was still writing, and values of absurd size: always a configuration or
//! messages that one can read, and in no time.

use std::fs;
use std::path::Path;

use sluice_config::Config;

/// The longest that all that is said of one file may be, in bytes: that of a hundred mistakes.
const READABLE: usize = 32 * 1024;
const MEGABYTE: usize = 1 << 20;

fn examples() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let entries = fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("a file"));
    let files = entries
        .map(|entry| entry.path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "toml"));
    let texts: Vec<_> = files.map(|file| fs::read_to_string(file).expect("text")).collect();
    assert!(texts.len() >= 3);
    texts
}

/// What is said of a file, if anything.
fn said(text: &str) -> Option<String> {
    let refused = Config::parse("sluice.toml", text).err()?;
    let said = refused.to_string();
    assert!(said.starts_with("error: sluice.toml:"), "{said}");
    assert!(said.len() <= READABLE, "{} bytes: {:.200}", said.len(), said);
    Some(said)
}

/// A reload may come while an editor writes.
#[test]
fn a_half_written_file_is_whole_or_refused() {
    for text in examples() {
        assert_eq!(said(&text), None);
        let cuts = (0..text.len()).filter(|cut| text.is_char_boundary(*cut));
        let refused = cuts.filter_map(|cut| said(&text[..cut])).count();
        assert!(refused > text.lines().count(), "only {refused} of {} bytes", text.len());
    }
}

#[test]
fn a_file_of_zeros_is_refused() {
    let zeros = "\0".repeat(4096);
    assert!(said(&zeros).is_some(), "as a crash leaves it");
    let text = &examples()[0];
    assert!(said(&format!("{text}{zeros}")).is_some());
}

#[test]
fn values_of_a_megabyte_are_refused_in_readable_words() {
    let long = "x".repeat(MEGABYTE);
    let digits = "9".repeat(MEGABYTE);
    let service = |name: &str, more: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nprotocol = \"tcp\"\nvip = \"192.0.2.1\"\nport = 80\n\
             mode = \"nat\"\n{more}\n"
        )
    };
    let port =
        |name: &str, device: &str| format!("[[port]]\nname = \"{name}\"\ndevice = \"{device}\"\n");
    let two = |text: String| [text.clone(), text].concat();
    for (what, text) in [
        ("a name", service(&long, "")),
        ("a name twice", two(service(&long, ""))),
        ("a key", service("web", &format!("{long} = 1"))),
        ("a quoted key", service("web", &format!("\"{long}\" = 1"))),
        ("a word", service("web", &format!("scheduler = \"{long}\""))),
        ("a number", service("web", &format!("max_sessions = {digits}"))),
        ("an address", service("web", &format!("[[service.real]]\naddress = \"{long}\""))),
        ("a check's name", service("web", &format!("check = \"{long}\""))),
        ("a pool's name", service("web", &format!("pool = \"{long}\""))),
        ("a port's name", port(&long, "tap:x")),
        ("a device", port("front", &long)),
        ("a device of a kind", port("front", &format!("tap:{long}"))),
        ("a section", format!("[{long}]\n")),
        ("a line that ends nowhere", format!("[director]\nstate_dir = \"{long}")),
        ("brackets", "[".repeat(MEGABYTE)),
        ("a list of lists", format!("cores = {}", "[".repeat(MEGABYTE))),
        ("tables in tables", format!("[{}a]\n", "a.".repeat(MEGABYTE / 2))),
        ("many unknown keys", (0..50_000).map(|i| format!("key{i} = 1\n")).collect()),
        ("many sections", (0..50_000).map(|i| format!("[s{i}]\n")).collect()),
        ("many services without anything", "[[service]]\n".repeat(50_000)),
        ("a number for a section", "director = 7\nservice = 7\nport = \"x\"\n".to_owned()),
    ] {
        let said = said(&text).unwrap_or_else(|| panic!("{what} is accepted"));
        assert!(said.contains("sluice.toml:"), "{what}: {said}");
    }
}
