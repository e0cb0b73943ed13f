//! `write-cache`: what devices keep over boots.
use hyper::Method;
use serde_json::{Value, json};

use super::nouns::WRITE_CACHE;
use super::vdisks::put;
use super::{Found, Server, encode, sure};
use crate::cli::WriteCacheVerb;

impl Server {
    pub(super) async fn write_cache(&self, verb: WriteCacheVerb) -> anyhow::Result<String> {
        match verb {
            WriteCacheVerb::List(list) => self.list(&WRITE_CACHE, WRITE_CACHE.path, &list).await,
            WriteCacheVerb::Show { cache } => self.print(&self.kept(&cache).await?.value),
            WriteCacheVerb::Keep { cache } => self.stays(&cache, true).await,
            WriteCacheVerb::Unkeep { cache } => self.stays(&cache, false).await,
            WriteCacheVerb::MakeVersion { cache, comment, wait } => {
                let found = self.kept(&cache).await?;
                let mut body = json!({});
                put(&mut body, "comment", comment);
                let path = format!("{}/make-version", found.path);
                let task = self.ask(Method::POST, &path, Some(&body)).await?;
                self.begun(&task, wait).await
            }
            WriteCacheVerb::Discard { cache, sure } => {
                let found = self.kept(&cache).await?;
                let of = |key: &str| {
                    let name = found.value.get(key).and_then(|of| of.get("name"));
                    name.and_then(Value::as_str).unwrap_or("?").to_owned()
                };
                let (device, vdisk) = (of("device"), of("vdisk"));
                sure::ask(
                    sure,
                    &format!("Discard all that device \"{device}\" wrote on vDisk \"{vdisk}\"?"),
                )?;
                self.change(Method::DELETE, &found, "", None).await?;
                Ok(String::new())
            }
        }
    }

    async fn stays(&self, cache: &str, stays: bool) -> anyhow::Result<String> {
        let found = self.kept(cache).await?;
        let body = json!({ "stays": stays });
        self.row(&WRITE_CACHE, &self.change(Method::PATCH, &found, "", Some(&body)).await?)
    }

    /// The write cache with this number, or the only one of this device.
    async fn kept(&self, cache: &str) -> anyhow::Result<Found> {
        let number = cache.strip_prefix('#').unwrap_or(cache);
        if number.parse::<u64>().is_ok() {
            return self.find(&WRITE_CACHE, &format!("#{number}")).await;
        }
        let filter = format!("device = \"{}\"", cache.replace('\\', "\\\\").replace('"', "\\\""));
        let path = format!("{}?limit=10&filter={}", WRITE_CACHE.path, encode(&filter));
        let page: Value = self.client.get(&path).await?;
        let items = page.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let ids: Vec<u64> = items.iter().filter_map(|item| item.get("id")?.as_u64()).collect();
        match ids.as_slice() {
            [only] => self.find(&WRITE_CACHE, &format!("#{only}")).await,
            [] => anyhow::bail!("device \"{cache}\" keeps no write cache (headwater write-cache list)"),
            many => {
                let numbers: Vec<String> = many.iter().map(u64::to_string).collect();
                anyhow::bail!(
                    "device \"{cache}\" keeps several write caches: say which by its number, {}",
                    numbers.join(" or ")
                )
            }
        }
    }
}
