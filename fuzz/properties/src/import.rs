//! Files of other balancers: whatever they are, something comes of them that can be used.

use std::net::IpAddr;

use sluice_config::Config;
use sluice_import::{Files, Names, Source, ipvsadm_save, keepalived};

/// What goes before the sections: a file with ports.
const BASE: &str = "[ipip]\nsource_v4 = \"203.0.113.250\"\nsource_v6 = \"2001:db8:ffff::1\"\n\n\
                    [[port]]\nname = \"one\"\ndevice = \"af_packet:one\"\n\n";

/// One other file, which may include itself.
struct Other(String);

impl Files for Other {
    fn include(&mut self, pattern: &str, _: &str) -> Result<Vec<Source>, String> {
        match pattern.is_empty() {
            true => Err("it has no name".to_owned()),
            false => Ok(vec![Source { name: "other.conf".to_owned(), text: self.0.clone() }]),
        }
    }
}

/// Everybody has an address, and any port that begins with a letter is known.
struct All;

impl Names for All {
    fn resolves(&self) -> bool {
        true
    }

    fn host(&mut self, name: &str) -> Option<IpAddr> {
        (!name.is_empty()).then_some([192, 0, 2, 1].into())
    }

    fn port(&mut self, name: &str, _: &str) -> Option<u16> {
        name.starts_with(char::is_alphabetic).then_some(80)
    }
}

/// Reads the bytes as keepalived.conf, the part behind the first zero byte as a file that it may
/// include, and as what ipvsadm-save wrote.
///
/// # Panics
/// When what comes of it is not right to the configuration's own reader, or a remark is of a line
/// that is not there.
pub fn import(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (text, other) = text.split_once('\0').unwrap_or((&text, ""));
    let source = Source { name: "fuzz.conf".to_owned(), text: text.to_owned() };
    let of_keepalived = keepalived(&source, "main", &mut Other(other.to_owned()));
    let of_ipvsadm = ipvsadm_save(&source, &mut All);
    for imported in [of_keepalived, of_ipvsadm] {
        for note in imported.notes() {
            let file = if &*note.place.file == "fuzz.conf" { text } else { other };
            assert!((1..=file.lines().count()).contains(&note.place.line), "{note}");
            assert!(!note.means.is_empty() && !note.instead.is_empty(), "{note}");
            assert!(imported.is_accounted(&note.place.file, note.place.line), "{note}");
        }
        // The ports that rules of source NAT name are in the director's file.
        let made = imported.toml("from fuzz.conf");
        let lines = made.lines().filter(|line| !line.starts_with("egress = "));
        let made = BASE.to_owned() + &lines.collect::<Vec<_>>().join("\n");
        if let Err(wrong) = Config::parse("made.toml", &made) {
            panic!("what came of it is wrong: {wrong}\n{made}");
        }
    }
}
