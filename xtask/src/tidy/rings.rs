//! Which crate may use which. The folder says the ring, and an arrow only points inward:
//! `core/` ← `host/` ← `control/` ← `bin/`, with the tests' crates outside of all.
//!
//! Ring 0 has a list of what it may use from outside the repository and nothing else, so a
//! dependency that brings I/O, a clock or threads into the packet path is a decision that somebody
//! took here, in this file. The other rules are about the repository's own crates, and hold for
//! everything a crate reaches, not only for what it names itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};

use super::{Report, manifest};

/// The rings' folders, inside out.
const RINGS: [&str; 4] = ["core/", "host/", "control/", "bin/"];

/// What ring 0 may use from outside: (crate folder or `core/` for all, package).
const PURE: [(&str, &str); 9] = [
    ("core/", "arrayvec"),
    ("core/", "bytemuck"),
    ("core/", "rustc-hash"),
    // mmap, munmap, madvise.
    ("core/table", "libc"),
    ("core/lanes", "libc"),
    // Parsers of what a health check's peer sends and of what an operator writes.
    ("core/health", "httparse"),
    ("core/health", "regex-lite"),
    // Keys and sealed datagrams, and errors that say what is wrong with settings.
    ("core/sync", "ring"),
    ("core/sync", "thiserror"),
];

/// What nothing in ring 0 may reach, however deep: runtimes, sockets, threads, locks.
const RUNTIMES: [&str; 10] = [
    "tokio",
    "async-std",
    "smol",
    "mio",
    "hyper",
    "socket2",
    "rayon",
    "parking_lot",
    "crossbeam-utils",
    "signal-hook",
];

/// (who, may not reach, why): folder prefixes.
const FORBIDDEN: [(&str, &str, &str); 19] = [
    ("core/", "host/", "ring 0 is pure"),
    ("core/", "control/", "ring 0 is pure"),
    ("core/", "bin/", "ring 0 is pure"),
    ("host/", "control/", "ring 1 knows nothing of files and APIs"),
    ("host/", "bin/", "an arrow only points inward"),
    ("control/", "host/dpdk", "ring 2 never sees a packet"),
    ("control/", "host/worker", "ring 2 never sees a packet"),
    ("control/", "host/memif", "ring 2 never sees a packet"),
    ("control/", "host/xdp", "ring 2 never sees a packet"),
    ("host/xdp", "host/dpdk", "AF_XDP sockets know memory and frames as bytes, not DPDK"),
    ("host/memif", "host/dpdk", "memif knows memory and frames as bytes, not DPDK"),
    ("control/", "bin/", "an arrow only points inward"),
    ("bin/sluice", "host/dpdk", "the operator's command runs where there is no DPDK"),
    ("bin/preload", "host/", "it runs inside foreign programs: small, and without threads"),
    ("bin/preload", "control/config", "it runs inside foreign programs: small"),
    ("golden", "host/dpdk", "golden replays run where there is no DPDK and no root"),
    ("golden", "host/worker", "golden replays run where there is no DPDK and no root"),
    ("golden", "host/steer", "golden replays run where there is no DPDK and no root"),
    ("testkit", "host/", "the test kit serves ring 0"),
];

/// Crates whose business is unsafe; each still says why in its `//!`.
const UNSAFE_ROOMS: [&str; 7] = [
    "core/lanes",
    "core/table",
    "host/dpdk-sys",
    "host/dpdk",
    "host/memif",
    "host/xdp",
    "bin/preload",
];

/// Checks the workspace at `root`.
pub fn check(root: &Path, report: &mut Report) -> Result<(), String> {
    let metadata = MetadataCommand::new()
        .manifest_path(root.join("Cargo.toml"))
        .other_options(vec!["--offline".to_owned()])
        .exec()
        .or_else(|_| MetadataCommand::new().manifest_path(root.join("Cargo.toml")).exec())
        .map_err(|e| format!("cargo metadata: {e}"))?;
    let tree = Tree::new(&metadata);
    for package in metadata.workspace_packages() {
        report.crates += 1;
        manifest::check(package, &tree.folder(package), report);
        tree.check(package, report);
        check_roots(package, &tree.folder(package), report);
    }
    Ok(())
}

struct Tree<'a> {
    root: String,
    packages: BTreeMap<&'a PackageId, &'a Package>,
    /// Ordinary and build dependencies of each package: what ends up in its users.
    uses: BTreeMap<&'a PackageId, Vec<&'a PackageId>>,
}

impl<'a> Tree<'a> {
    fn new(metadata: &'a Metadata) -> Self {
        let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
        let shipped = |kinds: &[cargo_metadata::DepKindInfo]| {
            kinds.iter().any(|kind| kind.kind != DependencyKind::Development)
        };
        Self {
            root: metadata.workspace_root.as_str().to_owned(),
            packages: metadata.packages.iter().map(|package| (&package.id, package)).collect(),
            uses: nodes
                .map(|node| {
                    let deps = node.deps.iter().filter(|dep| shipped(&dep.dep_kinds));
                    (&node.id, deps.map(|dep| &dep.pkg).collect())
                })
                .collect(),
        }
    }

    /// A workspace crate's folder relative to the root; empty for packages from elsewhere.
    fn folder(&self, package: &Package) -> String {
        let folder = package.manifest_path.parent().map_or("", |folder| folder.as_str());
        match folder.strip_prefix(&*self.root) {
            Some(relative) if package.source.is_none() => relative.trim_matches('/').to_owned(),
            _ => String::new(),
        }
    }

    /// Everything that `package` is built from, itself excluded.
    fn reached(&self, package: &'a Package) -> BTreeSet<&'a PackageId> {
        let mut seen = BTreeSet::new();
        let mut open = vec![&package.id];
        while let Some(id) = open.pop() {
            for &next in self.uses.get(id).into_iter().flatten() {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen
    }

    fn check(&self, package: &'a Package, report: &mut Report) {
        let here = self.folder(package);
        let place = format!("{here}/Cargo.toml");
        for id in self.reached(package) {
            let used = self.packages[id];
            let there = self.folder(used);
            for (_, _, why) in FORBIDDEN.iter().filter(|(who, whom, _)| {
                inside(&here, who) && !there.is_empty() && inside(&there, whom)
            }) {
                let text = format!("reaches `{}` ({there}): {why}", used.name);
                report.add("rings", &place, 0, text);
            }
            if here.starts_with("core/") && RUNTIMES.contains(&used.name.as_str()) {
                let text = format!("reaches `{}`: ring 0 has no threads and no I/O", used.name);
                report.add("rings", &place, 0, text);
            }
        }
        for dependency in &package.dependencies {
            self.check_named(&here, &place, dependency, report);
        }
    }

    /// Rules about what a crate itself names, tests included where said.
    fn check_named(
        &self,
        here: &str,
        place: &str,
        dependency: &cargo_metadata::Dependency,
        report: &mut Report,
    ) {
        let name = &*dependency.name;
        if name == "sluice-dpdk-sys" && here != "host/dpdk" {
            report.add("rings", place, 0, "only host/dpdk uses host/dpdk-sys: use `sluice-dpdk`");
        }
        let ours = dependency.path.as_ref().is_some_and(|path| {
            let folder = path.as_str().strip_prefix(&*self.root).unwrap_or("");
            RINGS.iter().any(|ring| folder.trim_start_matches('/').starts_with(ring))
        });
        let shipped = dependency.kind != DependencyKind::Development;
        if here.starts_with("core/") && shipped && !ours {
            let allowed = PURE.iter().any(|(who, what)| here.starts_with(who) && *what == name);
            if !allowed {
                let text = format!("`{name}` is not on the list of what ring 0 may use (rings.rs)");
                report.add("rings", place, 0, text);
            }
        }
        let tests_only = ["sluice-testkit", "sluice-golden", "sluice-e2e"].contains(&name);
        let product = RINGS.iter().any(|r| here.starts_with(r));
        if tests_only && shipped && product {
            report.add("rings", place, 0, format!("`{name}` is for tests: a dev-dependency"));
        }
    }
}

/// Whether `folder` is `rule` or below it; a rule that ends without `/` is also a name's beginning
/// (`host/dpdk` means `host/dpdk-sys` too), but never `bin/sluiced` for `bin/sluice`.
fn inside(folder: &str, rule: &str) -> bool {
    match folder.strip_prefix(rule) {
        Some(rest) => rule.ends_with('/') || rest.is_empty() || rest.starts_with(['/', '-']),
        None => false,
    }
}

/// A crate's roots forbid unsafe code, or say in their `//!` what they need it for.
fn check_roots(package: &Package, folder: &str, report: &mut Report) {
    let ships =
        |kind: &TargetKind| matches!(kind, TargetKind::Lib | TargetKind::Bin | TargetKind::CDyLib);
    for target in package.targets.iter().filter(|target| target.kind.iter().any(ships)) {
        let Ok(text) = std::fs::read_to_string(&target.src_path) else { continue };
        if text.contains("#![forbid(unsafe_code)]") {
            continue;
        }
        let introduction = text.lines().take_while(|line| line.starts_with("//!"));
        let says_why = introduction.into_iter().any(|line| line.to_lowercase().contains("unsafe"));
        if !says_why {
            let source = target.src_path.as_str().rsplit('/').next().unwrap_or("");
            let room = UNSAFE_ROOMS.contains(&folder);
            let text = match room {
                true => "say in its `//!` what the unsafe code is for",
                false => "add `#![forbid(unsafe_code)]`, or say in `//!` why it needs unsafe code",
            };
            report.add("unsafe", &format!("{folder}/src/{source}"), 1, text);
        }
    }
}
