//! What was made, for people and for programs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Value, json};
use sluice_config::document::{self, Document};

use crate::note::{Kind, Note, Report};
use crate::target::{Made, Target};

/// What a file became.
#[derive(Debug)]
pub struct Imported {
    document: Document,
    services: Vec<Made>,
    notes: Vec<Note>,
    accounted: BTreeMap<Rc<str>, BTreeSet<usize>>,
}

impl Imported {
    pub(crate) fn new(target: Target, report: Report) -> Self {
        let (notes, accounted) = report.finish();
        Self { document: target.document(), services: target.services, notes, accounted }
    }

    /// The sections, as a configuration file has them.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// What is to be said, in the order of the files' lines.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Whether something had no equivalent.
    pub fn has_lost(&self) -> bool {
        self.notes.iter().any(|note| note.kind == Kind::Lost)
    }

    /// Whether a line was converted or spoken of.
    pub fn is_accounted(&self, file: &str, line: usize) -> bool {
        self.accounted.get(file).is_some_and(|lines| lines.contains(&line))
    }

    /// As a configuration file, with the notes as comments: those about a service above it, the
    /// others at the top.
    pub fn toml(&self, title: &str) -> String {
        let mut own: Vec<Vec<&Note>> = vec![Vec::new(); self.services.len()];
        let mut text = format!("# {}\n", clean(title));
        for note in &self.notes {
            match self.services.iter().position(|made| made.has(&note.place)) {
                Some(index) => own[index].push(note),
                None => text.push_str(&format!("# {}\n", clean(&note.to_string()))),
            }
        }
        let number = RefCell::new(0);
        let body = document::to_toml(&self.document, &|section, _| {
            if section != "service" {
                return None;
            }
            let index = number.replace_with(|it| *it + 1);
            let mut lines =
                vec![format!("from {}", clean(&self.services.get(index)?.place.to_string()))];
            lines.extend(own.get(index)?.iter().map(|note| clean(&note.to_string())));
            Some(lines.join("\n"))
        });
        if !body.is_empty() {
            text.push('\n');
            text.push_str(&body);
        }
        text
    }

    /// The sections and the notes, as JSON.
    pub fn json(&self) -> Value {
        json!({ "config": self.document, "notes": self.notes, "complete": !self.has_lost() })
    }
}

/// Control characters in a comment would not be TOML.
fn clean(text: &str) -> String {
    text.replace(|it: char| it.is_control(), " ")
}
