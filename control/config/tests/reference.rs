//! The reference that is read is the reference that the code gives.

use std::fs;
use std::path::Path;

/// The schema that editors read is the schema that the code gives.
#[test]
fn the_json_schema_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sluice.schema.json");
    let expected = format!("{:#}\n", sluice_config::json_schema());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &expected).expect("docs/sluice.schema.json is written");
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == expected,
        "docs/sluice.schema.json is out of date: \
         UPDATE_DOCS=1 cargo test -p sluice-config reference"
    );
}

#[test]
fn the_reference_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let expected = sluice_config::reference::markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &expected).expect("docs/config.md is written");
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == expected,
        "docs/config.md is out of date: UPDATE_DOCS=1 cargo test -p sluice-config reference"
    );
}
