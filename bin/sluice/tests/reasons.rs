//! `docs/reasons.md` says what the code says. Regenerate it with `UPDATE_DOCS=1 cargo test -p
//! sluice reasons`.

use sluice_director::Reason;
use std::path::Path;

const HEAD: &str = "# Reasons

Why a packet was dropped or given to the kernel. `sluice drops` shows how many there were of each;
the same names are in `sluice replay`'s `counters.json`. Generated from the code.

";

#[test]
fn the_page_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reasons.md");
    let wanted = format!("{HEAD}{}", Reason::markdown());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &wanted).expect("docs/reasons.md can be written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == wanted, "docs/reasons.md is out of date: see the head of this test");
}
