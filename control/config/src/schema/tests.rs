//! The descriptions hold together: names, examples and defaults are what they say they are.

use std::collections::HashSet;

use super::keys::FILE;
use super::{Key, Kind, Section, Without};
use crate::Config;
use crate::path::{Path, Place};
use crate::suggest;

fn all_keys() -> Vec<(&'static Section, &'static Key)> {
    let sections = FILE.flatten();
    sections.into_iter().flat_map(|it| it.keys.iter().map(move |key| (it, *key))).collect()
}

/// A file with nothing but `key = value` in a section like this one.
fn file_with(section: &Section, key: &Key, value: &str) -> String {
    let around = if section.name == "real" { "[[service]]\nname = \"s\"\n" } else { "" };
    // What tunnels have is refused of other modes.
    let beside = match key.name {
        "tunnel_port" => "mode = \"gue\"\n",
        "tunnel_checksum" | "tunnel_key" => "mode = \"gre\"\n",
        _ => "",
    };
    format!("{around}{}\n{beside}{} = {value}\n", section.heading, key.name)
}

/// What is wrong with this key when it has this value.
fn wrong(section: &Section, key: &Key, value: &str) -> Vec<String> {
    let text = file_with(section, key, value);
    let refused = Config::parse("sluice.toml", &text).expect_err("there is no port");
    let path = match section.place {
        Place::Real => Path::real(0, 0),
        place => Path::table(place, 0),
    };
    let begin = path.key(key.name).to_string();
    let about = |diagnostic: &&crate::Diagnostic| diagnostic.key.starts_with(&begin);
    refused.diagnostics().iter().filter(about).map(ToString::to_string).collect()
}

/// The message is about something the file lacks besides this key, such as the pool it names.
fn is_unresolved(message: &str) -> bool {
    let lacks = [" is called ", "beside it", "there are no tokens"];
    lacks.iter().any(|words| message.contains(words))
}

#[test]
fn names_are_unique_within_a_section() {
    for section in FILE.flatten() {
        let mut seen = HashSet::new();
        assert!(section.names().all(|name| seen.insert(name)), "{}", section.heading);
        assert!(!section.heading.is_empty() || section.place == FILE.place);
    }
}

/// A key without its unit, or with another, leads to the key, whatever else its section has; and a
/// word that other programs have leads to a key that exists, unless it is one of the section's own.
#[test]
fn other_words_for_a_key_lead_to_it() {
    let units = ["_per_s", "_ms", "_s", "_days", "_percent"];
    for section in FILE.flatten() {
        let names: Vec<&str> = section.names().collect();
        for name in &names {
            let Some(bare) = units.iter().find_map(|unit| name.strip_suffix(unit)) else {
                continue;
            };
            let others = units.map(|unit| format!("{bare}{unit}"));
            for said in others.iter().map(String::as_str).chain([bare]) {
                let twin = |name: &&str| units.iter().any(|u| name.strip_suffix(u) == Some(bare));
                let found = suggest::meant(said, names.iter().copied());
                assert!(
                    found.is_some_and(|found| twin(&found) || found == bare),
                    "{said}: {found:?}"
                );
            }
        }
    }
    let known =
        |key: &&str| FILE.flatten().iter().any(|section| section.names().any(|n| n == *key));
    for (said, keys) in suggest::SYNONYMS {
        assert!(keys.iter().all(&known), "{said} leads to a key that there is not");
        for section in FILE.flatten() {
            let names: Vec<&str> = section.names().collect();
            let Some(key) = keys.iter().find(|key| names.contains(key)) else { continue };
            let found = suggest::meant(said, names.iter().copied());
            assert!(found == Some(key) || names.contains(said), "{said}: {found:?}");
        }
    }
}

#[test]
fn every_example_is_a_right_value() {
    for (section, key) in all_keys() {
        let found = wrong(section, key, key.example);
        let unexpected: Vec<_> = found.iter().filter(|it| !is_unresolved(it)).collect();
        assert!(unexpected.is_empty(), "{unexpected:?}");
    }
}

#[test]
fn every_default_is_a_right_value() {
    for (section, key) in all_keys() {
        let value = match key.without {
            Without::Integer(value) => value.to_string(),
            Without::Boolean(value) => value.to_string(),
            Without::Text(value) => format!("{value:?}"),
            Without::Required | Without::Awaited | Without::Unset(_) => continue,
        };
        assert_eq!(wrong(section, key, &value), Vec::<String>::new());
    }
}

#[test]
fn the_ends_of_a_range_are_in_it_and_the_next_are_not() {
    for (section, key) in all_keys() {
        let (min, max, open, close) = match key.kind {
            Kind::Integer { min, max } => (min, max, "", ""),
            Kind::Integers { min, max } => (min, max, "[", "]"),
            _ => continue,
        };
        for (value, right) in [(min, true), (max, true), (min - 1, false), (max + 1, false)] {
            let found = wrong(section, key, &format!("{open}{value}{close}"));
            assert_eq!(found.is_empty(), right, "{} = {value}: {found:?}", key.name);
        }
    }
}

#[test]
fn a_value_of_any_other_type_is_refused() {
    for (section, key) in all_keys() {
        let own = key.example.chars().next();
        for value in ["7", "\"x y\"", "true", "1.5", "[]", "{}", "1979-05-27"] {
            let alike = match key.kind {
                Kind::Integer { .. } | Kind::PortOrRange => value == "7",
                Kind::Boolean => value == "true",
                Kind::Labels => value == "{}",
                Kind::Text(form)
                    if form == "any text"
                        || form.contains("expression")
                        || form.contains("in the DNS") =>
                {
                    value == "\"x y\""
                }
                Kind::Texts("an argument" | "a status or a range of them") => value == "[]",
                Kind::Texts(form) if form.contains("MODE") => value == "[]",
                // Nowhere is a place to listen, too.
                Kind::Texts(form) if form.starts_with("an address and a port") => value == "[]",
                Kind::Texts(form) if form.starts_with("the name of a machine") => value == "[]",
                // No other directors are none.
                Kind::Texts(_) if key.name == "peer_addresses" => value == "[]",
                // No keys are none.
                Kind::Texts("the absolute path of a file") => value == "[]",
                // Probes from nowhere are none.
                Kind::Texts("an IPv4 or IPv6 address") => value == "[]",
                _ => false,
            };
            let found = wrong(section, key, value);
            let by_name = found.iter().any(|it| is_unresolved(it));
            assert!(alike || by_name || !found.is_empty(), "{} = {value} {own:?}", key.name);
        }
    }
}
