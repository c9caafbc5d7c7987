//! A file and its document say the same, whichever way one becomes the other.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_config::{Config, Document, document};

fn examples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = fs::read_dir(folder).expect("the examples").map(|entry| entry.expect("one").path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "toml"));
    files
        .map(|path| (path.display().to_string(), fs::read_to_string(&path).expect("read")))
        .collect()
}

#[test]
fn a_document_reads_as_its_file() {
    for (name, text) in examples() {
        let loaded = Config::parse(&name, &text).expect("right");
        let read = Config::read_document(&loaded.document).expect("right");
        assert_eq!(read, loaded.config, "{name}");
        let told: Vec<_> = loaded.warnings.iter().map(|it| it.message.clone()).collect();
        let again: Vec<_> = read.check().expect("right").into_iter().map(|it| it.message).collect();
        assert_eq!(again.len(), told.len(), "{name}: {again:?} {told:?}");
    }
}

#[test]
fn a_document_is_written_as_a_file_that_says_the_same() {
    for (name, text) in examples() {
        let loaded = Config::parse(&name, &text).expect("right");
        let written = document::to_toml(&loaded.document, &|section, _| Some(section.to_owned()));
        let again = Config::parse(&name, &written).expect("right");
        assert_eq!(again.config, loaded.config, "{name}:\n{written}");
        assert_eq!(again.document, loaded.document, "{name}");
    }
}

#[test]
fn what_holds_anyway_is_left_out() {
    let text = "port = [{ name = \"a\", device = \"tap:a\" }]\n\
                director = { log_level = \"info\", hash_seed = 0x10 }\n\
                [[service]]\nname = \"s\"\nprotocol = \"tcp\"\nvip = \"198.51.100.1\"\nport = 80\n\
                mode = \"nat\"\nscheduler = \"rr\"\n[[service.real]]\naddress = \"192.0.2.1\"\n\
                weight = 1\ndown = false\n";
    let document = Config::parse("sluice.toml", text).expect("right").document;
    let expected = json!({
        "port": [{ "name": "a", "device": "tap:a" }],
        "director": { "hash_seed": 16 },
        "service": [{
            "name": "s", "protocol": "tcp", "vip": "198.51.100.1", "port": 80, "mode": "nat",
            "real": [{ "address": "192.0.2.1" }],
        }],
    });
    assert_eq!(Value::Object(document), expected);
}

#[test]
fn without_a_file_no_line_is_named() {
    let service = json!({
        "name": "s", "protocol": "tcp", "vip": "198.51.100.1", "port": 80, "mode": "nat",
    });
    let Value::Object(document) = json!({
        "port": [{ "name": "a", "device": "tap:a" }], "service": [service, service],
    }) else {
        panic!()
    };
    let refused = Config::read_document(&document).expect("read").check().expect_err("twice");
    let told: Vec<_> = refused.diagnostics().iter().map(|it| (&*it.key, &*it.message)).collect();
    assert_eq!(told[0], ("service[1].name", "another service is called \"s\" already"));
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            Just("service".to_owned()),
            Just("real".to_owned()),
            Just("name".to_owned()),
            Just("port".to_owned()),
            any::<String>(),
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the JSON: it is refused with words for it, or it is a configuration; and it never
    /// gets another meaning on its way through TOML.
    #[test]
    fn any_json_is_read_or_refused(value in json_value()) {
        let mut document = Document::new();
        document.insert("service".to_owned(), Value::Array(vec![value]));
        if let Err(refused) = Config::read_document(&document) {
            prop_assert!(!refused.diagnostics().is_empty());
            for found in refused.diagnostics() {
                prop_assert!(!found.message.is_empty() && !found.hint.is_empty());
                prop_assert!(found.key.starts_with("service"), "{}: {}", found.key, found.message);
            }
        }
    }
}
