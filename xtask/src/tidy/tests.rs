//! The checker's own tests: for each rule a tree that breaks it, and one that breaks none.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::{Report, check};

const LIB: &str = "//! A crate.\n#![forbid(unsafe_code)]\n";

/// A small workspace that breaks no rule, in a folder that goes away with it.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().expect("a folder for the test"));
        tree.put(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"core/*\", \"host/*\", \"control/*\"]\n",
        );
        tree.member("core/wire", "wire", "");
        tree.member("core/director", "director", "wire = { path = \"../wire\" }\n");
        tree.member("host/dpdk-sys", "sluice-dpdk-sys", "");
        let dpdk = "sluice-dpdk-sys = { path = \"../dpdk-sys\" }\n";
        tree.member("host/dpdk", "dpdk", dpdk);
        tree.member("host/linux", "linux", "director = { path = \"../../core/director\" }\n");
        tree.member("control/api", "api", "director = { path = \"../../core/director\" }\n");
        tree
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("inside the tree")).expect("folder");
        fs::write(path, text).expect("file");
    }

    fn member(&self, folder: &str, name: &str, dependencies: &str) {
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
             description = \"A crate\"\npublish = false\n\n[dependencies]\n{dependencies}"
        );
        self.put(&format!("{folder}/Cargo.toml"), &manifest);
        self.put(&format!("{folder}/src/lib.rs"), LIB);
    }

    fn check(&self) -> Report {
        check(self.0.path()).expect("the tree can be read")
    }

    /// The rules broken, with their places.
    fn broken(&self) -> Vec<(&'static str, String)> {
        self.check().findings.into_iter().map(|f| (f.rule, f.place)).collect()
    }
}

#[track_caller]
fn expect(tree: &Tree, rule: &'static str, place: &str) {
    assert_eq!(tree.broken(), [(rule, place.to_owned())]);
}

#[test]
fn a_good_tree_has_no_findings() {
    let tree = Tree::new();
    let report = tree.check();
    assert_eq!(report.findings, []);
    assert_eq!(report.crates, 6);
    assert_eq!(report.files, 13);
}

#[test]
fn a_ring_may_not_use_an_outer_one() {
    let tree = Tree::new();
    tree.member("core/director", "director", "sluice-linux = { path = \"../../host/linux\" }\n");
    tree.member("host/linux", "sluice-linux", "");
    expect(&tree, "rings", "core/director/Cargo.toml");

    let tree = Tree::new();
    tree.member("host/linux", "linux", "api = { path = \"../../control/api\" }\n");
    expect(&tree, "rings", "host/linux/Cargo.toml");
}

#[test]
fn an_outer_ring_is_found_through_another_crate() {
    let tree = Tree::new();
    tree.member("control/config", "config", "linux = { path = \"../../host/linux\" }\n");
    assert_eq!(tree.broken(), []);
    tree.member("host/linux", "linux", "dpdk = { path = \"../dpdk\" }\n");
    let places: Vec<_> = tree.broken().into_iter().map(|(_, place)| place).collect();
    assert_eq!(places, ["control/config/Cargo.toml"; 2], "dpdk and dpdk-sys");
}

#[test]
fn only_the_dpdk_crate_uses_the_shim() {
    let tree = Tree::new();
    tree.member("host/linux", "linux", "sluice-dpdk-sys = { path = \"../dpdk-sys\" }\n");
    expect(&tree, "rings", "host/linux/Cargo.toml");
}

#[test]
fn ring_0_may_not_use_what_is_not_on_its_list() {
    let tree = Tree::new();
    // Stands for a package from a registry, which a test without a network cannot have.
    tree.member("core/director", "director", "tokio = { path = \"../../elsewhere/tokio\" }\n");
    tree.member("elsewhere/tokio", "tokio", "");
    let report = tree.check();
    let texts: Vec<_> = report.findings.iter().map(|f| (&*f.place, &*f.text)).collect();
    assert!(texts.iter().any(|(_, text)| text.contains("not on the list")), "{texts:?}");
    assert!(texts.iter().any(|(_, text)| text.contains("no threads and no I/O")), "{texts:?}");
    // Whoever uses the director reaches it too, but only ring 0 must not.
    assert!(texts.iter().all(|(place, _)| *place == "core/director/Cargo.toml"), "{texts:?}");
}

#[test]
fn ring_0_may_not_name_clocks_locks_threads_sockets_or_files() {
    for text in [
        "use std::sync::Arc;",
        "use std::{mem, sync::atomic::{AtomicU64, Ordering}};",
        "use core::sync::atomic::AtomicU64;",
        "use std::time::{Duration, Instant};",
        "fn f() { let _ = std::time::Instant::now(); }",
        "use std::time; fn f() { let _ = time::Instant::now(); }",
        "use std::net::{self, IpAddr}; fn f(_: net::TcpStream) {}",
        "use std::net::UdpSocket as Socket;",
        "fn f() { std::thread::spawn(|| ()); }",
        "fn f() { println!(\"{:?}\", std::fs::read(\"x\")); }",
        "use std::sync::*;",
    ] {
        let tree = Tree::new();
        tree.put("core/director/src/odd.rs", &format!("//! Odd.\n{text}\n"));
        let broken = tree.broken();
        assert!(broken.contains(&("ring-0", "core/director/src/odd.rs".to_owned())), "{text}");
        tree.put("host/linux/src/odd.rs", &format!("//! Odd.\n{text}\n"));
        assert!(tree.broken().iter().all(|(_, place)| place.starts_with("core/")), "{text}");
    }
    let tree = Tree::new();
    let fine = "//! Fine.\nuse std::net::IpAddr;\nuse std::time::Duration;\n\
                #[cfg(test)]\nmod tests {\n    use std::sync::Arc;\n}\n";
    tree.put("core/director/src/fine.rs", fine);
    assert_eq!(tree.broken(), []);
}

#[test]
fn files_and_functions_stay_short() {
    let tree = Tree::new();
    let lines = |count: usize| "    let _ = 1;\n".repeat(count);
    tree.put("host/linux/src/a.rs", &format!("//! A.\nfn long() {{\n{}}}\n", lines(68)));
    assert_eq!(tree.broken(), []);
    tree.put("host/linux/src/a.rs", &format!("//! A.\nfn long() {{\n{}}}\n", lines(69)));
    expect(&tree, "function-length", "host/linux/src/a.rs");
    tree.put("host/linux/src/a.rs", &format!("//! A.\n{}", "// Text.\n".repeat(500)));
    expect(&tree, "file-length", "host/linux/src/a.rs");
    tree.put("host/linux/src/a.rs", &format!("//! {}\n", "a".repeat(97)));
    expect(&tree, "line-length", "host/linux/src/a.rs");
}

#[test]
fn the_ratchet_only_goes_down() {
    let tree = Tree::new();
    let list = |lines: usize| {
        let list = format!("[functions]\n\"host/linux/src/a.rs::Odd::long\" = {lines}\n");
        tree.put("xtask/ratchet.toml", &list);
    };
    let long = |count: usize| {
        let body = "        let _ = 1;\n".repeat(count - 2);
        let text =
            format!("//! A.\nstruct Odd;\nimpl Odd {{\n    fn long() {{\n{body}    }}\n}}\n");
        tree.put("host/linux/src/a.rs", &text);
    };
    list(80);
    long(80);
    assert_eq!(tree.broken(), [], "listed as it is");
    long(81);
    expect(&tree, "function-length", "host/linux/src/a.rs");
    long(79);
    expect(&tree, "function-length", "host/linux/src/a.rs");
    long(60);
    expect(&tree, "function-length", "host/linux/src/a.rs");
    fs::remove_file(tree.0.path().join("host/linux/src/a.rs")).expect("it was there");
    expect(&tree, "ratchet", "xtask/ratchet.toml");
}

#[test]
fn methods_of_a_type_lie_in_three_files_at_most() {
    let tree = Tree::new();
    let more = "//! More.\nuse super::Odd;\nimpl Odd {\n    fn more() {}\n}\n";
    tree.put("host/linux/src/a.rs", "//! A.\nstruct Odd;\nimpl Odd {\n    fn one() {}\n}\n");
    for name in ["b", "c"] {
        tree.put(&format!("host/linux/src/{name}.rs"), more);
    }
    // What implements a trait, and what tests add, is no matter.
    tree.put("host/linux/src/d.rs", "//! D.\nuse super::Odd;\nimpl Drop for Odd {}\n");
    tree.put("host/linux/src/tests/e.rs", more);
    assert_eq!(tree.broken(), []);
    tree.put("host/linux/src/f.rs", more);
    expect(&tree, "impl-files", "host/linux/src/a.rs");
    tree.put("xtask/ratchet.toml", "[impls]\n\"host/linux::Odd\" = 4\n");
    assert_eq!(tree.broken(), [], "listed as it is");
    tree.put("host/linux/src/g.rs", more);
    expect(&tree, "impl-files", "host/linux/src/a.rs");
    // Another type of the same name: nobody can tell whose the methods are.
    tree.put("xtask/ratchet.toml", "");
    tree.put("host/linux/src/h.rs", "//! H.\nstruct Odd;\n");
    assert_eq!(tree.broken(), []);
}

#[test]
fn no_list_allows_more_than_600_lines() {
    let tree = Tree::new();
    tree.put("xtask/ratchet.toml", "[files]\n\"host/linux/src/a.rs\" = 601\n");
    tree.put("host/linux/src/a.rs", &format!("//! A.\n{}", "// Text.\n".repeat(600)));
    expect(&tree, "file-length", "host/linux/src/a.rs");
}

#[test]
fn names_say_something() {
    for (place, text) in [
        ("host/linux/src/utils.rs", "//! A.\n"),
        ("host/linux/src/session_manager.rs", "//! A.\n"),
        ("host/linux/src/common/mod.rs", "//! A.\n"),
        ("host/linux/src/a.rs", "//! A.\nstruct LinkManager;\n"),
        ("host/linux/src/a.rs", "//! A.\nmod helpers {}\n"),
    ] {
        let tree = Tree::new();
        tree.put(place, text);
        expect(&tree, "name", place);
    }
}

#[test]
fn every_file_says_what_it_is() {
    for (place, bad, good) in [
        ("host/linux/src/a.rs", "fn f() {}\n", "//! A.\n"),
        ("host/linux/src/a.c", "int a;\n", "/* A. */\nint a;\n"),
        ("golden/a.py", "#!/usr/bin/python3\nimport os\n", "#!/usr/bin/python3\n\"\"\"A.\"\"\"\n"),
    ] {
        let tree = Tree::new();
        tree.put(place, bad);
        expect(&tree, "introduction", place);
        tree.put(place, good);
        assert_eq!(tree.broken(), []);
    }
}

#[test]
fn unsafe_code_is_forbidden_or_explained() {
    let tree = Tree::new();
    tree.put("host/linux/src/lib.rs", "//! A crate.\n");
    expect(&tree, "unsafe", "host/linux/src/lib.rs");
    tree.put("host/linux/src/lib.rs", "//! A crate. Unsafe: one ioctl.\n");
    assert_eq!(tree.broken(), []);
}

#[test]
fn nothing_is_left_unfinished() {
    for mark in ["// TO_DO: later", "// FIX_ME", "// XX_X", "to_do!()", "unimple_mented!()"] {
        let tree = Tree::new();
        let text = format!("//! A.\nfn f() {{\n    {}\n}}\n", mark.replace('_', ""));
        tree.put("host/linux/src/a.rs", &text);
        expect(&tree, "unfinished", "host/linux/src/a.rs");
    }
    let tree = Tree::new();
    tree.put("host/linux/src/a.rs", "//! A.\nconst XXX_Y: u8 = 1;\nconst TODOS: u8 = 1;\n");
    assert_eq!(tree.broken(), []);
}

#[test]
fn documents_use_the_fields_words() {
    let tree = Tree::new();
    tree.put("docs/page.md", "What goes to strays.\n");
    expect(&tree, "retired-word", "docs/page.md");
    tree.put("docs/page.md", "Handoff of misdirected packets, `strays` in the code.\n");
    assert_eq!(tree.broken(), []);
}

#[test]
fn no_path_of_one_machine() {
    let tree = Tree::new();
    let text = format!("//! A.\nconst P: &str = \"{}x\";\n", ["/wo", "rk/"].concat());
    tree.put("host/linux/src/a.rs", &text);
    expect(&tree, "machine-path", "host/linux/src/a.rs");
    tree.put("host/linux/src/a.rs", "//! A.\nconst P: &str = \"net/work/x\";\n");
    assert_eq!(tree.broken(), []);
}

#[test]
fn what_cannot_be_read_is_no_finding() {
    assert!(check(Path::new("/nonexistent/tree")).is_err());
    let tree = Tree::new();
    tree.put("xtask/ratchet.toml", "[functions]\nnot a list\n");
    assert!(check(tree.0.path()).is_err());
}

#[test]
fn manifest_says_what_the_crate_is_for_and_that_it_stays_here() {
    const PLACE: &str = "core/wire/Cargo.toml";
    const GOOD: &str = "description = \"A crate\"\npublish = false\n";
    let long = format!("description = \"{}\"\npublish = false\n", "a".repeat(101));
    for (said, findings) in [
        (GOOD, 0),
        ("publish = false\n", 1),
        ("description = \" \"\npublish = false\n", 1),
        ("description = \"A\\ncrate\"\npublish = false\n", 1),
        (&long, 1),
        ("description = \"A crate\"\n", 1),
        ("description = \"A crate\"\npublish = [\"elsewhere\"]\n", 1),
        ("", 2),
    ] {
        let tree = Tree::new();
        let manifest = fs::read_to_string(tree.0.path().join(PLACE)).expect("a member's manifest");
        assert!(manifest.contains(GOOD));
        tree.put(PLACE, &manifest.replace(GOOD, said));
        assert_eq!(tree.broken(), vec![("manifest", PLACE.to_owned()); findings], "{said}");
    }
}
