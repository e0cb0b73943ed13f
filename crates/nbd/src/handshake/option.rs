//! What a client's option asks for (proto.md, "Option types").
use crate::limits::MAX_STRING_BYTES;
use crate::wire::{Reader, info, option};

/// An option, read and found legal as far as it can be without knowing the state of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ClientOption {
    ExportName(String),
    Abort,
    List,
    StartTls,
    Info(ExportQuestion),
    Go(ExportQuestion),
    StructuredReply,
    ExtendedHeaders,
    ListMetaContext(ContextQuestion),
    SetMetaContext(ContextQuestion),
}

/// `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExportQuestion {
    pub(super) name: String,
    pub(super) wants: Wants,
}

/// Which information the client asks for; what we do not know is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wants {
    pub(super) name: bool,
    pub(super) description: bool,
    pub(super) block_size: bool,
}

/// `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContextQuestion {
    pub(super) name: String,
    /// No query at all.
    pub(super) is_empty: bool,
    /// One of the queries is `base:allocation`.
    pub(super) allocation: bool,
    /// One of the queries is `base:`, the wildcard of a list.
    pub(super) all_of_base: bool,
}

/// Why an option cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionError {
    /// `NBD_REP_ERR_UNSUP`.
    Unknown,
    /// `NBD_REP_ERR_INVALID`.
    Invalid(&'static str),
}

impl ClientOption {
    pub(super) fn parse(kind: u32, data: &[u8]) -> Result<Self, OptionError> {
        let bare = |this: Self| {
            if data.is_empty() { Ok(this) } else { Err(OptionError::Invalid("this option takes no data")) }
        };
        match kind {
            option::EXPORT_NAME => name(data).map(Self::ExportName),
            // "A server SHOULD ignore any data sent by the client."
            option::ABORT => Ok(Self::Abort),
            option::LIST => bare(Self::List),
            option::STARTTLS => bare(Self::StartTls),
            option::INFO => export_question(data).map(Self::Info),
            option::GO => export_question(data).map(Self::Go),
            option::STRUCTURED_REPLY => bare(Self::StructuredReply),
            option::EXTENDED_HEADERS => bare(Self::ExtendedHeaders),
            option::LIST_META_CONTEXT => context_question(data).map(Self::ListMetaContext),
            option::SET_META_CONTEXT => context_question(data).map(Self::SetMetaContext),
            _ => Err(OptionError::Unknown),
        }
    }
}

/// proto.md, "String fields": UTF-8 without NUL, at most 4096 bytes.
fn name(bytes: &[u8]) -> Result<String, OptionError> {
    let text = std::str::from_utf8(bytes).ok();
    text.filter(|text| text.len() <= MAX_STRING_BYTES && !text.contains('\0'))
        .map(str::to_owned)
        .ok_or(OptionError::Invalid("a name is UTF-8 without NUL, at most 4096 bytes"))
}

fn export_question(data: &[u8]) -> Result<ExportQuestion, OptionError> {
    const CUT: OptionError = OptionError::Invalid("the lengths in the option's data contradict its own");
    let mut reader = Reader(data);
    let name = name(reader.string(MAX_STRING_BYTES).ok_or(CUT)?)?;
    let mut wants = Wants::default();
    for _ in 0..reader.u16().ok_or(CUT)? {
        match reader.u16().ok_or(CUT)? {
            info::NAME => wants.name = true,
            info::DESCRIPTION => wants.description = true,
            info::BLOCK_SIZE => wants.block_size = true,
            // "The server MUST ignore any information requests it does not understand."
            _ => {}
        }
    }
    if reader.is_empty() { Ok(ExportQuestion { name, wants }) } else { Err(CUT) }
}

fn context_question(data: &[u8]) -> Result<ContextQuestion, OptionError> {
    const CUT: OptionError = OptionError::Invalid("the lengths in the option's data contradict its own");
    let mut reader = Reader(data);
    let name = name(reader.string(MAX_STRING_BYTES).ok_or(CUT)?)?;
    let count = reader.u32().ok_or(CUT)?;
    let mut question = ContextQuestion { name, is_empty: count == 0, allocation: false, all_of_base: false };
    // Every query takes four bytes at least, so that a lie about their number ends at the end of the data.
    for _ in 0..count {
        // "The server MUST ignore query strings belonging to an unknown namespace."
        match reader.string(MAX_STRING_BYTES).ok_or(CUT)? {
            b"base:allocation" => question.allocation = true,
            b"base:" => question.all_of_base = true,
            _ => {}
        }
    }
    if reader.is_empty() { Ok(question) } else { Err(CUT) }
}
