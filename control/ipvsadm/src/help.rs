//! What `-h` and `-v` print.

use sluice_ipvs::Info;

/// The version that the director says IPVS has, as numbers with dots.
pub(crate) fn version(info: &Info) -> String {
    let [_, major, minor, patch] = info.version.to_be_bytes();
    format!("{major}.{minor}.{patch}")
}

/// What `-v` prints.
pub(crate) fn versions(info: &Info) -> String {
    format!("{} (compiled with popt and IPVS v{})\n", crate::VERSION, version(info))
}

/// What `-h` prints: the same, and how to use the program.
pub(crate) fn usage(name: &str, info: &Info) -> String {
    let text = concat!(include_str!("usage.txt"), "\n", include_str!("additions.txt"));
    versions(info) + &text.replace("{name}", name)
}
