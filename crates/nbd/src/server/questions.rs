//! Questions to the owner of the exports, asked on a worker; the answers come back as messages.
use std::sync::Arc;

use super::event_loop::Context;
use super::mailbox::{ConnectionId, Letter, Message};
use super::opened::Opened;
use crate::exports::{Peer, Purpose};
use connections::Lane;

/// Which exports does it see?
pub(super) fn ask_list(context: &Context, id: ConnectionId, peer: Peer) {
    let (shared, mailbox) = (Arc::clone(&context.shared), Arc::clone(&context.mailbox));
    context.shared.questions.submit(
        Lane::default(),
        Box::new(move || {
            mailbox.post(Message::To(id, Letter::Listed(shared.exports.list(&peer))));
        }),
    );
}

/// May it use this one?
pub(super) fn ask_open(context: &Context, id: ConnectionId, name: String, purpose: Purpose, peer: Peer) {
    let (shared, mailbox) = (Arc::clone(&context.shared), Arc::clone(&context.mailbox));
    context.shared.questions.submit(
        Lane::default(),
        Box::new(move || {
            let opened = shared.exports.open(&name, purpose, &peer);
            let opened = opened.map(|export| Arc::new(Opened::new(name, purpose, export)));
            mailbox.post(Message::To(id, Letter::Opened(opened)));
        }),
    );
}
