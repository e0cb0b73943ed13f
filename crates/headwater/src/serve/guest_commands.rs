//! `/v1/cloud/<seed>/command`: the service in a device's system fetches its commands, and says what it does with them.
//!
//! Who asks is proven as for the device's [documents](super::cloud): by the boot's token or by the address that the device uses
//! its disk from. So nobody fetches, or takes away, what is meant for another device, or for another boot of the same one.
//! The format is for a shell with nothing but `wget` or `curl`:
//!
//! ```text
//! GET   ->  again 5                     ask again in so many seconds
//!           1764000000000 message       a command's number and what it is; where there is none, no such line
//!           We close at six.            the lines of a message
//!
//! POST  <-  1764000000000 taken         or: 1764000000000 failed WHY
//!       ->  200: do it;  410: there is no such command (any more), do nothing
//! ```
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::cloud::{Cloud, Limits, Refused, respond};
use crate::cloud::CLOUD_PATH;
use crate::stream::mailbox::{Mail, Mailbox, Receipt};

/// The longest receipt.
const MAX_RECEIPT_BYTES: usize = 1024;
/// How long it may take.
const RECEIPT_WITHIN: Duration = Duration::from_secs(2);

/// What the routes need.
pub(super) struct Post {
    /// Tells who asks.
    pub(super) cloud: Arc<Cloud>,
    pub(super) mailbox: Arc<Mailbox>,
    /// Of its own: a service that asks often keeps nobody from a device's documents.
    pub(super) limits: Limits,
}

/// Messages are of any language.
const TEXT: &str = "text/plain; charset=utf-8";

/// The routes. Needs the peer's address: `into_make_service_with_connect_info::<SocketAddr>()`.
pub(super) fn router(post: Arc<Post>) -> Router {
    Router::new().route(&format!("{CLOUD_PATH}{{seed}}/command"), get(fetch).post(receive)).with_state(post)
}

async fn fetch(
    State(post): State<Arc<Post>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(seed): Path<String>,
) -> Response {
    let peer = peer.ip().to_canonical();
    respond(peer, TEXT, tokio::task::spawn_blocking(move || post.fetch(&seed, peer)).await)
}

async fn receive(
    State(post): State<Arc<Post>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(seed): Path<String>,
    body: Body,
) -> Response {
    let peer = peer.ip().to_canonical();
    let body = axum::body::to_bytes(body, MAX_RECEIPT_BYTES);
    let Ok(Ok(body)) = tokio::time::timeout(RECEIPT_WITHIN, body).await else {
        let why = format!("the receipt did not come, or has more than {MAX_RECEIPT_BYTES} bytes\n");
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    respond(peer, TEXT, tokio::task::spawn_blocking(move || post.receive(&seed, peer, &body)).await)
}

impl Post {
    fn fetch(&self, seed: &str, peer: IpAddr) -> Result<String, Refused> {
        let (device, boot) = self.cloud.who(seed, peer, &self.limits)?;
        Ok(written(&self.mailbox.fetch(crate::catalogue::now(), &device, &boot)))
    }

    fn receive(&self, seed: &str, peer: IpAddr, body: &[u8]) -> Result<String, Refused> {
        let (device, boot) = self.cloud.who(seed, peer, &self.limits)?;
        let rule =
            || (StatusCode::BAD_REQUEST, "a receipt is: NUMBER taken, or NUMBER failed WHY".to_owned());
        let (id, receipt) = read(body).ok_or_else(rule)?;
        let gone =
            || (StatusCode::GONE, "there is no such command for this boot, or not any more".to_owned());
        let received = self.mailbox.receive(crate::catalogue::now(), &device, &boot, id, receipt.clone());
        let (kind, news) = received.ok_or_else(gone)?;
        if news {
            let (command, device) = (kind.word(), device.as_str());
            match receipt {
                Receipt::Taken => {
                    self.cloud.recorder.leaves(device, boot.as_str(), kind);
                    tracing::info!(device, command, id, "the device's system has taken a command");
                }
                Receipt::Failed(why) => {
                    self.cloud.recorder.stays(device, boot.as_str());
                    tracing::warn!(device, command, id, why, "the device's system could not do a command");
                }
            }
        }
        Ok(String::new())
    }
}

fn written(mail: &Mail) -> String {
    let again = format!("again {}\n", mail.ask_again.as_secs());
    match &mail.order {
        None => again,
        Some(order) if order.text.is_empty() => format!("{again}{} {}\n", order.id, order.kind.word()),
        Some(order) => format!("{again}{} {}\n{}\n", order.id, order.kind.word(), order.text),
    }
}

fn read(body: &[u8]) -> Option<(u64, Receipt)> {
    let text = std::str::from_utf8(body).ok()?.trim();
    let (id, said) = text.split_once(' ')?;
    let receipt = match said.split_once(' ') {
        None if said == "taken" => Receipt::Taken,
        None if said == "failed" => Receipt::Failed(String::new()),
        Some(("failed", why)) => Receipt::Failed(why.trim().to_owned()),
        _ => return None,
    };
    Some((id.parse().ok()?, receipt))
}

#[cfg(test)]
mod tests {
    use ::api::guest_commands::CommandKind;

    use super::*;
    use crate::stream::mailbox::Order;

    #[test]
    fn mail_is_lines_that_a_shell_reads() {
        let ask_again = Duration::from_secs(5);
        let mail = |kind, text: &str| {
            let order = Order { id: 7, kind, text: text.to_owned() };
            written(&Mail { ask_again, order: Some(order) })
        };
        assert_eq!(written(&Mail { ask_again, order: None }), "again 5\n");
        assert_eq!(mail(CommandKind::Reboot, ""), "again 5\n7 reboot\n");
        assert_eq!(mail(CommandKind::Message, "one\ntwo"), "again 5\n7 message\none\ntwo\n");
    }

    #[test]
    fn receipt_is_a_number_and_a_word() {
        assert_eq!(read(b"7 taken\n"), Some((7, Receipt::Taken)));
        assert_eq!(read(b"7 failed no console"), Some((7, Receipt::Failed("no console".to_owned()))));
        for bad in
            [&b""[..], b"7", b"taken", b"x taken", b"7 done", b"7 taken twice", b"-1 taken", b"\xff taken"]
        {
            assert_eq!(read(bad), None);
        }
    }
}
