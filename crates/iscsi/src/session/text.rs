//! Text requests in full feature phase: SendTargets (RFC 7143 §11.10, Appendix C).
use super::{Event, Session, broken};
use crate::directory::{IscsiName, Portal};
use crate::limits::{MAX_DISCOVERY_BYTES, MAX_TEXT_BYTES};
use crate::pdu::NO_TAG;
use crate::pdu::reply;
use crate::pdu::request::{Malformed, TextRequest};
use crate::text::{Pairs, TextWriter};
use connections::ByteQueue;

/// Which targets the initiator asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SendTargets {
    /// All that it may know of.
    All,
    /// This one.
    Named(IscsiName),
    /// The one that the session is with.
    Own,
    /// None that exists; an empty answer is due.
    Nothing,
}

/// A text exchange that may take several requests both ways.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// What has come of a request in parts.
    request: Vec<u8>,
    /// The tag of the request that is being answered.
    itt: u32,
    /// Answers to the request's other keys.
    extra: Vec<u8>,
    /// The part of the answer that did not fit, and the tag that asks for it.
    rest: Option<(u32, Vec<u8>)>,
    /// The tag under which the rest of a request in parts comes.
    parts_tag: Option<u32>,
}

impl<W> Session<W> {
    pub(super) fn text_request<'d>(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        out: &mut ByteQueue,
    ) -> Result<Event<'d, W>, Malformed> {
        if request.more && request.last {
            return Err(broken("a text request that is the last and has more to come"));
        }
        // RFC 7143 §11.10.4: with no tag it begins anew, and the rest of an old answer is dropped.
        if let Some((tag, rest)) = self.text.rest.take()
            && request.ttt == tag
            && data.is_empty()
        {
            self.text.itt = request.itt;
            self.send_text(rest, out);
            return Ok(Event::Nothing);
        }
        if request.ttt == NO_TAG {
            self.text.request.clear();
        } else if self.text.parts_tag != Some(request.ttt) {
            return Err(broken("a text request that goes on with an exchange that is not open"));
        }
        self.text.parts_tag = None;
        if self.text.request.len().saturating_add(data.len()) > MAX_TEXT_BYTES {
            return Err(broken("text of more bytes than we take"));
        }
        self.text.request.extend_from_slice(data);
        self.text.itt = request.itt;
        if request.more {
            let tag = self.new_tag();
            self.text.parts_tag = Some(tag);
            self.send(reply::text_response(request.itt, Some(tag)), &[], out);
            return Ok(Event::Nothing);
        }
        let text = std::mem::take(&mut self.text.request);
        let mut pairs = Pairs::parse(&text).map_err(|_| broken("text that is no list of key=value pairs"))?;
        let asked = pairs.get("SendTargets").map(|value| match value {
            // RFC 7143 Appendix C: All is for discovery sessions.
            "All" if self.start.discovery => SendTargets::All,
            "" if !self.start.discovery => SendTargets::Own,
            name => IscsiName::parse(name).map_or(SendTargets::Nothing, SendTargets::Named),
        });
        let mut extra = TextWriter::new(MAX_TEXT_BYTES);
        for (key, _) in pairs.take() {
            if key != "SendTargets" {
                extra.put(&key, "NotUnderstood");
            }
        }
        self.text.extra = extra.finish();
        match asked {
            None | Some(SendTargets::Nothing) => {
                self.answer_text(&[], &[], out);
                Ok(Event::Nothing)
            }
            Some(asked) => Ok(Event::SendTargets(asked)),
        }
    }

    /// Answers SendTargets with these targets, each of them at all `portals`.
    pub(crate) fn answer_text(&mut self, targets: &[IscsiName], portals: &[Portal], out: &mut ByteQueue) {
        let mut writer = TextWriter::new(MAX_DISCOVERY_BYTES);
        let places: Vec<String> =
            portals.iter().map(|portal| format!("{},{}", portal.address, portal.group)).collect();
        for target in targets {
            // A name without its addresses would send the initiator to the wrong portal: all or none.
            let addresses = places.iter().map(|place| ("TargetAddress", place.as_str()));
            let pairs: Vec<_> = std::iter::once(("TargetName", target.as_str())).chain(addresses).collect();
            if !writer.put_all(&pairs) {
                break;
            }
        }
        let mut text = writer.finish();
        text.append(&mut self.text.extra);
        self.send_text(text, out);
    }

    /// Sends as much of `text` as one PDU takes and keeps the rest for when it is asked for.
    fn send_text(&mut self, mut text: Vec<u8>, out: &mut ByteQueue) {
        let limit = self.start.parameters.send_data_segment_bytes as usize;
        let itt = self.text.itt;
        if text.len() <= limit {
            self.send(reply::text_response(itt, None), &text, out);
            return;
        }
        let rest = text.split_off(limit);
        let tag = self.new_tag();
        self.text.rest = Some((tag, rest));
        // RFC 7143 §11.11.2: the C bit, for text that a PDU's end cuts.
        let mut bhs = reply::text_response(itt, Some(tag));
        bhs.0[1] |= 0x40;
        self.send(bhs, &text, out);
    }
}
