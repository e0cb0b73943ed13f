//! `KEY=VALUE` of the command line as the JSON of the API.
use anyhow::{Context, bail};
use serde_json::{Map, Value, json};

use super::nouns::{Field, FieldKind, Noun};
use crate::cli::Setting;
use crate::config::ByteSize;

/// How alike two keys must be (Jaro-Winkler, 0 to 1) for one to be proposed for the other.
const LIKENESS: f64 = 0.75;

/// The object with these properties; what a dot leads into stands in an object of its own.
///
/// # Errors
/// A key that the noun does not have, or that is given twice; a value that cannot be read.
pub(super) fn object(noun: &Noun, settings: &[Setting]) -> anyhow::Result<Map<String, Value>> {
    let mut object = Map::new();
    for Setting { key, value } in settings {
        let field = find(noun, key)?;
        let value = read(field, value).with_context(|| format!("{key}={value}"))?;
        put(&mut object, noun.key(key), value).with_context(|| format!("{key} is given twice"))?;
    }
    Ok(object)
}

fn find(noun: &Noun, key: &str) -> anyhow::Result<&'static Field> {
    if let Some(field) = noun.field(key) {
        return Ok(field);
    }
    let known: Vec<&str> = noun.fields.iter().map(|field| field.key).collect();
    let meant = nearest(key, known.iter().copied()).map(|key| format!("; did you mean \"{key}\"?"));
    bail!(
        "{} has no property \"{key}\" that can be set{}\nIt has: {}",
        noun.word,
        meant.unwrap_or_default(),
        known.join(", ")
    )
}

/// Which of these a word may have been meant for.
pub(super) fn nearest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let likely = known.map(|key| (strsim::jaro_winkler(word, key), key));
    let likely = likely.filter(|(likeness, _)| *likeness >= LIKENESS);
    likely.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, key)| key)
}

fn read(field: &Field, text: &str) -> anyhow::Result<Value> {
    if text.is_empty() && !matches!(field.kind, FieldKind::PlainText) {
        return Ok(match field.kind {
            FieldKind::Texts | FieldKind::Disks | FieldKind::Paths => json!([]),
            _ => Value::Null,
        });
    }
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    Ok(match field.kind {
        FieldKind::Text | FieldKind::PlainText => text.into(),
        FieldKind::TextOrFile => match text.strip_prefix('@') {
            Some(path) => {
                std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?.into()
            }
            None => text.into(),
        },
        FieldKind::CacheKind => match text {
            "memory" | "ram" => "server-memory".into(),
            "disk" => "server-disk".into(),
            "persistent" => "server-disk-persistent".into(),
            _ => text.into(),
        },
        FieldKind::Truth => match text {
            "true" | "yes" => true.into(),
            "false" | "no" => false.into(),
            _ => bail!("is neither true nor false"),
        },
        FieldKind::Number => text.parse::<u64>().context("is no whole number")?.into(),
        FieldKind::Size => ByteSize::parse(text).map_err(anyhow::Error::msg)?.0.into(),
        FieldKind::Texts => parts().collect::<Vec<_>>().into(),
        FieldKind::Disks => parts().map(|vdisk| json!({ "vdisk": vdisk })).collect::<Vec<_>>().into(),
        FieldKind::Paths => {
            let path = |part: &str| match part.split_once(':') {
                // Which server's, is asked for later.
                _ if part.starts_with('/') => Ok(json!({ "path": part })),
                Some((server, path)) => Ok(json!({ "server": server, "path": path })),
                None => bail!("\"{part}\" is not SERVER:/path"),
            };
            parts().map(path).collect::<anyhow::Result<Vec<_>>>()?.into()
        }
    })
}

/// `None` where something stands there already.
fn put(object: &mut Map<String, Value>, key: &str, value: Value) -> Option<()> {
    match key.split_once('.') {
        None => match object.contains_key(key) {
            true => None,
            false => {
                object.insert(key.to_owned(), value);
                Some(())
            }
        },
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
            // Of a personality, the rest is one name, dots and all.
            if first == "personality" {
                return inner.insert(rest.to_owned(), value).is_none().then_some(());
            }
            put(inner, rest, value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::nouns::{DEVICE, STORE, VDISK};
    use super::*;

    fn parse(noun: &Noun, words: &[&str]) -> Result<Value, String> {
        let settings: Vec<Setting> = words.iter().map(|word| word.parse().unwrap()).collect();
        object(noun, &settings).map(Value::Object).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn settings_become_the_objects_of_the_api() {
        assert_eq!(
            parse(
                &DEVICE,
                &[
                    "disks=win11, data",
                    "macs=52:54:00:77:00:10",
                    "write_cache.limit_bytes=2 GiB",
                    "disabled=yes",
                    "address=",
                    "personality.a.b=c=d",
                    "description="
                ]
            ),
            Ok(json!({
                "disks": [{"vdisk": "win11"}, {"vdisk": "data"}], "macs": ["52:54:00:77:00:10"],
                "write_cache": {"limit_bytes": 2_u64 << 30}, "disabled": true, "address": null,
                "personality": {"a.b": "c=d"}, "description": "",
            }))
        );
        assert_eq!(
            parse(&STORE, &["paths=one:/srv/images,two:/mnt/a:b"]),
            Ok(
                json!({"paths": [{"server": "one", "path": "/srv/images"}, {"server": "two", "path": "/mnt/a:b"}]})
            )
        );
        assert_eq!(parse(&STORE, &["paths="]), Ok(json!({"paths": []})));
        assert_eq!(parse(&STORE, &["path=/srv/a:b"]), Ok(json!({"paths": [{"path": "/srv/a:b"}]})));
    }

    #[test]
    fn properties_are_understood_by_the_names_that_tables_and_filters_give_them() {
        assert_eq!(
            parse(&DEVICE, &["mac=52:54:00:77:00:10", "vdisk=win11", "cache=server-memory", "limit=1 GiB"]),
            Ok(json!({
                "macs": ["52:54:00:77:00:10"], "disks": [{"vdisk": "win11"}],
                "write_cache": {"kind": "server-memory", "limit_bytes": 1_u64 << 30},
            }))
        );
        assert!(parse(&DEVICE, &["mac=52:54:00:77:00:10", "macs="]).unwrap_err().contains("given twice"));
        assert!(parse(&DEVICE, &["mack=x"]).unwrap_err().contains("did you mean \"macs\"?"));
    }

    #[test]
    fn text_behind_an_at_sign_is_read_from_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("user-data");
        std::fs::write(&path, "#cloud-config\nhostname: {{device}}\n").unwrap();
        let given = format!("user_data=@{}", path.display());
        let expected = json!({"user_data": "#cloud-config\nhostname: {{device}}\n"});
        assert_eq!(parse(&DEVICE, &[&given]), Ok(expected));
        assert_eq!(parse(&DEVICE, &["user_data="]), Ok(json!({"user_data": null})));
        let refused = parse(&DEVICE, &["user_data=@/nowhere/x"]).unwrap_err();
        assert!(refused.contains("cannot read /nowhere/x"), "{refused}");
    }

    #[test]
    fn wrong_settings_say_what_is_wrong_with_which() {
        let refused = |words: &[&str]| parse(&VDISK, words).unwrap_err();
        assert!(refused(&["storr=a"]).contains("did you mean \"store\"?"), "{}", refused(&["storr=a"]));
        assert!(refused(&["zzz=a"]).contains("It has: name, description"));
        assert!(refused(&["disabled=perhaps"]).contains("disabled=perhaps: is neither true nor false"));
        assert!(refused(&["write_cache.limit_bytes=10GB"]).contains("is not a size"));
        assert!(refused(&["name=a", "name=b"]).contains("name is given twice"));
        assert!("novalue".parse::<Setting>().is_err() && "=x".parse::<Setting>().is_err());
    }
}
