//! Objects of the API as tables, JSON and CSV.
use std::borrow::Cow;

use serde_json::{Value, json};

use super::nouns::{Column, Noun};
use super::settings::nearest;
use crate::cli::Format;
use crate::columns::{align, bytes, columns, name};

/// A list, in the columns of its noun or those that were asked for.
///
/// # Errors
/// A column that no such object has.
pub(super) fn list(
    noun: &Noun,
    items: &[Value],
    total: u64,
    wanted: &[String],
    format: Format,
) -> anyhow::Result<String> {
    let shown: Vec<(Cow<'static, str>, &str)> = match wanted {
        [] => noun.columns.iter().map(|Column { head, key }| (Cow::Borrowed(*head), *key)).collect(),
        wanted => wanted.iter().map(|key| (head(noun, key), noun.key(key))).collect(),
    };
    if let Some(first) = items.first() {
        shown.iter().filter(|_| !wanted.is_empty()).try_for_each(|(_, key)| has(noun, first, key))?;
    }
    match format {
        Format::Json => Ok(serde_json::to_string_pretty(&json!({ "items": items, "total": total }))? + "\n"),
        Format::Csv => {
            let mut text = csv_line(shown.iter().map(|(_, key)| (*key).to_owned()));
            for item in items {
                text.push_str(&csv_line(shown.iter().map(|(_, key)| plain(at(item, key)))));
            }
            Ok(text)
        }
        Format::Table => {
            let right: Vec<usize> = shown
                .iter()
                .enumerate()
                .filter(|(_, (_, key))| items.iter().any(|item| at(item, key).is_number()))
                .map(|(place, _)| place)
                .collect();
            let mut rows = vec![shown.iter().map(|(head, _)| head.clone().into_owned()).collect::<Vec<_>>()];
            rows.extend(
                items.iter().map(|item| shown.iter().map(|(_, key)| cell(key, at(item, key))).collect()),
            );
            Ok(align(&rows, &right))
        }
    }
}

/// What stands above a property: as in the usual list, where that shows it.
fn head(noun: &Noun, key: &str) -> Cow<'static, str> {
    let usual = noun.columns.iter().find(|column| column.key == noun.key(key));
    usual.map_or_else(|| Cow::Owned(key.to_uppercase()), |column| Cow::Borrowed(column.head))
}

/// Whether objects like this one have a property: all of them have the same, but personalities.
fn has(noun: &Noun, object: &Value, key: &str) -> anyhow::Result<()> {
    let first = key.split('.').next().unwrap_or(key);
    let mut properties = Vec::new();
    flatten("", object, &mut properties);
    let known: Vec<&str> = properties.iter().map(|(key, _)| key.as_str()).collect();
    if object.get(first).is_some_and(|value| first == key || value.is_null() || first == "personality")
        || known.contains(&key)
    {
        return Ok(());
    }
    let meant = nearest(key, known.iter().copied()).map(|key| format!("; did you mean \"{key}\"?"));
    anyhow::bail!(
        "{} has no property \"{key}\" to show{}\nIt has: {}",
        noun.word,
        meant.unwrap_or_default(),
        known.join(", ")
    )
}

/// An object that was made or changed: what a list shows of it; or, where only some properties were touched, its name and
/// those.
///
/// # Errors
/// None is expected of JSON.
pub(super) fn changed<'k>(
    noun: &Noun,
    value: &Value,
    touched: impl Iterator<Item = &'k str>,
    format: Format,
) -> anyhow::Result<String> {
    if noun.columns.is_empty() || format == Format::Json {
        return object(value, format);
    }
    let mut keys: Vec<&str> = touched.map(|key| noun.key(key)).collect();
    if !keys.is_empty() {
        keys.retain(|key| *key != "name");
        keys.insert(0, "name");
    }
    let keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
    list(noun, std::slice::from_ref(value), 1, &keys, format)
}

/// One object with all its properties: what it is called first, and last what only programs want to know.
///
/// # Errors
/// None is expected of JSON.
pub(super) fn object(value: &Value, format: Format) -> anyhow::Result<String> {
    let mut properties = Vec::new();
    flatten("", value, &mut properties);
    properties.sort_by_key(|(key, _)| match key.as_str() {
        "name" => 0,
        "vdisk" | "number" => 1,
        "id" | "revision" | "request" => 3,
        _ => 2,
    });
    match format {
        Format::Json => Ok(serde_json::to_string_pretty(value)? + "\n"),
        Format::Csv => Ok(csv_line(properties.iter().map(|(key, _)| key.clone()))
            + &csv_line(properties.iter().map(|(_, value)| plain(value)))),
        Format::Table => {
            let rows: Vec<Vec<String>> =
                properties.iter().map(|(key, value)| vec![key.clone(), cell(key, value)]).collect();
            Ok(align(&rows, &[]))
        }
    }
}

/// What lies in a store and belongs to no version: what can become vDisks, and what cannot.
pub(super) fn adoption(store: &str, plan: &Value) -> String {
    let all =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut rows = vec![columns(["VDISK", "VERSION", "KIND", "ON", "FILE", "SIZE"])];
    for chain in all(plan, "chains") {
        for version in all(&chain, "versions") {
            let text = |key: &str| cell(key, at(&version, key));
            rows.push(vec![
                cell("name", at(&chain, "name")),
                text("number"),
                text("kind"),
                text("parent"),
                text("file"),
                text("length_bytes"),
            ]);
        }
    }
    let (count, is_plan) = (all(plan, "chains").len(), plan.get("dry_run") == Some(&Value::Bool(true)));
    let vdisks = if count == 1 { "vDisk" } else { "vDisks" };
    let mut text = match (count, is_plan) {
        (0, _) => "There is nothing to take over.\n".to_owned(),
        (_, true) => format!(
            "{}\n{count} {vdisks} would be taken over by: headwater store adopt {store}\n",
            align(&rows, &[1, 3, 5])
        ),
        (_, false) => format!("{}\n{count} {vdisks} taken over.\n", align(&rows, &[1, 3, 5])),
    };
    if !all(plan, "findings").is_empty() {
        text.push_str("\nLeft as they are:\n");
    }
    for finding in all(plan, "findings") {
        text.push_str(&format!(
            "  {}: {}\n",
            cell("file", at(&finding, "file")),
            cell("why", at(&finding, "why"))
        ));
    }
    text
}

/// A store as its server found it: what is not what it should be, and what belongs to nobody.
pub(super) fn inspection(report: &Value) -> String {
    let text = |value: &Value, key: &str| cell(key, at(value, key));
    if let Some(why) = report.get("unreachable").and_then(Value::as_str) {
        return format!("{} cannot be used: {}\n", text(report, "folder"), name(why));
    }
    let mut told = format!(
        "{}: {} of {} free; versions whose files are what they were: {}\n",
        text(report, "folder"),
        text(report, "free_bytes"),
        text(report, "size_bytes"),
        text(report, "sound")
    );
    for finding in report.get("findings").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default() {
        told.push_str(&format!(
            "  {}, {}, is {}: {}\n",
            text(finding, "version"),
            text(finding, "file"),
            text(finding, "state"),
            text(finding, "differences")
        ));
    }
    if at(report, "strangers").as_array().is_some_and(|strangers| !strangers.is_empty()) {
        told.push_str(&format!("Files of no version: {}\n", text(report, "strangers")));
    }
    told
}

/// The property that a key names; null where there is none.
fn at<'v>(item: &'v Value, key: &str) -> &'v Value {
    let mut value = item;
    for part in key.split('.') {
        value = value.get(part).unwrap_or(&Value::Null);
    }
    value
}

/// Objects in objects become keys with dots; those that name another object stay whole.
fn flatten<'v>(before: &str, value: &'v Value, properties: &mut Vec<(String, &'v Value)>) {
    match value.as_object().filter(|_| before.is_empty() || reference(value).is_none()) {
        Some(object) => {
            for (key, value) in object {
                let key = if before.is_empty() { key.clone() } else { format!("{before}.{key}") };
                flatten(&key, value, properties);
            }
        }
        None => properties.push((before.to_owned(), value)),
    }
}

/// What an object is called that stands for another one.
fn reference(value: &Value) -> Option<String> {
    let object = value.as_object()?;
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    if let Some(name) = text("name").filter(|_| object.contains_key("id")) {
        return Some(match text("kind") {
            Some(kind) => format!("{kind} {name}"),
            None => name.to_owned(),
        });
    }
    if let Some(vdisk) = object.get("vdisk").and_then(reference) {
        return Some(vdisk);
    }
    // Of a store: where it lies on which server.
    let (server, path) = (object.get("server").and_then(reference)?, text("path")?);
    Some(format!("{server}:{path}"))
}

/// A value without units, for programs.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        Value::Object(_) => reference(value).unwrap_or_else(|| value.to_string()),
    }
}

/// A value for people.
fn cell(key: &str, value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => match number.as_u64() {
            Some(count) if key.ends_with("_bytes") => bytes(count),
            Some(count) if key.ends_with("bytes_per_second") => format!("{}/s", bytes(count)),
            _ => number.to_string(),
        },
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) => items.iter().map(|item| cell(key, item)).collect::<Vec<_>>().join(", "),
        // What a task came to is an object in a text.
        Value::String(text) if key == "result" && text.starts_with('{') => {
            match serde_json::from_str::<serde_json::Map<String, Value>>(text) {
                Ok(result) => {
                    let parts = result.iter().map(|(key, value)| format!("{key} {}", cell(key, value)));
                    parts.collect::<Vec<_>>().join(", ")
                }
                Err(_) => name(text).into_owned(),
            }
        }
        _ => match plain(value).as_str() {
            "" => "-".to_owned(),
            text => name(text).into_owned(),
        },
    }
}

/// A line of CSV (RFC 4180 §2): fields with commas, quotation marks or line ends stand in quotation marks.
fn csv_line(cells: impl Iterator<Item = String>) -> String {
    let quoted = cells.map(|cell| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    });
    quoted.collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::nouns::{DEVICE, STORE};
    use super::*;

    fn device() -> Value {
        json!({
            "id": 7, "revision": 2, "name": "lab-07", "collection": {"id": 5, "name": "Main/Lab"},
            "macs": ["52:54:00:77:00:10", "52:54:00:77:00:11"], "kind": "production",
            "disks": [{"vdisk": {"id": 9, "name": "images/win11"}, "menu_text": null, "disabled": false}],
            "write_cache": {"kind": null, "limit_bytes": 1_048_576}, "disabled": false, "description": "at the \"door\", left",
        })
    }

    #[test]
    fn list_is_a_table_csv_or_json_of_the_same_objects() {
        let items = [device()];
        let print = |wanted: &[String], format| list(&DEVICE, &items, 1, wanted, format).unwrap();
        assert_eq!(
            print(&[], Format::Table),
            "NAME    COLLECTION  MAC                                   KIND        VDISKS        DISABLED  DESCRIPTION\n\
             lab-07  Main/Lab    52:54:00:77:00:10, 52:54:00:77:00:11  production  images/win11  no        at the \"door\", left\n"
        );
        let wanted = ["name".to_owned(), "write_cache.limit_bytes".to_owned(), "description".to_owned()];
        assert_eq!(
            print(&wanted, Format::Csv),
            "name,write_cache.limit_bytes,description\nlab-07,1048576,\"at the \"\"door\"\", left\"\n"
        );
        assert!(print(&wanted, Format::Table).contains("1.0 MiB"));
        let json: Value = serde_json::from_str(&print(&[], Format::Json)).unwrap();
        assert_eq!(json, json!({ "items": [device()], "total": 1 }));
    }

    #[test]
    fn object_shows_every_property() {
        let text = object(&device(), Format::Table).unwrap();
        for line in [
            "collection               Main/Lab",
            "write_cache.limit_bytes  1.0 MiB",
            "write_cache.kind         -",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?}\n{text}");
        }
        let store =
            json!({"name": "images", "paths": [{"server": {"id": 3, "name": "one"}, "path": "/srv/images"}]});
        assert!(list(&STORE, &[store], 1, &[], Format::Table).unwrap().contains("one:/srv/images"));
    }
}
