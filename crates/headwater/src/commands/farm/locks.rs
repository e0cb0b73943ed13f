//! `lock` and `audit`.
use hyper::Method;
use serde_json::{Value, json};

use super::nouns::{AUDIT, LOCK};
use super::{Body, Server, encode, sure};
use crate::cli::{AuditVerb, LockVerb};

impl Server {
    pub(super) async fn lock(&self, verb: LockVerb) -> anyhow::Result<String> {
        match verb {
            LockVerb::List(list) => self.list(&LOCK, LOCK.path, &list).await,
            LockVerb::Show { fence } => self.show(&LOCK, &format!("#{fence}")).await,
            LockVerb::Break { fence, reason, sure } => {
                let found = self.find(&LOCK, &format!("#{fence}")).await?;
                let of = |key: &str, what: &str| {
                    found
                        .value
                        .get(key)
                        .and_then(|of| of.get(what))
                        .and_then(Value::as_str)
                        .unwrap_or("?")
                        .to_owned()
                };
                let question = format!(
                    "Break the lock of {} \"{}\" on the {} of {} ({}, since {})? It is cut off in whatever it does.",
                    of("owner", "kind"),
                    of("owner", "name"),
                    of("subject", "kind"),
                    of("subject", "name"),
                    found.text("purpose"),
                    found.text("since")
                );
                sure::ask(sure, &question)?;
                let body = json!({ "reason": reason });
                self.row(&LOCK, &self.ask(Method::POST, &format!("{}/break", found.path), Some(&body)).await?)
            }
        }
    }

    pub(super) async fn audit(&self, verb: AuditVerb) -> anyhow::Result<String> {
        match verb {
            AuditVerb::List(list) => self.latest(&AUDIT, &list).await,
            AuditVerb::Show { number } => self.show(&AUDIT, &format!("#{number}")).await,
            AuditVerb::Export { filter } => {
                let query = filter.map(|filter| format!("?filter={}", encode(&filter))).unwrap_or_default();
                let path = format!("{}/export{query}", AUDIT.path);
                let lines = self.client.bytes(Method::GET, &path, Body::default()).await?;
                Ok(String::from_utf8(lines.to_vec())?)
            }
        }
    }
}
