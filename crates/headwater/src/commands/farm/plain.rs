//! What can be done with every noun.
use hyper::Method;
use serde_json::Value;

use super::nouns::{COLLECTION, DEVICE, Noun, VIEW};
use super::{Server, encode, print, settings, sure};
use crate::cli::{ListArgs, NounVerb, ViewVerb};

/// The most objects that are asked for at a time: what the API gives.
const PAGE: usize = 1000;

impl Server {
    pub(super) async fn plain(&self, noun: &'static Noun, verb: NounVerb) -> anyhow::Result<String> {
        match verb {
            NounVerb::List(list) => self.list(noun, noun.path, &list).await,
            NounVerb::Show { name } => self.show(noun, &name).await,
            NounVerb::Create { name, values } => {
                let mut body = settings::object(noun, &values)?;
                anyhow::ensure!(!body.contains_key("name"), "the name is given twice");
                name_it(noun, &name, &mut body);
                self.print(&self.ask(Method::POST, noun.path, Some(&body.into())).await?)
            }
            NounVerb::Set { name, values } => {
                let body = settings::object(noun, &values)?.into();
                let found = self.find(noun, &name).await?;
                self.print(&self.change(Method::PATCH, &found, "", Some(&body)).await?)
            }
            NounVerb::Delete { names, sure } => {
                let mut found = Vec::new();
                for name in &names {
                    found.push(self.find(noun, name).await?);
                }
                let called: Vec<String> =
                    found.iter().map(|object| format!("\"{}\"", object.text("name"))).collect();
                let loss = if noun.word == DEVICE.word {
                    " and what they have in persistent write caches"
                } else {
                    ""
                };
                sure::ask(sure, &format!("Delete {} {}{loss}?", noun.word, called.join(", ")))?;
                for object in &found {
                    self.change(Method::DELETE, object, "", None).await?;
                }
                Ok(String::new())
            }
        }
    }

    pub(super) async fn list(&self, noun: &Noun, path: &str, list: &ListArgs) -> anyhow::Result<String> {
        let most = list.limit.unwrap_or(usize::MAX);
        let mut query = String::new();
        for (key, value) in [("filter", &list.filter), ("sort", &list.sort)] {
            if let Some(value) = value {
                query.push_str(&format!("&{key}={}", encode(value)));
            }
        }
        let (mut items, mut total, mut cursor) = (Vec::new(), 0, String::new());
        loop {
            let limit = most.saturating_sub(items.len()).min(PAGE);
            let page: Value =
                self.client.get(&format!("{path}?limit={}{query}{cursor}", limit.max(1))).await?;
            let found = page.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
            total =
                page.get("total").and_then(Value::as_u64).unwrap_or(total).max(u64::try_from(found.len())?);
            let empty = found.is_empty();
            items.extend(found);
            match page.get("next").and_then(Value::as_str) {
                Some(next) if items.len() < most && !empty => cursor = format!("&cursor={}", encode(next)),
                _ => break,
            }
        }
        items.truncate(most);
        print::list(noun, &items, total, &list.columns, self.format)
    }

    pub(super) async fn show(&self, noun: &Noun, name: &str) -> anyhow::Result<String> {
        self.print(&self.find(noun, name).await?.value)
    }

    pub(super) async fn view(&self, verb: ViewVerb) -> anyhow::Result<String> {
        let (view, list) = match verb {
            ViewVerb::Plain(verb) => return self.plain(&VIEW, verb).await,
            ViewVerb::Items { view, list } => (view, list),
        };
        let found = self.find(&VIEW, &view).await?;
        let of = match found.text("of") {
            "vdisks" => &super::nouns::VDISK,
            "versions" => &super::nouns::VERSION,
            "servers" => &super::nouns::SERVER,
            _ => &DEVICE,
        };
        self.list(of, &format!("{}/items", found.path), &list).await
    }
}

/// `Main/Lab` is the collection "Lab" of the site "Main", `images/win11` the vDisk of the store "images".
pub(super) fn name_it(noun: &Noun, name: &str, body: &mut serde_json::Map<String, Value>) {
    let inside = match noun.word {
        word if word == COLLECTION.word => Some("site"),
        "vdisk" => Some("store"),
        _ => None,
    };
    let parts = inside.filter(|key| !body.contains_key(*key)).zip(name.split_once('/'));
    let name = match parts {
        Some((key, (of, name))) => {
            body.insert(key.to_owned(), of.into());
            name
        }
        None => name,
    };
    body.insert("name".to_owned(), name.into());
}
