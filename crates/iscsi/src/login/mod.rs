//! The login phase as a state machine (RFC 7143 §6): who is it, what must it prove, what do both sides agree on.
//!
//! Login requests go in, login responses and [`LoginEvent`]s come out. Two questions are the owner's to answer, and
//! the machine waits for the answer: what the initiator must prove ([`LoginEvent::AskAuthentication`]) and whether
//! the session may open ([`LoginEvent::AskOpen`]). Nothing but login requests is taken here: the full feature phase
//! is another type ([`Session`](crate::session::Session)) that only [`LoginEvent::Established`] can make.
mod chap;
mod parameters;

use std::net::SocketAddr;

use chap::Algorithm;
pub(crate) use chap::{CHALLENGE_BYTES, Challenge};
pub(crate) use parameters::Parameters;

use crate::directory::{Authentication, ChapCredentials, IscsiName, LoginAttempt, Refusal};
use crate::limits::{MAX_LOGIN_REQUESTS, MAX_TEXT_BYTES, QUEUE_DEPTH};
use crate::pdu::Bhs;
use crate::pdu::frame::Digests;
use crate::pdu::reply::{LoginResponse, Numbers, put_pdu};
use crate::pdu::request::{LoginRequest, Request};
use crate::text::{Pairs, TextWriter};
use connections::ByteQueue;

/// A login under way on one connection.
pub(crate) struct Login {
    peer: SocketAddr,
    state: State,
    /// Text of requests with the C bit, until the one without.
    text: Vec<u8>,
    requests: u32,
    stat_sn: u32,
    identity: Option<Identity>,
    parameters: Parameters,
    reply: TextWriter,
    /// The first response has been made.
    greeted: bool,
    /// Our own operational parameters have been told.
    declared: bool,
}

/// Where a login stands.
enum State {
    /// The next request is the first.
    Fresh,
    /// The owner has been asked what must be proved.
    AwaitsAuthentication(LoginRequest, Pairs),
    /// Security negotiation; CHAP where there are credentials.
    Security(Proof),
    /// Operational negotiation.
    Operational,
    /// The owner has been asked to open.
    AwaitsOpen(LoginRequest),
    /// Established or refused: nothing is taken any more.
    Over,
}

/// How far the proof has come.
enum Proof {
    /// None is needed, or it was right.
    Given,
    /// CHAP is required; the method has not been agreed on.
    Required(ChapCredentials, Challenge),
    /// The method is agreed on.
    MethodChosen(ChapCredentials, Challenge),
    /// The algorithm is agreed on and the challenge has been sent.
    Challenged(ChapCredentials, Challenge, Algorithm),
}

/// What stays the same during a login.
#[derive(Clone, Debug)]
struct Identity {
    attempt: LoginAttempt,
    tsih: u16,
    cid: u16,
}

/// What the driver has to do after a step.
#[derive(Debug)]
pub(crate) enum LoginEvent {
    /// Read on.
    Continue,
    /// Ask [`Directory::authentication`](crate::directory::Directory::authentication) and pass the answer to
    /// [`Login::authentication`]. No request may go in before.
    AskAuthentication(LoginAttempt),
    /// Ask [`Directory::open`](crate::directory::Directory::open) where there is a target, and pass the answer to
    /// [`Login::opened`]. `tsih` names the session that the initiator wants to go on with; 0 a new one.
    AskOpen {
        /// Who.
        attempt: LoginAttempt,
        /// The session that it means.
        tsih: u16,
    },
    /// Full feature phase has begun.
    Established(Established),
    /// The login response says no; close when it is sent.
    Refused(String),
}

/// A login that succeeded.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) attempt: LoginAttempt,
    pub(crate) parameters: Parameters,
    pub(crate) cid: u16,
    /// The CmdSN that the first command will carry.
    pub(crate) cmd_sn: u32,
    /// The StatSN of the next response.
    pub(crate) stat_sn: u32,
}

/// A status of the Login Response: class and detail (RFC 7143 §11.13.5).
#[derive(Clone, Copy)]
struct Status(u16);

impl Status {
    const INITIATOR_ERROR: Self = Self(0x0200);
    const AUTHENTICATION_FAILED: Self = Self(0x0201);
    const UNSUPPORTED_VERSION: Self = Self(0x0205);
    const MISSING_PARAMETER: Self = Self(0x0207);
    const SESSION_TYPE: Self = Self(0x0209);
    const NO_SUCH_SESSION: Self = Self(0x020A);
    const INVALID_DURING_LOGIN: Self = Self(0x020B);
}

/// A step that ends the login.
struct No {
    /// What is sent.
    status: Status,
    /// For the log.
    reason: String,
    /// Where the initiator should go instead.
    moved_to: Option<SocketAddr>,
}

impl No {
    fn because(status: Status, reason: String) -> Self {
        Self { status, reason, moved_to: None }
    }
}

/// Why a login whose proof was right does not get in.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// It wants to go on with a session that does not exist.
    NoSuchSession,
    /// The owner says no.
    Refused(Refusal),
}

type Step = Result<LoginEvent, No>;

impl Login {
    /// A login from `peer` that has not begun.
    pub(crate) fn new(peer: SocketAddr) -> Self {
        Self {
            peer,
            state: State::Fresh,
            text: Vec::new(),
            requests: 0,
            stat_sn: 0,
            identity: None,
            parameters: Parameters::default(),
            reply: TextWriter::new(MAX_TEXT_BYTES),
            greeted: false,
            declared: false,
        }
    }

    /// Takes one PDU.
    ///
    /// # Errors
    /// What was wrong, where it was no login request at all: nothing is sent, the connection ends.
    pub(crate) fn receive(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        out: &mut ByteQueue,
    ) -> Result<LoginEvent, String> {
        let request = match Request::parse(bhs, data.len()) {
            Ok(Request::Login(request)) => request,
            Ok(_) => return Err(format!("opcode {:#04x} before the login was done", bhs.opcode())),
            Err(malformed) => return Err(malformed.to_string()),
        };
        if matches!(self.state, State::AwaitsAuthentication(..) | State::AwaitsOpen(_) | State::Over) {
            return Err("a login request before the last one was answered".to_owned());
        }
        let step = self.take(request.clone(), data, out);
        Ok(self.settle(step, &request, out))
    }

    /// Goes on with what the owner says must be proved, and with a challenge that was never used before.
    pub(crate) fn authentication(
        &mut self,
        answer: Result<Authentication, Refusal>,
        challenge: Challenge,
        out: &mut ByteQueue,
    ) -> LoginEvent {
        let State::AwaitsAuthentication(request, pairs) = std::mem::replace(&mut self.state, State::Over)
        else {
            return LoginEvent::Continue;
        };
        let step = match answer {
            Ok(Authentication::None) => {
                self.state = State::Security(Proof::Given);
                self.negotiate(request.clone(), pairs, out)
            }
            Ok(Authentication::Chap(credentials)) if chap::secrets_are_equal(&credentials) => {
                let reason = "CHAP secrets of initiator and target are the same; give them different ones";
                Err(No::because(Status::AUTHENTICATION_FAILED, reason.to_owned()))
            }
            Ok(Authentication::Chap(credentials)) => {
                self.state = State::Security(Proof::Required(credentials, challenge));
                self.negotiate(request.clone(), pairs, out)
            }
            Err(refusal) => Err(refused(refusal)),
        };
        self.settle(step, &request, out)
    }

    /// Ends the login as the owner says: with the session's TSIH, or with a refusal.
    pub(crate) fn opened(&mut self, answer: Result<u16, NotOpened>, out: &mut ByteQueue) -> LoginEvent {
        let State::AwaitsOpen(request) = std::mem::replace(&mut self.state, State::Over) else {
            return LoginEvent::Continue;
        };
        let step = match (answer, self.identity.clone()) {
            (Ok(tsih), Some(identity)) => {
                self.respond(&request, &LoginResponse { transit: true, more: false, tsih, status: 0 }, out);
                Ok(LoginEvent::Established(Established {
                    attempt: identity.attempt,
                    parameters: self.parameters.settled(),
                    cid: identity.cid,
                    cmd_sn: request.cmd_sn,
                    stat_sn: self.stat_sn,
                }))
            }
            (Ok(_), None) => Err(No::because(Status::MISSING_PARAMETER, "no initiator name".to_owned())),
            (Err(NotOpened::Refused(refusal)), _) => Err(refused(refusal)),
            (Err(NotOpened::NoSuchSession), _) => {
                Err(No::because(Status::NO_SUCH_SESSION, "a session that does not exist".to_owned()))
            }
        };
        self.settle(step, &request, out)
    }

    /// Turns a no into its login response.
    fn settle(&mut self, step: Step, request: &LoginRequest, out: &mut ByteQueue) -> LoginEvent {
        step.unwrap_or_else(|No { status: Status(status), reason, moved_to }| {
            self.state = State::Over;
            self.reply = TextWriter::new(MAX_TEXT_BYTES);
            if let Some(address) = moved_to {
                // RFC 7143 §13.8: without the portal group in a redirection.
                self.reply.put("TargetAddress", &address.to_string());
            }
            self.respond(
                request,
                &LoginResponse { transit: false, more: false, tsih: request.tsih, status },
                out,
            );
            LoginEvent::Refused(reason)
        })
    }

    fn take(&mut self, request: LoginRequest, data: &[u8], out: &mut ByteQueue) -> Step {
        self.requests = self.requests.saturating_add(1);
        if self.requests > MAX_LOGIN_REQUESTS {
            return Err(No::because(
                Status::INITIATOR_ERROR,
                format!("more than {MAX_LOGIN_REQUESTS} login requests"),
            ));
        }
        // RFC 7143 §11.12.4: we speak version 0 only.
        if request.version_min > 0 {
            return Err(No::because(
                Status::UNSUPPORTED_VERSION,
                format!("protocol version {} at least", request.version_min),
            ));
        }
        if let Some(identity) = &self.identity {
            // RFC 7143 §11.12: these must not change during a login.
            if identity.attempt.isid != request.isid
                || identity.tsih != request.tsih
                || identity.cid != request.cid
            {
                return Err(No::because(
                    Status::INITIATOR_ERROR,
                    "ISID, TSIH or CID changed during login".to_owned(),
                ));
            }
        }
        if self.text.len().saturating_add(data.len()) > MAX_TEXT_BYTES {
            return Err(No::because(
                Status::INITIATOR_ERROR,
                format!("login text of more than {MAX_TEXT_BYTES} bytes"),
            ));
        }
        self.text.extend_from_slice(data);
        if request.more {
            // RFC 7143 §6.2: text in parts is answered with empty responses until it is complete.
            self.respond_and_stay(&request, out);
            return Ok(LoginEvent::Continue);
        }
        let text = std::mem::take(&mut self.text);
        let pairs =
            Pairs::parse(&text).map_err(|error| No::because(Status::INITIATOR_ERROR, error.to_string()))?;
        if matches!(self.state, State::Fresh) {
            let identity = identify(&request, &pairs, self.peer)?;
            let attempt = identity.attempt.clone();
            self.identity = Some(identity);
            self.state = State::AwaitsAuthentication(request, pairs);
            return Ok(LoginEvent::AskAuthentication(attempt));
        }
        self.negotiate(request, pairs, out)
    }

    /// Answers the keys of one request and goes to the next stage where both sides are ready.
    fn negotiate(&mut self, request: LoginRequest, mut pairs: Pairs, out: &mut ByteQueue) -> Step {
        self.enter_stage(request.current_stage)?;
        let normal = self.identity.as_ref().is_some_and(|identity| identity.attempt.target.is_some());
        if !self.greeted && normal {
            // RFC 7143 §13.9: in the first response to a login that names a target.
            let group = crate::session::PORTAL_GROUP_TAG.to_string();
            self.reply.put("TargetPortalGroupTag", &group);
        }
        let first = !std::mem::replace(&mut self.greeted, true);
        if let State::Security(proof) = std::mem::replace(&mut self.state, State::Over) {
            self.state = State::Security(prove(proof, &pairs, &mut self.reply)?);
        } else {
            self.state = State::Operational;
        }
        for (key, value) in pairs.take() {
            self.answer(&key, &value, first);
        }
        let ready = !matches!(&self.state, State::Security(proof) if !matches!(proof, Proof::Given));
        if !(request.transit && ready) {
            self.respond_and_stay(&request, out);
            return Ok(LoginEvent::Continue);
        }
        if request.next_stage == 1 {
            self.state = State::Operational;
            self.respond(
                &request,
                &LoginResponse { transit: true, more: false, tsih: request.tsih, status: 0 },
                out,
            );
            return Ok(LoginEvent::Continue);
        }
        let Some(identity) = &self.identity else {
            return Err(No::because(Status::MISSING_PARAMETER, "no initiator name".to_owned()));
        };
        let event = LoginEvent::AskOpen { attempt: identity.attempt.clone(), tsih: identity.tsih };
        self.state = State::AwaitsOpen(request);
        Ok(event)
    }

    /// Checks that the stage of a request is the one we are in, or the operational one that it may begin with.
    fn enter_stage(&mut self, stage: u8) -> Result<(), No> {
        match (&self.state, stage) {
            (State::Security(_), 0) => Ok(()),
            (State::Security(Proof::Given), 1) => {
                self.state = State::Operational;
                self.declare();
                Ok(())
            }
            (State::Operational, 1) => {
                self.declare();
                Ok(())
            }
            // RFC 7143 §6.3.2: skipping security is for those who need not prove anything.
            (State::Security(_), _) => Err(No::because(
                Status::AUTHENTICATION_FAILED,
                "login without the proof that is required".to_owned(),
            )),
            _ => {
                Err(No::because(Status::INVALID_DURING_LOGIN, format!("stage {stage} again, or out of turn")))
            }
        }
    }

    fn declare(&mut self) {
        if !std::mem::replace(&mut self.declared, true) {
            Parameters::declare(&mut self.reply);
        }
    }

    fn answer(&mut self, key: &str, value: &str, first: bool) {
        let declarative = matches!(key, "InitiatorName" | "SessionType" | "TargetName" | "InitiatorAlias");
        let security = matches!(key, "AuthMethod" | "CHAP_A" | "CHAP_I" | "CHAP_C" | "CHAP_N" | "CHAP_R");
        if (declarative && first) || key == "InitiatorAlias" || security {
            return;
        }
        if matches!(value, "NotUnderstood" | "Irrelevant" | "Reject") {
            return; // The end of a negotiation, not an offer (RFC 7143 §6.2).
        }
        if self.parameters.negotiate(key, value, &mut self.reply).is_none() {
            // RFC 7143 §6.2: what is not known is said to be so. The writer bounds the answer.
            self.reply.put(key, "NotUnderstood");
        }
    }

    fn respond_and_stay(&mut self, request: &LoginRequest, out: &mut ByteQueue) {
        self.respond(
            request,
            &LoginResponse { transit: false, more: false, tsih: request.tsih, status: 0 },
            out,
        );
    }

    fn respond(&mut self, request: &LoginRequest, response: &LoginResponse, out: &mut ByteQueue) {
        let text = std::mem::replace(&mut self.reply, TextWriter::new(MAX_TEXT_BYTES)).finish();
        let window = QUEUE_DEPTH.saturating_sub(1);
        let numbers = Numbers {
            stat_sn: self.stat_sn,
            exp_cmd_sn: request.cmd_sn,
            max_cmd_sn: request.cmd_sn.wrapping_add(window),
        };
        self.stat_sn = self.stat_sn.wrapping_add(1);
        put_pdu(out, response.header(request).with_numbers(numbers), &text, Digests::default());
    }
}

/// Reads who is logging in to what from the first request.
fn identify(request: &LoginRequest, pairs: &Pairs, peer: SocketAddr) -> Result<Identity, No> {
    let missing =
        |what: &str| No::because(Status::MISSING_PARAMETER, format!("no {what} in the first login request"));
    let name = |key: &str, text: &str| {
        IscsiName::parse(text)
            .ok_or_else(|| No::because(Status::INITIATOR_ERROR, format!("{key} is no iSCSI name")))
    };
    let initiator =
        name("InitiatorName", pairs.get("InitiatorName").ok_or_else(|| missing("InitiatorName"))?)?;
    let target = match pairs.get("SessionType") {
        Some("Discovery") if request.tsih != 0 => {
            return Err(No::because(Status::NO_SUCH_SESSION, "a discovery session that goes on".to_owned()));
        }
        Some("Discovery") => None,
        None | Some("Normal") => {
            Some(name("TargetName", pairs.get("TargetName").ok_or_else(|| missing("TargetName"))?)?)
        }
        Some(_) => {
            return Err(No::because(Status::SESSION_TYPE, "a session type that does not exist".to_owned()));
        }
    };
    let attempt = LoginAttempt { initiator, isid: request.isid, peer, target };
    Ok(Identity { attempt, tsih: request.tsih, cid: request.cid })
}

/// One step of the proof (RFC 7143 §12.1).
fn prove(proof: Proof, pairs: &Pairs, reply: &mut TextWriter) -> Result<Proof, No> {
    let failed = |reason: &str| No::because(Status::AUTHENTICATION_FAILED, reason.to_owned());
    let methods = pairs.get("AuthMethod");
    match proof {
        Proof::Given => {
            if let Some(methods) = methods {
                parameters::first_known(methods, &["None"])
                    .ok_or_else(|| failed("the initiator insists on a proof that is not asked for"))?;
                reply.put("AuthMethod", "None");
            }
            Ok(Proof::Given)
        }
        Proof::Required(credentials, challenge) => {
            let Some(methods) = methods else {
                return Ok(Proof::Required(credentials, challenge));
            };
            parameters::first_known(methods, &["CHAP"])
                .ok_or_else(|| failed("CHAP is required and not offered"))?;
            reply.put("AuthMethod", "CHAP");
            Ok(Proof::MethodChosen(credentials, challenge))
        }
        Proof::MethodChosen(credentials, challenge) => {
            let algorithms = pairs.get("CHAP_A").ok_or_else(|| failed("no CHAP_A where it is due"))?;
            let algorithm = Algorithm::choose(algorithms, credentials.allows_md5)
                .ok_or_else(|| failed("no CHAP algorithm that we know and that is allowed"))?;
            reply.put("CHAP_A", algorithm.number());
            reply.put("CHAP_I", &challenge.identifier.to_string());
            reply.put("CHAP_C", &challenge.to_text());
            Ok(Proof::Challenged(credentials, challenge, algorithm))
        }
        Proof::Challenged(credentials, challenge, algorithm) => {
            let (Some(user), Some(response)) = (pairs.get("CHAP_N"), pairs.get("CHAP_R")) else {
                return Err(failed("no CHAP_N and CHAP_R where they are due"));
            };
            if !challenge.is_answered_by(algorithm, &credentials.initiator, user, response) {
                return Err(failed("wrong CHAP user or secret"));
            }
            if let (None, None) = (pairs.get("CHAP_I"), pairs.get("CHAP_C")) {
                return Ok(Proof::Given);
            }
            let (identifier, theirs) = (pairs.get("CHAP_I").unwrap_or(""), pairs.get("CHAP_C").unwrap_or(""));
            let (user, response) = challenge
                .answer_to(algorithm, credentials.target.as_ref(), identifier, theirs)
                .map_err(|no| failed(&no.to_string()))?;
            reply.put("CHAP_N", user);
            reply.put("CHAP_R", &response);
            Ok(Proof::Given)
        }
    }
}

fn moved(status: u16, to: SocketAddr) -> No {
    No { status: Status(status), reason: format!("sent on to {to}"), moved_to: Some(to) }
}

fn refused(refusal: Refusal) -> No {
    match refusal {
        Refusal::AuthenticationFailed => No::because(Status::AUTHENTICATION_FAILED, "refused".to_owned()),
        Refusal::MovedTemporarily(to) => moved(0x0101, to),
        Refusal::MovedPermanently(to) => moved(0x0102, to),
        Refusal::NotAuthorized(reason) => No::because(Status(0x0202), reason),
        Refusal::NotFound(reason) => No::because(Status(0x0203), reason),
        Refusal::Removed(reason) => No::because(Status(0x0204), reason),
        Refusal::Unavailable(reason) => No::because(Status(0x0301), reason),
        Refusal::OutOfResources(reason) => No::because(Status(0x0302), reason),
    }
}

#[cfg(test)]
mod tests;
