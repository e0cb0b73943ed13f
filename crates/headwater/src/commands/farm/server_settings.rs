//! `setting`: what can be changed of a server while it runs.
use hyper::Method;
use serde_json::{Map, Value};

use super::nouns::SETTING;
use super::{Found, Server, print};
use crate::cli::{Setting, SettingVerb};

impl Server {
    pub(super) async fn setting(&self, verb: SettingVerb) -> anyhow::Result<String> {
        let mut answer: Value = self.client.get(SETTING.path).await?;
        if let SettingVerb::Set { values } = verb {
            let revision = answer.get("revision").and_then(Value::as_u64).unwrap_or_default();
            let value =
                |Setting { key, value }| (key, if value.is_empty() { Value::Null } else { value.into() });
            let body = Value::Object(values.into_iter().map(value).collect::<Map<_, _>>());
            let found = Found { path: SETTING.path.to_owned(), revision, value: answer };
            answer = self.change(Method::PATCH, &found, "", Some(&body)).await?;
        }
        let items = answer.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        print::list(&SETTING, items, u64::try_from(items.len())?, &[], self.format)
    }
}
