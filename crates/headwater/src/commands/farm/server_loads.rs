//! What `server` can do besides: tell which servers serve, and what they carry.
use serde_json::Value;

use super::Server;
use super::nouns::{SERVER, SERVER_LOAD};
use crate::cli::ServerVerb;

impl Server {
    pub(super) async fn server(&self, verb: ServerVerb) -> anyhow::Result<String> {
        match verb {
            ServerVerb::Plain(verb) => self.plain(&SERVER, verb).await,
            ServerVerb::Load { name: None, list } => self.list(&SERVER_LOAD, SERVER_LOAD.path, &list).await,
            ServerVerb::Load { name: Some(name), .. } => {
                let found = self.find(&SERVER, &name).await?;
                self.print(&self.client.get::<Value>(&format!("{}/load", found.path)).await?)
            }
        }
    }
}
