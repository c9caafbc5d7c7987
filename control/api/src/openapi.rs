//! The API described: OpenAPI 3.1, made from one table of operations and from the types that are
//! read and written. `docs/openapi.json` is this, and what `/v1/openapi.json` serves; a test holds
//! them together.

mod operations;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::problem::{MEDIA_TYPE, Problem};

/// The description that is committed.
pub(crate) const COMMITTED: &str = include_str!("../../../docs/openapi.json");

/// How an operation's answer or body looks.
pub(crate) type Look = fn(&mut SchemaGenerator) -> Value;

/// A parameter of an operation.
#[derive(Clone, Copy)]
pub(crate) struct Parameter {
    name: &'static str,
    /// `path`, `query` or `header`.
    place: &'static str,
    about: &'static str,
    schema: fn() -> Value,
}

/// What can be done.
pub(crate) struct Operation {
    method: &'static str,
    path: &'static str,
    /// Its name for programs that are made from the description.
    id: &'static str,
    about: &'static str,
    /// The least role; empty when no token is needed.
    role: &'static str,
    parameters: &'static [Parameter],
    body: Option<Look>,
    answer: Look,
    /// What the answer is, where it is no JSON.
    media: Option<&'static str>,
    /// Whether it answers with a stream, too.
    streams: bool,
    /// Whether the answer's ETag is the epoch.
    tagged: bool,
}

/// The description.
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>().to_value();
    let mut paths: Map<String, Value> = Map::new();
    for operation in operations::all() {
        let item = paths.entry(operation.path).or_insert_with(|| json!({}));
        item[operation.method] = describe(&operation, &mut generator, &problem);
    }
    let schemas = generator.take_definitions(true);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sluice",
            "version": "1",
            "description": "The director's API. See docs/api.md for roles and examples.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the director's file of tokens; over the control \
                                    socket none is needed.",
                },
            },
            "schemas": schemas,
        },
    })
}

fn describe(operation: &Operation, generator: &mut SchemaGenerator, problem: &Value) -> Value {
    let media = operation.media.unwrap_or("application/json");
    let mut content = json!({ media: { "schema": (operation.answer)(generator) } });
    if operation.streams {
        content["text/event-stream"] = json!({ "schema": { "type": "string" } });
    }
    let mut done = json!({ "description": "Success.", "content": content });
    if operation.tagged {
        done["headers"] = json!({ "ETag": {
            "description": "The epoch that is in force, in quotes.",
            "required": true,
            "schema": { "type": "string", "pattern": "^\"[0-9]+\"$" },
        }});
    }
    let wrong = |about: &str| {
        json!({
            "description": about,
            "content": { MEDIA_TYPE: { "schema": problem } },
        })
    };
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.about,
        "parameters": operation.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "responses": { "200": done, "default": wrong("Failure; nothing has changed.") },
    });
    match operation.role {
        "" => described["security"] = json!([]),
        role => {
            described["description"] = json!(format!("Needs the role `{role}`."));
            described["responses"]["401"] = wrong("The token is missing or invalid.");
            described["responses"]["403"] = wrong("The token's role is insufficient.");
        }
    }
    if let Some(body) = operation.body {
        let content = json!({ "application/json": { "schema": body(generator) } });
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

fn parameter(parameter: &Parameter) -> Value {
    let Parameter { name, place, about, schema } = parameter;
    json!({
        "name": name,
        "in": place,
        "required": *place == "path",
        "description": about,
        "schema": schema(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::needed;
    use axum::http::Method;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_roles_are_those_of_the_gate() {
        let mut seen = HashSet::new();
        for operation in operations::all() {
            assert!(seen.insert(operation.id), "{} is there twice", operation.id);
            let method = operation.method.to_uppercase();
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let role = needed(&method, operation.path).map_or("", crate::Role::name);
            assert_eq!(operation.role, role, "{}", operation.id);
        }
    }

    #[test]
    fn every_resource_is_described() {
        let described = openapi();
        for path in crate::routes::PATHS {
            assert!(described["paths"][path].is_object(), "{path} is not described");
        }
    }

    /// After a change: `UPDATE_DOCS=1 cargo test -p sluice-api`.
    #[test]
    fn the_committed_description_is_current() {
        let text = serde_json::to_string_pretty(&openapi()).expect("JSON") + "\n";
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
            std::fs::write(path, text).expect("written");
            return;
        }
        let advice = "run UPDATE_DOCS=1 cargo test -p sluice-api";
        assert!(text == COMMITTED, "docs/openapi.json is not current: {advice}");
    }
}
