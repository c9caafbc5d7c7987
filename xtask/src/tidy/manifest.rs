//! What each crate's manifest says of it: what it is for, and that it is not published.

use cargo_metadata::Package;

use super::Report;

/// The longest description, in characters: it is shown on one line.
const LONGEST: usize = 100;

/// Checks the manifest of the crate in `folder`.
pub fn check(package: &Package, folder: &str, report: &mut Report) {
    let place = format!("{folder}/Cargo.toml");
    let description = package.description.as_deref().unwrap_or("");
    if description.trim().is_empty() {
        report.add("manifest", &place, 0, "add a `description`: what the crate is for");
    } else if description.contains('\n') || description.chars().count() > LONGEST {
        let text = format!("shorten the `description` to one line of {LONGEST} characters");
        report.add("manifest", &place, 0, text);
    }
    // Cargo lists the registries that a crate may go to; `publish = false` is the empty list.
    if package.publish.as_ref().is_none_or(|registries| !registries.is_empty()) {
        report.add("manifest", &place, 0, "add `publish.workspace = true`: no crate is published");
    }
}
