//! What can be done with every noun.
use hyper::Method;
use serde_json::Value;

use super::nouns::{COLLECTION, DEVICE, Noun, SITE, STORE, USER, VIEW};
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
                self.place(noun, &mut body).await?;
                self.name_servers(&mut body).await?;
                self.row(noun, &self.ask(Method::POST, noun.path, Some(&body.into())).await?)
            }
            NounVerb::Set { name, values } => {
                let mut body = settings::object(noun, &values)?;
                self.name_servers(&mut body).await?;
                let body = body.into();
                let found = self.find(noun, &name).await?;
                let changed = self.change(Method::PATCH, &found, "", Some(&body)).await?;
                print::changed(noun, &changed, values.iter().map(|setting| setting.key.as_str()), self.format)
            }
            NounVerb::Delete { names, sure } => {
                let mut found = Vec::new();
                for name in &names {
                    found.push(self.find(noun, name).await?);
                }
                let called: Vec<String> =
                    found.iter().map(|object| format!("\"{}\"", object.text("name"))).collect();
                let with = if noun.word == USER.word { " with all roles and tokens" } else { "" };
                sure::ask(sure, &format!("Delete {} {}{with}?", noun.word, called.join(", ")))?;
                for object in &found {
                    self.change(Method::DELETE, object, "", None).await?;
                }
                Ok(String::new())
            }
        }
    }

    /// A list whose latest are wanted where there are too many: in the order of their numbers, from the end.
    pub(super) async fn latest(&self, noun: &Noun, list: &ListArgs) -> anyhow::Result<String> {
        if list.sort.is_some() || list.limit.is_none() {
            return self.list(noun, noun.path, list).await;
        }
        let number = noun.columns.first().map_or("id", |column| column.key);
        let from_the_end = ListArgs { sort: Some(format!("-{number}")), ..list.clone() };
        let (mut items, total) = self.items(noun.path, &from_the_end).await?;
        items.reverse();
        print::list(noun, &items, total, &list.columns, self.format)
    }

    pub(super) async fn list(&self, noun: &Noun, path: &str, list: &ListArgs) -> anyhow::Result<String> {
        let (items, total) = self.items(path, list).await?;
        print::list(noun, &items, total, &list.columns, self.format)
    }

    /// The objects of a list, as many as are wanted, and how many there are.
    async fn items(&self, path: &str, list: &ListArgs) -> anyhow::Result<(Vec<Value>, u64)> {
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
        Ok((items, total))
    }

    /// Says where a new object belongs, where that was not said and there is one such place.
    pub(super) async fn place(
        &self,
        noun: &Noun,
        body: &mut serde_json::Map<String, Value>,
    ) -> anyhow::Result<()> {
        let (key, places) = match noun.word {
            "server" | "collection" => ("site", &SITE),
            "device" => ("collection", &COLLECTION),
            "vdisk" => ("store", &STORE),
            _ => return Ok(()),
        };
        if body.contains_key(key) {
            return Ok(());
        }
        let all: Value = self.client.get(&format!("{}?limit=10", places.path)).await?;
        let items = all.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        match items {
            [only] => {
                body.insert(key.to_owned(), only.get("id").cloned().unwrap_or_default());
                Ok(())
            }
            [] => anyhow::bail!(
                "there is no {} yet: make one first (headwater {} create)",
                places.word,
                places.word
            ),
            many => {
                let names: Vec<&str> = many.iter().filter_map(|place| place.get("name")?.as_str()).collect();
                anyhow::bail!(
                    "say in which {} the {} is to be, {key}=NAME: there are {}",
                    places.word,
                    noun.word,
                    names.join(", ")
                )
            }
        }
    }

    /// Says of a store's paths whose they are, where that was not said and there is one server.
    async fn name_servers(&self, body: &mut serde_json::Map<String, Value>) -> anyhow::Result<()> {
        let Some(paths) = body.get_mut("paths").and_then(Value::as_array_mut) else { return Ok(()) };
        let mut unsaid = paths.iter_mut().filter_map(Value::as_object_mut);
        let mut unsaid = unsaid.by_ref().filter(|path| !path.contains_key("server")).peekable();
        if unsaid.peek().is_none() {
            return Ok(());
        }
        let page: Value = self.client.get("/v1/servers?limit=2").await?;
        let servers = page.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let [only] = servers else {
            anyhow::bail!("the farm has several servers: write SERVER:/path for each of them");
        };
        for path in unsaid {
            path.insert("server".to_owned(), only.get("name").cloned().unwrap_or_default());
        }
        Ok(())
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
