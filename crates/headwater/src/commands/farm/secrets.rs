//! `secret`: what devices prove by CHAP.
use hyper::Method;
use serde_json::{Value, json};

use super::nouns::SECRET;
use super::{Server, encode, print, sure};
use crate::cli::SecretVerb;

impl Server {
    pub(super) async fn secret(&self, verb: SecretVerb) -> anyhow::Result<String> {
        match verb {
            SecretVerb::List => {
                let answer: Value = self.client.get(SECRET.path).await?;
                let items = answer.get("items").and_then(Value::as_array).map(Vec::as_slice);
                let items = items.unwrap_or_default();
                print::list(&SECRET, items, u64::try_from(items.len())?, &[], self.format)
            }
            SecretVerb::Set { secret } => {
                let value = sure::secret(&format!("CHAP secret \"{secret}\""), true)?;
                let body = json!({ "name": secret, "secret": value });
                self.ask(Method::POST, SECRET.path, Some(&body)).await?;
                Ok(String::new())
            }
            SecretVerb::Delete { secrets, sure } => {
                let names = secrets.join("\", \"");
                sure::ask(sure, &format!("Forget CHAP secret \"{names}\"?"))?;
                for secret in &secrets {
                    let path = format!("{}/{}", SECRET.path, encode(secret));
                    self.ask(Method::DELETE, &path, None).await?;
                }
                Ok(String::new())
            }
        }
    }
}
