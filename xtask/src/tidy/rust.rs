//! Rules about Rust text that need its syntax: length of functions, names of items, and what the
//! pure crates may name of the standard library.
//!
//! Paths are followed through the file's own `use` lines, so `use std::net; net::TcpStream` is
//! found like `std::net::TcpStream`. Macro bodies are read as plain tokens.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Report;
use super::impls::Impls;
use super::ratchet::{Measured, Ratchet};
use super::text::empty_name;
use super::walk::SourceFile;

/// What ring 0 may not name: clocks, threads, locks, sockets, files, processes. `std::net`'s
/// address types are plain data and stay allowed.
const IMPURE: [&str; 15] = [
    "std::sync",
    "alloc::sync",
    "std::thread",
    "std::fs",
    "std::process",
    "std::env",
    "std::os",
    "std::io",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::net::ToSocketAddrs",
    "std::net::lookup_host",
];

/// What a crate of ring 0 may name all the same, and only it: the table maps its own memory, and
/// a failed `mmap` tells its cause by `std::io::Error`; plans share the hash tables of their
/// schedulers, which are large and never change; and chunks of a spread flow, which go to other
/// workers, share how it is rewritten.
const EXCUSED: [(&str, &str); 4] = [
    ("core/table/", "std::io"),
    ("core/table/", "std::os"),
    ("core/director/src/plan", "std::sync::Arc"),
    ("core/director/src/dealing", "std::sync::Arc"),
];

/// Checks one Rust file.
pub fn check(file: &SourceFile, ratchet: &mut Ratchet, impls: &mut Impls, report: &mut Report) {
    let syntax = match syn::parse_file(&file.content) {
        Ok(syntax) => syntax,
        Err(error) => {
            let line = error.span().start().line;
            return report.add("syntax", &file.path, line, format!("cannot be parsed: {error}"));
        }
    };
    let pure = file.path.starts_with("core/")
        && file.path.contains("/src/")
        && !file.path.ends_with("/tests.rs")
        && !file.path.contains("/tests/");
    let mut reader = Reader { file, ratchet, report, pure, names: BTreeMap::new(), within: vec![] };
    reader.visit_file(&syntax);
    impls.note(file, &syntax);
}

struct Reader<'a> {
    file: &'a SourceFile,
    ratchet: &'a mut Ratchet,
    report: &'a mut Report,
    /// The file is ring 0's and no test.
    pure: bool,
    /// What the `use` lines seen so far call things: local name → full path.
    names: BTreeMap<String, String>,
    /// Names of the items around the present one.
    within: Vec<String>,
}

impl Reader<'_> {
    fn inside(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.within.push(name);
        visit(self);
        self.within.pop();
    }

    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        self.report.functions += 1;
        let first = signature.span().start().line;
        let last = body.span().end().line;
        let path = [&self.within[..], &[signature.ident.to_string()]].concat().join("::");
        let key = format!("{}::{path}", self.file.path);
        if let Some(wrong) = self.ratchet.judge(Measured::Function, &key, last - first + 1) {
            let text = format!("`{path}`: {wrong}");
            self.report.add("function-length", &self.file.path, first, text);
        }
    }

    fn item_name(&mut self, name: &syn::Ident) {
        if let Some(empty) = empty_name(&name.to_string()) {
            let text = format!("`{name}`: `{empty}` says nothing, name it by what it does");
            self.report.add("name", &self.file.path, name.span().start().line, text);
        }
    }

    fn named(&mut self, full: &str, line: usize) {
        if !self.pure {
            return;
        }
        // `core::` and `std::` are two names of the same things here.
        let full = full.trim_start_matches("::");
        let full = full.strip_prefix("core::").map_or(full.to_owned(), |r| format!("std::{r}"));
        let within = |path: &str| full == path || full.starts_with(&format!("{path}::"));
        let Some(found) = IMPURE.into_iter().find(|path| within(path)) else { return };
        if EXCUSED.iter().any(|(place, path)| self.file.path.starts_with(place) && within(path)) {
            return;
        }
        let text = format!("`{full}`: ring 0 is pure, `{found}` belongs to the host's crates");
        self.report.add("ring-0", &self.file.path, line, text);
    }

    fn use_tree(&mut self, before: &str, tree: &syn::UseTree) {
        let join = |name: &syn::Ident| match before {
            "" => name.to_string(),
            _ => format!("{before}::{name}"),
        };
        match tree {
            syn::UseTree::Path(path) => self.use_tree(&join(&path.ident), &path.tree),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(before, tree);
                }
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                let local = before.rsplit("::").next().unwrap_or(before).to_owned();
                self.names.insert(local, before.to_owned());
                self.named(before, name.span().start().line);
            }
            syn::UseTree::Name(name) => {
                self.names.insert(name.ident.to_string(), join(&name.ident));
                self.named(&join(&name.ident), name.span().start().line);
            }
            syn::UseTree::Rename(rename) => {
                self.names.insert(rename.rename.to_string(), join(&rename.ident));
                self.named(&join(&rename.ident), rename.span().start().line);
            }
            syn::UseTree::Glob(glob) => self.named(before, glob.span().start().line),
        }
    }

    fn resolved(&self, segments: &[String]) -> String {
        let (first, rest) = segments.split_first().expect("a path has a segment");
        let first = self.names.get(first).unwrap_or(first);
        [std::slice::from_ref(first), rest].concat().join("::")
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = vec![];
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.spoken(&mut path, line);
                    }
                    line = ident.span().start().line;
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.spoken(&mut path, line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.spoken(&mut path, line);
    }

    fn spoken(&mut self, path: &mut Vec<String>, line: usize) {
        if path.len() > 1 {
            self.named(&self.resolved(path), line);
        }
        path.clear();
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || (attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Ident>().is_ok_and(|what| what == "test"))
    })
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.item_name(&item.ident);
        let pure = self.pure;
        self.pure &= !is_test(&item.attrs);
        self.inside(item.ident.to_string(), |reader| visit::visit_item_mod(reader, item));
        self.pure = pure;
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.item_name(&item.sig.ident);
        self.function(&item.sig, &item.block);
        let name = item.sig.ident.to_string();
        self.inside(name, |reader| visit::visit_item_fn(reader, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => {
                path.path.segments.last().map_or_else(String::new, |last| last.ident.to_string())
            }
            _ => "impl".to_owned(),
        };
        self.inside(name, |reader| visit::visit_item_impl(reader, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.item_name(&item.ident);
        self.inside(item.ident.to_string(), |reader| visit::visit_item_trait(reader, item));
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.item_name(&item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.item_name(&item.ident);
        visit::visit_item_enum(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree("", &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        if segments.len() > 1 {
            self.named(&self.resolved(&segments), path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}
