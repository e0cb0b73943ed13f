//! The document and the interface say the same: every operation is asked with bodies that fit its schemas and bodies that
//! do not, and whatever it answers must be no failure of ours, and must fit what the document says of answers. Requests are
//! drawn from a seed, so that what fails can be seen again.
use axum::http::Method;
use serde_json::{Map, Value, json};

use crate::farm::Farm;

/// How often each operation is asked.
const ROUNDS: u64 = 25;
/// How much is said of an answer that is wrong.
const MAX_SAID_BYTES: usize = 800;
/// The deepest body that is drawn.
const MAX_DEPTH: usize = 6;

/// xorshift64*.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(words.len() as u64)).unwrap()]
    }

    /// Texts that mean something in many places, and texts that mean nothing in any.
    fn text(&mut self) -> String {
        let words = [
            "Main",
            "lab",
            "images",
            "win11",
            "one.example.org",
            "ann",
            "pc-1",
            "1",
            "2",
            "7",
            "name:7",
            "Main/lab",
            "win11/0",
            "",
            " ",
            "\u{0}",
            "ä",
            "a/b",
            "../..",
            "52:54:00:00:00:01",
            "2026-11-21T10:00:00Z",
            "10.0.0.1",
            "lab-###",
            "kind = test",
            "disabled or",
            "/srv/images",
            "99999999999999999999",
            "%2F",
            "\"",
            "null",
        ];
        match self.below(8) {
            0 => "x".repeat(usize::try_from(self.below(5000)).unwrap()),
            1 => format!("made-{}", self.below(1000)),
            _ => self.of(&words).to_owned(),
        }
    }

    fn anything(&mut self) -> Value {
        match self.below(8) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(u64::MAX),
            4 => json!(1.5e300),
            5 => json!([]),
            6 => json!({}),
            _ => json!(self.text()),
        }
    }

    /// A value of a schema, or once in a while one that is none.
    fn value(&mut self, schema: &Value, document: &Value, depth: usize) -> Value {
        if depth > MAX_DEPTH || self.one_in(25) {
            return self.anything();
        }
        if let Some(reference) = schema["$ref"].as_str() {
            return self.value(document.pointer(&reference[1..]).unwrap(), document, depth);
        }
        if let Some(choices) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            let choice = usize::try_from(self.below(choices.len() as u64)).unwrap();
            return self.value(&choices[choice], document, depth + 1);
        }
        if let Some(constant) = schema.get("const") {
            return constant.clone();
        }
        if let Some(words) = schema["enum"].as_array() {
            return words[usize::try_from(self.below(words.len() as u64)).unwrap()].clone();
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => return self.anything(),
        };
        match self.of(&kinds) {
            "null" => Value::Null,
            "boolean" => json!(self.one_in(2)),
            "integer" => json!(self.below(50)),
            "number" => json!(0.5),
            "string" => json!(self.text()),
            "array" => {
                (0..self.below(4)).map(|_| self.value(&schema["items"], document, depth + 1)).collect()
            }
            _ => self.object(schema, document, depth),
        }
    }

    fn object(&mut self, schema: &Value, document: &Value, depth: usize) -> Value {
        let mut object = Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let needed = schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
            if needed || self.one_in(3) {
                object.insert(name.clone(), self.value(property, document, depth + 1));
            }
        }
        if self.one_in(30) {
            object.insert(self.text(), self.anything());
        }
        Value::Object(object)
    }
}

/// Whether a value fits a schema; else where it does not.
fn misfit(value: &Value, schema: &Value, document: &Value, at: &str) -> Option<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return misfit(value, document.pointer(&reference[1..]).unwrap(), document, at);
    }
    if let Some(choices) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        let fits = choices.iter().any(|choice| misfit(value, choice, document, at).is_none());
        return (!fits).then(|| format!("{at}: {value} is none of {}", schema["anyOf"]));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        return Some(format!("{at}: {value} is none of {words:?}"));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let known = match &schema["type"] {
        Value::String(known) => known == kind,
        Value::Array(all) => all.contains(&json!(kind)),
        _ => true,
    };
    if !known {
        return Some(format!("{at}: {value} is no {}", schema["type"]));
    }
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items
                .filter_map(|(place, item)| {
                    misfit(item, schema.get("items")?, document, &format!("{at}[{place}]"))
                })
                .next()
        }
        Value::Object(object) => {
            let missing = schema["required"].as_array().into_iter().flatten();
            let missing = missing.filter_map(Value::as_str).find(|name| !object.contains_key(*name));
            if let Some(missing) = missing {
                return Some(format!("{at}: {missing} is missing"));
            }
            object
                .iter()
                .filter_map(|(name, value)| {
                    misfit(value, schema["properties"].get(name)?, document, &format!("{at}.{name}"))
                })
                .next()
        }
        _ => None,
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn whatever_is_asked_the_answer_fits_the_document() {
    let farm = Farm::furnished().await;
    farm.post("/v1/users", &json!({"name": "ann"})).await.is(201);
    let document: Value = serde_json::from_str(&api::document()).unwrap();
    let mut draws = Draws(0x5EED_0001);
    let (mut done, mut refused, mut problems) = (0u32, 0u32, Vec::new());
    for round in 0..ROUNDS {
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                // They go on for as long as somebody listens; hashing passwords is slow on purpose.
                if operation["tags"][0] == "events" || (operation["tags"][0] == "log-in" && round > 2) {
                    continue;
                }
                let request = request(&mut draws, path, operation, &document);
                let headers: Vec<(&str, &str)> =
                    request.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let method: Method = method.to_uppercase().parse().unwrap();
                let answer = farm.send(method.clone(), &request.uri, &headers, request.body.as_ref()).await;
                let mut said =
                    format!("{method} {} {:?}: {} {}", request.uri, request.body, answer.status, answer.text);
                said.truncate(said.floor_char_boundary(MAX_SAID_BYTES));
                let status = answer.status.as_u16().to_string();
                let expected = match answer.status.as_u16() {
                    200..300 => {
                        done += 1;
                        operation["responses"].get(&status)
                    }
                    400..500 => {
                        refused += 1;
                        operation["responses"].get("default")
                    }
                    _ => None,
                };
                let Some(expected) = expected else {
                    problems.push(said);
                    continue;
                };
                if let Some(schema) = expected.pointer("/content/application~1json/schema")
                    && let Some(misfit) = misfit(&answer.json(), schema, &document, "")
                {
                    problems.push(format!("{misfit} in {said}"));
                }
            }
        }
    }
    assert!(
        problems.is_empty(),
        "{} problems, of which: {:#?}",
        problems.len(),
        &problems[..problems.len().min(5)]
    );
    // Else nothing was looked at.
    assert!(done > 300 && refused > 300, "{done} done, {refused} refused");
}

struct Asking {
    uri: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Value>,
}

fn request(draws: &mut Draws, path: &str, operation: &Value, document: &Value) -> Asking {
    let mut uri = path.to_owned();
    let mut query = Vec::new();
    let mut headers = Vec::new();
    for parameter in operation["parameters"].as_array().unwrap() {
        let name = parameter["name"].as_str().unwrap();
        let text = match draws.value(&parameter["schema"], document, 0) {
            Value::String(text) => text,
            other => other.to_string(),
        };
        match parameter["in"].as_str().unwrap() {
            "path" => {
                uri =
                    uri.replace(&format!("{{{name}}}"), &encoded(if text.is_empty() { "1" } else { &text }));
            }
            "query" if draws.one_in(3) => query.push(format!("{name}={}", encoded(&text))),
            "header" if name == "If-Match" => {
                headers.push(("if-match", if draws.one_in(5) { "\"1\"" } else { "*" }.to_owned()));
            }
            "header" if draws.one_in(4) => {
                headers.push(("idempotency-key", format!("k-{}", draws.below(20))));
            }
            _ => {}
        }
    }
    if !query.is_empty() {
        uri = format!("{uri}?{}", query.join("&"));
    }
    let content = operation.pointer("/requestBody/content").and_then(Value::as_object);
    let body = content.and_then(|content| content.iter().next()).map(|(content_type, content)| {
        headers.push(("content-type", content_type.clone()));
        let value = draws.value(&content["schema"], document, 0);
        // The harness sends a text as it is.
        Value::String(match value {
            Value::String(text) => text,
            other => other.to_string(),
        })
    });
    Asking { uri, headers, body }
}
