//! In how many files the methods of one type lie. A type whose methods are everywhere has no walls:
//! each of them reaches all of its fields. Three are enough; what else there is to do with it are
//! functions that name what they take.
//!
//! A type is told by its name within its crate. A name that several files of a crate define is
//! nobody's, and not counted.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use super::ratchet::{Measured, Ratchet};
use super::walk::SourceFile;

/// Types by crate and name.
#[derive(Default)]
pub struct Impls(BTreeMap<(String, String), Seen>);

/// Where a type was seen.
#[derive(Default)]
struct Seen {
    defined: BTreeSet<String>,
    extended: BTreeSet<String>,
}

impl Impls {
    /// Notes what a file defines, and what it gives methods.
    pub fn note(&mut self, file: &SourceFile, syntax: &syn::File) {
        let Some((of, within)) = file.path.split_once("/src/") else { return };
        if within == "tests.rs" || within.contains("tests/") || within.ends_with("/tests.rs") {
            return;
        }
        for item in &syntax.items {
            let (name, defines) = match item {
                syn::Item::Struct(item) => (Some(&item.ident), true),
                syn::Item::Enum(item) => (Some(&item.ident), true),
                syn::Item::Impl(item) if item.trait_.is_none() => (own_name(item), false),
                _ => continue,
            };
            let Some(name) = name else { continue };
            let seen = self.0.entry((of.to_owned(), name.to_string())).or_default();
            let files = if defines { &mut seen.defined } else { &mut seen.extended };
            files.insert(file.path.clone());
        }
    }

    /// Holds what was noted against the limit and the list.
    pub fn judge(self, ratchet: &mut Ratchet, report: &mut Report) {
        for ((of, name), Seen { defined, extended }) in self.0 {
            let [place] = &Vec::from_iter(defined)[..] else { continue };
            let key = format!("{of}::{name}");
            if let Some(wrong) = ratchet.judge(Measured::Impls, &key, extended.len()) {
                report.add("impl-files", place, 0, format!("methods of `{name}`: {wrong}"));
            }
        }
    }
}

/// The name of the type that a block of methods is for.
fn own_name(item: &syn::ItemImpl) -> Option<&syn::Ident> {
    match &*item.self_ty {
        syn::Type::Path(path) => path.path.segments.last().map(|last| &last.ident),
        _ => None,
    }
}
