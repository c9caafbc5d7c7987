//! The document in the making: services, checks and pools with unique names.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value};
use sluice_config::{Config, Document};

use crate::note::Place;

/// A section's table.
pub(crate) type Table = Map<String, Value>;

/// What a service is called: the same name for the same protocol, address and port, always, and
/// the one that services have that come by `ipvsadm`.
pub(crate) fn service_name(protocol: &str, vip: IpAddr, port: u16) -> String {
    let vip = vip.to_string().replace(':', "_");
    match port {
        0 => format!("{protocol}-{vip}-all"),
        port => format!("{protocol}-{vip}-{port}"),
    }
}

/// A name of another program in letters that Sluice's names may have.
pub(crate) fn plain_name(text: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || "._-".contains(it) { it } else { '-' };
    let name: String = text.chars().take(64).map(plain).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Whether the configuration knows a value of a key of `[[service]]`, alone.
pub(crate) fn known(key: &str, value: &Value) -> bool {
    let mut service = Table::new();
    service.insert("name".to_owned(), "x".into());
    service.insert("protocol".to_owned(), "udp".into());
    service.insert("vip".to_owned(), "192.0.2.1".into());
    service.insert(key.to_owned(), value.clone());
    readable("service", service)
}

/// Whether a section's table is right as far as it goes.
pub(crate) fn readable(section: &str, table: Table) -> bool {
    let mut document = Document::new();
    document.insert(section.to_owned(), Value::Array(vec![Value::Object(table)]));
    Config::read_document(&document).is_ok()
}

/// A section's table and the lines that it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    /// What it is.
    pub table: Table,
    /// Where it begins.
    pub place: Place,
    /// The last line of its block.
    pub end: usize,
}

impl Made {
    /// Whether a line is one of its own.
    pub fn has(&self, place: &Place) -> bool {
        self.place.file == place.file && (self.place.line..=self.end).contains(&place.line)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.table.get("name").and_then(Value::as_str).unwrap_or_default()
    }
}

/// Everything that was made.
#[derive(Debug, Default)]
pub(crate) struct Target {
    /// `[[pool]]`.
    pub pools: Vec<Made>,
    /// `[[check]]`.
    pub checks: Vec<Made>,
    /// `[[service]]`.
    pub services: Vec<Made>,
    /// `[[snat]]`.
    pub rules: Vec<Made>,
    /// Where a service is, by its name.
    names: BTreeMap<String, usize>,
    /// What a check is called, by its content.
    contents: BTreeMap<String, String>,
}

impl Target {
    /// Adds a service, unless one has its name.
    pub fn service(&mut self, made: Made) -> bool {
        let new = !self.names.contains_key(made.name());
        if new {
            self.names.insert(made.name().to_owned(), self.services.len());
            self.services.push(made);
        }
        new
    }

    /// The service with a name.
    pub fn service_named(&mut self, name: &str) -> Option<&mut Made> {
        self.services.get_mut(*self.names.get(name)?)
    }

    /// The name of a check with this content: that of another one like it, or a new one.
    pub fn check(&mut self, content: &Table, place: &Place) -> String {
        let text = Value::Object(content.clone()).to_string();
        if let Some(name) = self.contents.get(&text) {
            return name.clone();
        }
        let kind = content.get("kind").and_then(Value::as_str).unwrap_or("check");
        let name = format!("{kind}-{}", self.checks.len() + 1);
        let mut table = content.clone();
        table.insert("name".to_owned(), name.as_str().into());
        self.checks.push(Made { table, place: place.clone(), end: place.line });
        self.contents.insert(text, name.clone());
        name
    }

    /// As the document of a file.
    pub fn document(&self) -> Document {
        let mut document = Document::new();
        let all = [
            ("pool", &self.pools),
            ("check", &self.checks),
            ("service", &self.services),
            ("snat", &self.rules),
        ];
        for (section, made) in all {
            if !made.is_empty() {
                let tables = made.iter().map(|it| Value::Object(it.table.clone()));
                document.insert(section.to_owned(), Value::Array(tables.collect()));
            }
        }
        document
    }
}
