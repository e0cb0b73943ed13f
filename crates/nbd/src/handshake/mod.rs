//! The handshake of a server, fixed newstyle, without I/O (proto.md, "Handshake phase").
//!
//! Bytes go in, replies come out; where a decision of the owner is needed, the handshake says which
//! ([`HandshakeEvent::List`], [`HandshakeEvent::Open`]) and takes no further option until it is answered.
//!
//! Nothing that was agreed on before `NBD_OPT_STARTTLS` outlives it, and no byte that came before the TLS session is
//! ever read as if it had come inside (CVE-2021-3716 and its like): see [`Handshake::tls_started`].
mod option;
mod reply;
#[cfg(test)]
mod tests;

use crate::exports::{Listed, Purpose, Refusal};
use crate::limits::{MAX_LISTED, MAX_OPTION_BYTES, MAX_OPTIONS, MAX_SKIPPED_OPTION_BYTES, MAX_STRING_BYTES};
use crate::transmission::{Shape, Terms};
use crate::wire::{
    BASE_ALLOCATION, OPTION_MAGIC, Reader, ReplyMode, SERVER_MAGIC, handshake_flags, info, option as kinds,
    reply as replies,
};
use connections::ByteQueue;
use option::{ClientOption, ContextQuestion, ExportQuestion, OptionError};

/// Whether connections are encrypted (proto.md, "TLS support").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsPolicy {
    /// NOTLS: `NBD_OPT_STARTTLS` is refused.
    #[default]
    Off,
    /// SELECTIVETLS: a client may start TLS; [`Refusal::TlsRequired`](crate::exports::Refusal::TlsRequired) demands it
    /// for an export.
    Allowed,
    /// FORCEDTLS: nothing is told or served without TLS.
    Required,
}

/// What the driver has to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HandshakeEvent {
    /// Nothing: there is more input needed, or more input is to be handed in.
    Continue,
    /// Send what is queued, then start TLS as its server; no byte of the input may be left over.
    StartTls,
    /// Ask the owner for a list, and answer with [`Handshake::listed`].
    List,
    /// Ask the owner for this export, and answer with [`Handshake::opened`].
    Open(String, Purpose),
    /// The client has chosen; the transmission phase begins with the next byte.
    Begin(Terms),
    /// The client is done without having chosen an export.
    Aborted,
}

/// A breach of the rules, or a wish that cannot be refused but by ending the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub(crate) &'static str);

/// What was done with some input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// So many bytes of the input are done with; 0 where more are needed.
    pub(crate) bytes: usize,
    pub(crate) event: HandshakeEvent,
}

/// A handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    policy: TlsPolicy,
    state: State,
    fixed: bool,
    no_zeroes: bool,
    encrypted: bool,
    options: u32,
    agreed: Agreed,
}

/// What `NBD_OPT_STARTTLS` makes void.
#[derive(Debug, Default)]
struct Agreed {
    mode: ReplyMode,
    /// The export for which `base:allocation` was selected last.
    allocation_of: Option<String>,
}

#[derive(Debug)]
enum State {
    ClientFlags,
    Options,
    /// The data of an option that is too big: so many bytes more.
    Skip(u32),
    /// The owner has been asked on behalf of this option.
    Asked(u32, ClientOption),
    Tls,
    Done,
}

impl Handshake {
    /// A handshake, its greeting written.
    pub(crate) fn new(policy: TlsPolicy, out: &mut ByteQueue) -> Self {
        out.append(&SERVER_MAGIC.to_be_bytes());
        out.append(&OPTION_MAGIC.to_be_bytes());
        out.append(&(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES).to_be_bytes());
        Self {
            policy,
            state: State::ClientFlags,
            fixed: false,
            no_zeroes: false,
            encrypted: false,
            options: 0,
            agreed: Agreed::default(),
        }
    }

    /// Takes the next message at the front of `input`.
    pub(crate) fn receive(&mut self, input: &[u8], out: &mut ByteQueue) -> Result<Taken, Violation> {
        let nothing = Ok(Taken { bytes: 0, event: HandshakeEvent::Continue });
        let taken = |bytes| Ok(Taken { bytes, event: HandshakeEvent::Continue });
        match self.state {
            State::ClientFlags => {
                let Some(flags) = Reader(input).u32() else { return nothing };
                self.client_flags(flags)?;
                taken(4)
            }
            State::Skip(left) => {
                let skipped = u32::try_from(input.len()).unwrap_or(u32::MAX).min(left);
                self.state = match left.saturating_sub(skipped) {
                    0 => State::Options,
                    left => State::Skip(left),
                };
                taken(usize::try_from(skipped).unwrap_or(usize::MAX))
            }
            State::Options => self.option(input, out),
            // proto.md: "The client MUST NOT send any option until it has received a final reply".
            State::Asked(..) | State::Tls | State::Done => nothing,
        }
    }

    /// TLS is up. Whatever was agreed on before is void (proto.md, `NBD_OPT_STARTTLS`).
    pub(crate) fn tls_started(&mut self) {
        self.agreed = Agreed::default();
        self.encrypted = true;
        self.state = State::Options;
    }

    /// The owner's answer to [`HandshakeEvent::List`].
    pub(crate) fn listed(&mut self, exports: &[Listed], out: &mut ByteQueue) {
        let State::Asked(kind, _) = std::mem::replace(&mut self.state, State::Options) else { return };
        for export in exports.iter().filter(|export| export.name.len() <= MAX_STRING_BYTES).take(MAX_LISTED) {
            reply::server(kind, &export.name, &export.description, out);
        }
        if exports.len() > MAX_LISTED {
            return reply::error(
                kind,
                replies::ERR_TOO_BIG,
                "there are more exports than fit in a list",
                out,
            );
        }
        reply::ack(kind, out);
    }

    /// The owner's answer to [`HandshakeEvent::Open`].
    ///
    /// # Errors
    /// Where the option has no way to say no.
    pub(crate) fn opened(
        &mut self,
        answer: Result<&Shape, &Refusal>,
        out: &mut ByteQueue,
    ) -> Result<HandshakeEvent, Violation> {
        let State::Asked(kind, option) = std::mem::replace(&mut self.state, State::Options) else {
            return Ok(HandshakeEvent::Continue);
        };
        match (option, answer) {
            (ClientOption::ExportName(_), Err(_)) => Err(Violation("an export that it cannot have")),
            (_, Err(refusal)) => {
                self.refuse(kind, refusal, out);
                Ok(HandshakeEvent::Continue)
            }
            (ClientOption::ExportName(name), Ok(shape)) => {
                out.append(&shape.size_bytes.to_be_bytes());
                out.append(&shape.flags(self.agreed.mode).to_be_bytes());
                if !self.no_zeroes {
                    out.append(&[0; 124]);
                }
                Ok(self.begin(&name))
            }
            (ClientOption::Info(question), Ok(shape)) => {
                self.describe(kind, &question, shape, out);
                Ok(HandshakeEvent::Continue)
            }
            (ClientOption::Go(question), Ok(shape)) => {
                self.describe(kind, &question, shape, out);
                Ok(self.begin(&question.name))
            }
            (ClientOption::ListMetaContext(question), Ok(_)) => {
                if question.is_empty || question.allocation || question.all_of_base {
                    context(kind, 0, out);
                }
                reply::ack(kind, out);
                Ok(HandshakeEvent::Continue)
            }
            (ClientOption::SetMetaContext(question), Ok(_)) => {
                if question.allocation {
                    context(kind, Terms::ALLOCATION_ID, out);
                    self.agreed.allocation_of = Some(question.name);
                }
                reply::ack(kind, out);
                Ok(HandshakeEvent::Continue)
            }
            // No other option asks for an export.
            _ => Ok(HandshakeEvent::Continue),
        }
    }

    fn client_flags(&mut self, flags: u32) -> Result<(), Violation> {
        let has = |flag: u16| flags & u32::from(flag) != 0;
        self.fixed = has(handshake_flags::FIXED_NEWSTYLE);
        self.no_zeroes = has(handshake_flags::NO_ZEROES);
        let known = u32::from(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES);
        // proto.md, "Client flags": "the server MUST drop the TCP connection if the client sets an unknown flag".
        if flags & !known != 0 {
            return Err(Violation("unknown client flags"));
        }
        // proto.md, "Server-side requirements": without fixed newstyle there is no TLS.
        if !self.fixed && self.policy == TlsPolicy::Required {
            return Err(Violation("no fixed newstyle, and so no TLS"));
        }
        self.state = State::Options;
        Ok(())
    }

    fn option(&mut self, input: &[u8], out: &mut ByteQueue) -> Result<Taken, Violation> {
        let nothing = Ok(Taken { bytes: 0, event: HandshakeEvent::Continue });
        let mut reader = Reader(input);
        let Some(magic) = reader.u64() else { return nothing };
        if magic != OPTION_MAGIC {
            return Err(Violation("an option without its magic number"));
        }
        let (Some(kind), Some(length)) = (reader.u32(), reader.u32()) else { return nothing };
        if length > MAX_OPTION_BYTES {
            self.too_big(kind, length, out)?;
            return Ok(Taken { bytes: 16, event: HandshakeEvent::Continue });
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(data) = reader.take(length) else { return nothing };
        self.count_option()?;
        let event = self.act(kind, data, out)?;
        Ok(Taken { bytes: length.saturating_add(16), event })
    }

    fn count_option(&mut self) -> Result<(), Violation> {
        self.options = self.options.saturating_add(1);
        if self.options > MAX_OPTIONS { Err(Violation("too many options")) } else { Ok(()) }
    }

    fn too_big(&mut self, kind: u32, length: u32, out: &mut ByteQueue) -> Result<(), Violation> {
        self.count_option()?;
        // The one option that cannot be refused; and what would keep us reading for long.
        if kind == kinds::EXPORT_NAME || length > MAX_SKIPPED_OPTION_BYTES {
            return Err(Violation("an option that is too long"));
        }
        self.state = State::Skip(length);
        reply::error(kind, replies::ERR_TOO_BIG, "the option's data is too long", out);
        Ok(())
    }

    fn act(&mut self, kind: u32, data: &[u8], out: &mut ByteQueue) -> Result<HandshakeEvent, Violation> {
        let tls_missing = self.policy == TlsPolicy::Required && !self.encrypted;
        if tls_missing && !matches!(kind, kinds::STARTTLS | kinds::ABORT) {
            // proto.md, "FORCEDTLS mode": unknown options included; EXPORT_NAME cannot be refused.
            if kind == kinds::EXPORT_NAME {
                return Err(Violation("an export asked for without TLS"));
            }
            reply::error(kind, replies::ERR_TLS_REQD, "this server speaks TLS only: start it first", out);
            return Ok(HandshakeEvent::Continue);
        }
        match ClientOption::parse(kind, data) {
            Ok(option) => self.carry_out(kind, option, out),
            Err(_) if kind == kinds::EXPORT_NAME => Err(Violation("an illegal export name")),
            Err(error) => {
                if kind == kinds::SET_META_CONTEXT {
                    // "Replaces all previously-set metadata contexts (including when this command fails)".
                    self.agreed.allocation_of = None;
                }
                let (reply_kind, message) = match error {
                    OptionError::Unknown => (replies::ERR_UNSUP, "this server does not know the option"),
                    OptionError::Invalid(message) => (replies::ERR_INVALID, message),
                };
                reply::error(kind, reply_kind, message, out);
                Ok(HandshakeEvent::Continue)
            }
        }
    }

    fn carry_out(
        &mut self,
        kind: u32,
        option: ClientOption,
        out: &mut ByteQueue,
    ) -> Result<HandshakeEvent, Violation> {
        let looks = !matches!(option, ClientOption::Go(_) | ClientOption::ExportName(_));
        let name = match &option {
            ClientOption::Abort => {
                reply::ack(kind, out);
                self.state = State::Done;
                return Ok(HandshakeEvent::Aborted);
            }
            ClientOption::StartTls => return Ok(self.start_tls(kind, out)),
            ClientOption::StructuredReply => {
                self.structured_reply(kind, out);
                return Ok(HandshakeEvent::Continue);
            }
            ClientOption::ExtendedHeaders => {
                self.agreed.mode = ReplyMode::Extended;
                reply::ack(kind, out);
                return Ok(HandshakeEvent::Continue);
            }
            ClientOption::List => {
                self.state = State::Asked(kind, option);
                return Ok(HandshakeEvent::List);
            }
            // extension-ext-header, `NBD_OPT_EXPORT_NAME`: not after extended headers.
            ClientOption::ExportName(_) if self.agreed.mode == ReplyMode::Extended => {
                return Err(Violation("NBD_OPT_EXPORT_NAME with extended headers"));
            }
            ClientOption::ListMetaContext(_) | ClientOption::SetMetaContext(_)
                if self.agreed.mode == ReplyMode::Simple =>
            {
                self.agreed.allocation_of = None;
                reply::error(kind, replies::ERR_INVALID, "negotiate structured replies first", out);
                return Ok(HandshakeEvent::Continue);
            }
            ClientOption::ExportName(name)
            | ClientOption::Info(ExportQuestion { name, .. })
            | ClientOption::Go(ExportQuestion { name, .. })
            | ClientOption::ListMetaContext(ContextQuestion { name, .. }) => name.clone(),
            ClientOption::SetMetaContext(ContextQuestion { name, .. }) => {
                self.agreed.allocation_of = None;
                name.clone()
            }
        };
        self.state = State::Asked(kind, option);
        Ok(HandshakeEvent::Open(name, if looks { Purpose::Look } else { Purpose::Use }))
    }

    fn start_tls(&mut self, kind: u32, out: &mut ByteQueue) -> HandshakeEvent {
        let refusal = if self.encrypted {
            Some((replies::ERR_INVALID, "TLS is running already"))
        } else if self.policy == TlsPolicy::Off || !self.fixed {
            Some((replies::ERR_POLICY, "this server has no TLS"))
        } else {
            None
        };
        if let Some((reply_kind, message)) = refusal {
            reply::error(kind, reply_kind, message, out);
            return HandshakeEvent::Continue;
        }
        reply::ack(kind, out);
        self.state = State::Tls;
        HandshakeEvent::StartTls
    }

    fn structured_reply(&mut self, kind: u32, out: &mut ByteQueue) {
        // extension-ext-header: extended headers take precedence, and there is no way back.
        if self.agreed.mode == ReplyMode::Extended {
            let message = "extended headers are negotiated already";
            return reply::error(kind, replies::ERR_EXT_HEADER_REQD, message, out);
        }
        self.agreed.mode = ReplyMode::Structured;
        reply::ack(kind, out);
    }

    fn refuse(&self, kind: u32, refusal: &Refusal, out: &mut ByteQueue) {
        let (reply_kind, message) = match refusal {
            Refusal::Unknown(message) => (replies::ERR_UNKNOWN, message.as_str()),
            // "The server MUST NOT send `NBD_REP_ERR_TLS_REQD` in reply to any option if TLS has already been negotiated",
            // and, in NOTLS mode, never.
            Refusal::TlsRequired if self.policy == TlsPolicy::Allowed && !self.encrypted => {
                (replies::ERR_TLS_REQD, "this export is served over TLS only: start it first")
            }
            Refusal::TlsRequired => (replies::ERR_POLICY, "this export is not served on this connection"),
            Refusal::NotAllowed(message) | Refusal::Unavailable(message) => {
                (replies::ERR_POLICY, message.as_str())
            }
            Refusal::ShuttingDown => (replies::ERR_SHUTDOWN, "the server is shutting down"),
        };
        reply::error(kind, reply_kind, message, out);
    }

    fn describe(&self, kind: u32, question: &ExportQuestion, shape: &Shape, out: &mut ByteQueue) {
        let (size, flags) = (shape.size_bytes.to_be_bytes(), shape.flags(self.agreed.mode).to_be_bytes());
        reply::info(kind, info::EXPORT, &[&size, &flags], out);
        if question.wants.name {
            reply::info(kind, info::NAME, &[question.name.as_bytes()], out);
        }
        if question.wants.description && !shape.description.is_empty() {
            reply::info(kind, info::DESCRIPTION, &[reply::bounded(&shape.description).as_bytes()], out);
        }
        if question.wants.block_size {
            let sizes = [shape.minimum_block, shape.preferred_block, shape.maximum_payload];
            let [minimum, preferred, maximum] = sizes.map(u32::to_be_bytes);
            reply::info(kind, info::BLOCK_SIZE, &[&minimum, &preferred, &maximum], out);
        }
        reply::ack(kind, out);
    }

    fn begin(&mut self, name: &str) -> HandshakeEvent {
        self.state = State::Done;
        let allocation = self.agreed.allocation_of.as_deref() == Some(name);
        HandshakeEvent::Begin(Terms { mode: self.agreed.mode, allocation })
    }
}

fn context(kind: u32, id: u32, out: &mut ByteQueue) {
    reply::write(kind, replies::META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()], out);
}
