//! `user` and `token`.
use std::path::Path;

use anyhow::Context;
use hyper::Method;
use serde_json::{Value, json};

use super::nouns::{GRANT, TOKEN, USER};
use super::vdisks::put;
use super::{Found, Server, sure};
use crate::cli::{Format, ScopeArgs, TokenVerb, UserVerb};

impl Server {
    pub(super) async fn user(&self, verb: UserVerb) -> anyhow::Result<String> {
        match verb {
            UserVerb::Plain(verb) => self.plain(&USER, verb).await,
            UserVerb::Password { user, must_change } => {
                let found = self.find(&USER, &user).await?;
                let password = sure::secret(&format!("New password of {user}"), true)?;
                let body = json!({ "password": password, "must_change": must_change });
                self.ask(Method::POST, &format!("{}/password", found.path), Some(&body)).await?;
                Ok(String::new())
            }
            UserVerb::Roles(list) => self.list(&GRANT, GRANT.path, &list).await,
            UserVerb::Grant { user, role, scope } => {
                let mut body = json!({ "user": user, "role": role });
                put_scope(&mut body, scope);
                self.row(&GRANT, &self.ask(Method::POST, GRANT.path, Some(&body)).await?)
            }
            UserVerb::Revoke { number } => {
                let found = self.find(&GRANT, &format!("#{number}")).await?;
                self.change(Method::DELETE, &found, "", None).await?;
                Ok(String::new())
            }
            UserVerb::Claim { first_token_file } => self.claim(first_token_file.as_deref()).await,
        }
    }

    async fn claim(&self, file: Option<&Path>) -> anyhow::Result<String> {
        let token = match file {
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("the token in {} cannot be read", path.display()))?,
            None => sure::secret("Token that the server printed", false)?,
        };
        let password = sure::secret("New password", true)?;
        let body = json!({ "token": token.trim(), "password": password });
        let answer = self.ask(Method::POST, "/v1/first-login", Some(&body)).await?;
        let user =
            answer.get("user").and_then(|user| user.get("name").unwrap_or(user).as_str()).unwrap_or("admin");
        Ok(format!(
            "The password of {user} is set. A token for this program: headwater token create {user} NAME\n"
        ))
    }

    pub(super) async fn token(&self, verb: TokenVerb) -> anyhow::Result<String> {
        match verb {
            TokenVerb::List(list) => self.list(&TOKEN, TOKEN.path, &list).await,
            TokenVerb::Show { token } => self.show(&TOKEN, &token).await,
            TokenVerb::Create { user, name, role, expires, scope } => {
                let mut body = json!({ "user": user, "name": name, "role": role });
                put(&mut body, "expires_at", expires);
                put_scope(&mut body, scope);
                let answer = self.ask(Method::POST, TOKEN.path, Some(&body)).await?;
                match self.format {
                    Format::Json => Ok(serde_json::to_string_pretty(&answer)? + "\n"),
                    // Alone on its line: for a file of its own.
                    Format::Table | Format::Csv => {
                        Ok(answer.get("secret").and_then(Value::as_str).unwrap_or_default().to_owned() + "\n")
                    }
                }
            }
            TokenVerb::Delete { tokens, sure } => {
                let mut found: Vec<Found> = Vec::new();
                for token in &tokens {
                    found.push(self.find(&TOKEN, token).await?);
                }
                sure::ask(
                    sure,
                    &format!(
                        "Delete token {}? Programs that go by it are let in no more.",
                        tokens.join(", ")
                    ),
                )?;
                for token in &found {
                    self.change(Method::DELETE, token, "", None).await?;
                }
                Ok(String::new())
            }
        }
    }
}

fn put_scope(body: &mut Value, scope: ScopeArgs) {
    put(body, "site", scope.site);
    put(body, "collection", scope.collection);
}
