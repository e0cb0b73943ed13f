//! The table as an OpenAPI 3.1 document, whose schemas are JSON Schema 2020-12: what `schemars` makes of the types as it is.
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::operation::{Gives, MakeSchema, Method, Operation, Parameter, ParameterKind, Takes};
use crate::problem::ErrorAnswer;
use crate::table::operations;

/// The document, as it is served and checked in, with a line end behind it.
#[must_use]
pub fn document() -> String {
    // A map of JSON has nothing in it that cannot be written.
    let mut text = serde_json::to_string_pretty(&value()).unwrap_or_default();
    text.push('\n');
    text
}

fn value() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let error = generator.subschema_for::<ErrorAnswer>();
    let mut paths: Map<String, Value> = Map::new();
    let mut tags: Vec<&'static str> = Vec::new();
    for operation in operations() {
        if !tags.contains(&operation.tag) {
            tags.push(operation.tag);
        }
        let described = described(&operation, &mut generator, &error);
        let path = paths.entry(operation.path.clone()).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(operation.method.word().to_owned(), described);
        }
    }
    let schemas = generator.take_definitions(true);
    let says = "The REST API of a Headwater farm. Changes say which state of an object they are meant for (If-Match), \
        creations can be repeated without being done twice (Idempotency-Key), lists come in pages. In paths, an object is \
        named by its id or by its name; where a name is all digits, \"name:\" stands before it.";
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater",
            "version": env!("CARGO_PKG_VERSION"),
            "description": says,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": tags.iter().map(|tag| json!({ "name": tag })).collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "bearer": [] }],
    })
}

impl Method {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

fn described(operation: &Operation, generator: &mut SchemaGenerator, error: &Schema) -> Value {
    let mut parameters: Vec<Value> = names(&operation.path)
        .map(|name| {
            let schema = json!({ "type": "string", "minLength": 1 });
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    parameters.extend(operation.query.iter().map(parameter));
    if operation.if_match {
        let says = "the ETag of the state that is meant, or * for whatever it is";
        parameters.push(header("If-Match", says, true));
    }
    if operation.once {
        let says = "names the request: its repetition is answered as it was, and done once";
        parameters.push(header("Idempotency-Key", says, false));
    }
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": parameters,
        "responses": {
            success(operation): answer(operation, generator),
            "default": {
                "description": "Why it was not done.",
                "content": { "application/json": { "schema": error } },
            },
        },
    });
    let body = match &operation.takes {
        Takes::Nothing => None,
        Takes::Json(make) => Some(("application/json", make(generator).to_value())),
        Takes::Patch(make) => {
            let name = format!("{}Patch", operation.id.trim_start_matches("update"));
            Some(("application/merge-patch+json", patch_of(*make, &name, generator)))
        }
        Takes::Text(content_type, _) => Some((*content_type, json!({ "type": "string" }))),
    };
    if let (Some((content_type, schema)), Some(described)) = (body, described.as_object_mut()) {
        let content = json!({ content_type: { "schema": schema } });
        described.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
    }
    if let (true, Some(described)) = (operation.open, described.as_object_mut()) {
        described.insert("security".to_owned(), json!([]));
    }
    described
}

/// The names between braces.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn parameter(parameter: &Parameter) -> Value {
    let schema = match parameter.kind {
        ParameterKind::Text => json!({ "type": "string" }),
        ParameterKind::Flag => json!({ "type": "boolean" }),
        ParameterKind::Number(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
    };
    json!({ "name": parameter.name, "in": "query", "description": parameter.says, "schema": schema })
}

fn header(name: &str, says: &str, required: bool) -> Value {
    let schema = json!({ "type": "string" });
    json!({ "name": name, "in": "header", "description": says, "required": required, "schema": schema })
}

fn success(operation: &Operation) -> String {
    match operation.gives {
        Gives::Nothing => "204".to_owned(),
        Gives::Json(status, _) => status.to_string(),
        Gives::Text(_) => "200".to_owned(),
    }
}

fn answer(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    match &operation.gives {
        Gives::Nothing => json!({ "description": "Done." }),
        Gives::Json(_, make) => {
            let schema = make(generator);
            json!({ "description": "Done.", "content": { "application/json": { "schema": schema } } })
        }
        Gives::Text(content_type) => {
            let schema = json!({ "type": "string" });
            json!({ "description": "Done.", "content": { *content_type: { "schema": schema } } })
        }
    }
}

/// A body of which any part may be left out, and whose parts are taken away by null.
fn patch_of(make: MakeSchema, name: &str, generator: &mut SchemaGenerator) -> Value {
    let whole = make(generator).to_value();
    let reference = whole.get("$ref").and_then(Value::as_str).unwrap_or_default();
    let body = reference.rsplit('/').next().unwrap_or_default();
    let Some(known) = generator.definitions().get(body) else { return whole };
    let mut patch = known.clone();
    if let Some(patch) = patch.as_object_mut() {
        patch.remove("required");
        let says = "any part of it; what is null is taken away (RFC 7396)";
        patch.insert("description".to_owned(), says.into());
    }
    generator.definitions_mut().insert(name.to_owned(), patch);
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_that_is_checked_in_is_the_one_that_is_served() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        if std::env::var_os("HEADWATER_BLESS").is_some() {
            std::fs::write(&path, document()).unwrap();
        }
        let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            checked_in == document(),
            "the interface has changed: look at what it means for those who use it, then run this test once with \
             HEADWATER_BLESS=1"
        );
    }

    #[test]
    fn every_operation_has_a_name_of_its_own_and_every_reference_leads_somewhere() {
        let document = value();
        let mut ids = Vec::new();
        let mut references = Vec::new();
        collect(&document, &mut ids, &mut references);
        let count = ids.len();
        ids.sort();
        ids.dedup();
        assert!(count > 50 && ids.len() == count);
        for reference in references {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    fn collect(value: &Value, ids: &mut Vec<String>, references: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    match (key.as_str(), value.as_str()) {
                        ("operationId", Some(id)) => ids.push(id.to_owned()),
                        ("$ref", Some(reference)) => references.push(reference.to_owned()),
                        _ => collect(value, ids, references),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, ids, references)),
            _ => {}
        }
    }
}
