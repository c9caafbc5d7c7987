//! The JSON schema of the configuration file, made from the descriptions that it is read by, so
//! that editors complete keys and point at what is wrong while it is written.

use serde_json::{Map, Value, json};

use crate::schema::keys::FILE;
use crate::schema::{Key, Kind, Section, Without};

/// The schema, in the dialect of draft 7, which editors know best.
pub fn json_schema() -> Value {
    let mut schema = of_section(&FILE);
    let mut head = Map::new();
    head.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
    head.insert("title".to_owned(), json!("Configuration of sluiced"));
    head.append(&mut schema);
    Value::Object(head)
}

fn of_section(section: &Section) -> Map<String, Value> {
    let mut properties = Map::new();
    for key in section.keys {
        properties.insert(key.name.to_owned(), of_key(key));
    }
    for inner in section.sections {
        let table = Value::Object(of_section(inner));
        let value = match inner.repeats() {
            true => json!({ "type": "array", "items": table, "description": inner.about }),
            false => table,
        };
        properties.insert(inner.name.to_owned(), value);
    }
    let required = section
        .keys
        .iter()
        .filter(|key| matches!(key.without, Without::Required | Without::Awaited));
    let required: Vec<&str> = required.map(|key| key.name).collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    if !section.about.is_empty() {
        schema.insert("description".to_owned(), json!(section.about));
    }
    schema.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema
}

fn of_key(key: &Key) -> Value {
    let range = |min: &i64, max: &i64| json!({ "type": "integer", "minimum": min, "maximum": max });
    let list = |items: Value| json!({ "type": "array", "items": items });
    let mut schema = match &key.kind {
        Kind::Integer { min, max } => range(min, max),
        Kind::Integers { min, max } => list(range(min, max)),
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Word(words) => json!({ "enum": words() }),
        Kind::Words(words) => list(json!({ "enum": words() })),
        Kind::PortOrRange => json!({ "anyOf": [
            range(&1, &65_535),
            { "type": "string", "pattern": "^\\s*[0-9]+\\s*-\\s*[0-9]+\\s*$" },
        ] }),
        Kind::Text(_) => json!({ "type": "string" }),
        Kind::Texts(_) => list(json!({ "type": "string" })),
        Kind::Labels => {
            json!({ "type": "object", "additionalProperties": { "type": "string" } })
        }
    };
    if let Value::Object(schema) = &mut schema {
        schema.insert("description".to_owned(), json!(key.about));
        match key.without {
            Without::Integer(value) => drop(schema.insert("default".to_owned(), json!(value))),
            Without::Boolean(value) => drop(schema.insert("default".to_owned(), json!(value))),
            Without::Text(value) => drop(schema.insert("default".to_owned(), json!(value))),
            Without::Required | Without::Awaited | Without::Unset(_) => {}
        }
    }
    schema
}
