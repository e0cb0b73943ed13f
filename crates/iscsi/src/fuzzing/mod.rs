//! Entry points for fuzzers: each takes any bytes and returns. Not for use in programs.
mod initiator;
mod play;

pub use play::{Played, session};

use crate::directory::{Authentication, ChapCredentials};
use crate::limits::LOGIN_DATA_SEGMENT_BYTES;
use crate::login::{CHALLENGE_BYTES, Challenge, Login, LoginEvent};
use crate::pdu::frame::{Digests, FrameRules, frame};
use crate::pdu::request::Request;
use crate::session::{Admission, Event, Flow, Outcome, ReadProgress, Scope, Session, SessionStart};
use crate::text::Pairs;
use connections::ByteQueue;

/// What a connection made of some bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The login succeeded.
    pub logged_in: bool,
    /// A command came out of the session.
    pub commands: usize,
    /// The most output that was waiting at a time.
    pub most_output_bytes: usize,
}

/// Decodes one PDU and one negotiation text.
pub fn decode(bytes: &[u8]) {
    for header in [false, true] {
        let rules = FrameRules {
            digests: Digests { header, data: header },
            max_data_bytes: LOGIN_DATA_SEGMENT_BYTES,
        };
        if let Ok(Some(pdu)) = frame(bytes, rules) {
            let _ = Request::parse(&pdu.bhs, pdu.data.len());
            let _ = Pairs::parse(pdu.data);
        }
    }
    let _ = Pairs::parse(bytes);
}

/// Plays `bytes` as a whole connection: login, then a session whose every command is carried out in one of several
/// ways. With `chap` the initiator must prove itself first.
#[must_use]
pub fn connection(bytes: &[u8], chap: bool) -> Seen {
    let mut player = Player { seen: Seen::default(), out: ByteQueue::default(), lent: Vec::new(), turn: 0 };
    let mut rest = bytes;
    let mut login = Login::new(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
    let rules = FrameRules { digests: Digests::default(), max_data_bytes: LOGIN_DATA_SEGMENT_BYTES };
    let mut session = loop {
        let Ok(Some(pdu)) = frame(rest, rules) else { return player.seen };
        rest = rest.get(pdu.total_bytes..).unwrap_or_default();
        let Ok(mut event) = login.receive(&pdu.bhs, pdu.data, &mut player.out) else { return player.seen };
        event = match event {
            LoginEvent::AskAuthentication(_) => {
                let credentials = ChapCredentials::one_way("u", "secret-secret");
                let needed = if chap { Authentication::Chap(credentials) } else { Authentication::None };
                let challenge = Challenge { identifier: 1, bytes: [7; CHALLENGE_BYTES] };
                login.authentication(Ok(needed), challenge, &mut player.out)
            }
            other => other,
        };
        if let LoginEvent::AskOpen { .. } = event {
            event = login.opened(Ok(1), &mut player.out);
        }
        match event {
            LoginEvent::Established(established) => {
                let start = SessionStart {
                    parameters: established.parameters,
                    discovery: established.attempt.target.is_none(),
                    cid: established.cid,
                    cmd_sn: established.cmd_sn,
                    stat_sn: established.stat_sn,
                    knows_pings: established.attempt.isid.is_of_open_iscsi(),
                };
                player.seen.logged_in = true;
                break Session::new(start);
            }
            LoginEvent::Refused(_) => return player.seen,
            LoginEvent::Continue | LoginEvent::AskAuthentication(_) | LoginEvent::AskOpen { .. } => {}
        }
    };
    while let Ok(Some(pdu)) = frame(rest, session.frame_rules()) {
        rest = rest.get(pdu.total_bytes..).unwrap_or_default();
        if player.step(&mut session, &pdu.bhs, pdu.data).is_none() {
            break;
        }
    }
    player.seen
}

/// A driver without disks: the command's first byte says how it is carried out.
struct Player {
    seen: Seen,
    out: ByteQueue,
    /// Work that is out, as if on a worker.
    lent: Vec<(u32, bool)>,
    turn: u32,
}

impl Player {
    fn step(&mut self, session: &mut Session<u8>, bhs: &crate::pdu::Bhs, data: &[u8]) -> Option<()> {
        match session.receive(bhs, data, &mut self.out).ok()? {
            Event::Nothing => {}
            Event::Command(command) => {
                self.seen.commands = self.seen.commands.saturating_add(1);
                let [kind, length, ..] = command.cdb;
                let bytes = u64::from(length) << (kind & 0x0F);
                let flow = match kind >> 6 {
                    0 => Flow::None,
                    1 => Flow::In(bytes),
                    _ => Flow::Out(bytes),
                };
                match session.admit(command.itt, flow, kind, command.data, &mut self.out) {
                    Admission::Run(..) if kind & 0x20 != 0 => self.lent.push((command.itt, false)),
                    Admission::Run(..) => session.finish(command.itt, Outcome::Good, &mut self.out),
                    Admission::Contradiction => {
                        session.finish(command.itt, Outcome::Check(vec![0; 18]), &mut self.out);
                    }
                    Admission::Moves => {}
                }
                while session.solicited_wish().is_some() {
                    session.solicit_next(&mut self.out);
                }
            }
            Event::WriteReady { itt, .. } => self.lent.push((itt, false)),
            Event::Manage(request) => {
                let scope = match request.referenced_itt % 3 {
                    0 => Scope::Task(request.referenced_itt, request.lun),
                    1 => Scope::Lun(request.lun),
                    _ => Scope::Session,
                };
                session.abort(request.itt, scope, false, &mut self.out);
            }
            Event::SendTargets(_) => session.answer_text(&[], &[], &mut self.out),
            Event::Logout => return None,
        }
        self.pump(session);
        self.give_back(session);
        self.seen.most_output_bytes = self.seen.most_output_bytes.max(self.out.len());
        self.out.consume(self.out.len());
        Some(())
    }

    fn pump(&mut self, session: &mut Session<u8>) {
        while let Some(itt) = session.next_read().filter(|_| self.out.len() < 1 << 20) {
            self.turn = self.turn.wrapping_add(1);
            if self.turn.is_multiple_of(3) && session.lend_read(itt).is_some() {
                self.lent.push((itt, true));
                continue;
            }
            let sent = session.send_read(itt, &mut self.out, |_, _, buffer| {
                buffer.fill(0);
                Ok::<(), ()>(())
            });
            debug_assert!(!matches!(sent, Ok(ReadProgress::Aborted(_))));
        }
    }

    fn give_back(&mut self, session: &mut Session<u8>) {
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(2) {
            return;
        }
        if let Some((itt, read)) = self.lent.pop() {
            if read {
                let _ = session.return_read(itt, 0, &[0; 8192], &mut self.out);
            } else {
                session.finish(itt, Outcome::Good, &mut self.out);
            }
        }
    }
}
