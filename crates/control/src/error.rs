//! Why something was not done: a word for programs, a sentence for people, and what to do about it.
use std::error::Error;
use std::fmt;
use std::io;

use diskimage::ops::OpError;
use farm::catalogue::{CatalogueError, DatabaseError};
use farm::model::BadValue;
use farm::rules::Refusal;
use farm::rules::permission::Denied;
use serde::Serialize;

/// Why something was not done. Nothing of it was then, unless the message says otherwise.
#[derive(Debug)]
pub struct ControlError {
    /// What kind of failure it is, for programs.
    pub code: Code,
    /// What failed and why, with the object and who is hit.
    pub message: String,
    /// What to do about it, where the message does not say.
    pub hint: Option<String>,
    /// Where a value was bad: which.
    pub field: Option<String>,
}

/// What kind of failure it is: a word that stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// There is no such object.
    NotFound,
    /// Another object has what only one may have: a name, an address.
    Conflict,
    /// Others use it.
    InUse,
    /// A rule of the farm is against it.
    Refused,
    /// The caller may not.
    Denied,
    /// The caller was not let in.
    Unauthenticated,
    /// Too many tries; later.
    Throttled,
    /// A value breaks its rule.
    BadValue,
    /// Somebody changed the object since the caller looked at it.
    Stale,
    /// The lease under which it was done has ended or was broken.
    LeaseLost,
    /// The idempotency key belonged to another request.
    KeyReused,
    /// There is no room on a disk.
    NoSpace,
    /// The database cannot be reached, or not be written to.
    Unavailable,
    /// A store cannot be reached from this server.
    StoreUnreachable,
    /// A version's file is not there, or not what it was.
    FileChanged,
    /// A file is damaged, or is no image.
    FileDamaged,
    /// A file cannot be read or written.
    FileFailed,
    /// It was asked to stop.
    Cancelled,
    /// This cannot be done here.
    Unsupported,
    /// Our own mistake, or a damaged database.
    Internal,
}

impl Code {
    /// The word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::InUse => "in-use",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Unauthenticated => "unauthenticated",
            Self::Throttled => "throttled",
            Self::BadValue => "bad-value",
            Self::Stale => "stale",
            Self::LeaseLost => "lease-lost",
            Self::KeyReused => "key-reused",
            Self::NoSpace => "no-space",
            Self::Unavailable => "unavailable",
            Self::StoreUnreachable => "store-unreachable",
            Self::FileChanged => "file-changed",
            Self::FileDamaged => "file-damaged",
            Self::FileFailed => "file-failed",
            Self::Cancelled => "cancelled",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl ControlError {
    /// Without a hint.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, field: None }
    }

    /// Of a value of `field`.
    #[must_use]
    pub fn bad_value(field: &str, why: impl fmt::Display) -> Self {
        Self { field: Some(field.to_owned()), ..Self::new(Code::BadValue, format!("{field}: {why}")) }
    }

    /// The same, and what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same, said of an object: `vDisk "win11": ...`.
    #[must_use]
    pub fn about(self, object: impl fmt::Display) -> Self {
        Self { message: format!("{object}: {}", self.message), ..self }
    }

    /// What happened to a file: `what` is what was to be done with it.
    #[must_use]
    pub fn file(path: &std::path::Path, what: &str, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::NoSpace,
            _ => Code::FileFailed,
        };
        Self::new(code, format!("file {path:?} cannot be {what}: {error}"))
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.iter().try_for_each(|hint| write!(f, " ({hint})"))
    }
}

impl Error for ControlError {}

impl From<CatalogueError> for ControlError {
    fn from(error: CatalogueError) -> Self {
        let code = match error {
            CatalogueError::Refused(refusal) => return refusal.into(),
            CatalogueError::BadValue(bad) => return bad.into(),
            CatalogueError::Database(database) => return database.into(),
            CatalogueError::NotFound { .. } => Code::NotFound,
            CatalogueError::Outdated { .. } => Code::Stale,
            CatalogueError::Taken { .. } => Code::Conflict,
            CatalogueError::InUse { .. } => Code::InUse,
            CatalogueError::LeaseLost(_) => Code::LeaseLost,
            CatalogueError::KeyReused => Code::KeyReused,
            CatalogueError::DanglingReference { .. }
            | CatalogueError::BadFilter(_)
            | CatalogueError::BadOrder { .. }
            | CatalogueError::BadCursor
            | CatalogueError::BadTable(_) => Code::BadValue,
            CatalogueError::Rehearsed => Code::Internal,
        };
        let field = match &error {
            CatalogueError::DanglingReference { field, .. } => Some((*field).to_owned()),
            CatalogueError::Taken { what, .. } => Some((*what).to_owned()),
            CatalogueError::BadFilter(_) => Some("filter".to_owned()),
            CatalogueError::BadOrder { .. } => Some("order".to_owned()),
            CatalogueError::BadCursor => Some("after".to_owned()),
            _ => None,
        };
        Self { field, ..Self::new(code, chain(&error)) }
    }
}

impl From<DatabaseError> for ControlError {
    fn from(error: DatabaseError) -> Self {
        let code = match error {
            DatabaseError::Unavailable { .. }
            | DatabaseError::Busy { .. }
            | DatabaseError::ReadOnly { .. }
            | DatabaseError::OutcomeUnknown { .. } => Code::Unavailable,
            DatabaseError::Full { .. } => Code::NoSpace,
            DatabaseError::Unsupported { .. } => Code::Unsupported,
            DatabaseError::Newer { .. }
            | DatabaseError::NotOurs { .. }
            | DatabaseError::Damaged { .. }
            | DatabaseError::Other { .. } => Code::Internal,
        };
        Self::new(code, chain(&error))
    }
}

impl From<Refusal> for ControlError {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::NoSuchVersion(_) => Code::NotFound,
            Refusal::InUse(_) => Code::InUse,
            _ => Code::Refused,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<Denied> for ControlError {
    fn from(denied: Denied) -> Self {
        Self::new(Code::Denied, denied.to_string())
    }
}

impl From<BadValue> for ControlError {
    fn from(bad: BadValue) -> Self {
        Self::new(Code::BadValue, bad.to_string())
    }
}

impl From<diskimage::OpenError> for ControlError {
    fn from(error: diskimage::OpenError) -> Self {
        let code = match &error.refusal {
            diskimage::Refusal::Access(source) if source.kind() == io::ErrorKind::NotFound => {
                Code::FileChanged
            }
            diskimage::Refusal::Access(_) | diskimage::Refusal::Storage(_) => Code::FileFailed,
            _ => Code::FileDamaged,
        };
        Self::new(code, chain(&error))
    }
}

impl From<diskimage::Cancelled> for ControlError {
    fn from(cancelled: diskimage::Cancelled) -> Self {
        Self::new(Code::Cancelled, cancelled.to_string())
    }
}

impl From<OpError> for ControlError {
    fn from(error: OpError) -> Self {
        if is_full(&error) {
            return Self::new(Code::NoSpace, chain(&error)).hint("make room in the store, and try again");
        }
        let code = match error {
            OpError::Open(error) => return error.into(),
            OpError::Cancelled(_) => Code::Cancelled,
            OpError::Exists { .. } | OpError::Busy { .. } | OpError::IsSource { .. } => Code::Conflict,
            OpError::Unfit { .. } => Code::Refused,
            OpError::Source { .. }
            | OpError::SourceFile { .. }
            | OpError::Target { .. }
            | OpError::File { .. }
            | OpError::Edit { .. }
            | OpError::Differs { .. } => Code::FileFailed,
        };
        Self::new(code, chain(&error))
    }
}

/// Whether what stands at the end of an error is a full disk.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        next = error.source();
    }
    false
}

/// An error and what is behind it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let said = source.to_string();
        // Some say what is behind them themselves.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use farm::model::VersionNumber;

    #[test]
    fn error_of_the_catalogue_keeps_its_kind_and_its_words() {
        let error: ControlError = CatalogueError::from(Refusal::NoSuchVersion(VersionNumber::BASE)).into();
        assert_eq!((error.code, error.message.as_str()), (Code::NotFound, "the vDisk has no version 0"));
        let bad = UserBad::make().about("row 3").hint("look at the rule");
        assert_eq!(bad.code, Code::BadValue);
        assert!(bad.to_string().starts_with("row 3: name: "), "{bad}");
        assert!(bad.to_string().ends_with(" (look at the rule)"), "{bad}");
        assert_eq!(bad.field.as_deref(), Some("name"));
    }

    struct UserBad;

    impl UserBad {
        fn make() -> ControlError {
            ControlError::bad_value("name", farm::model::UserName::new("Ann").unwrap_err())
        }
    }

    #[test]
    fn full_disk_is_told_however_deep_it_stands() {
        let source = io::Error::from(io::ErrorKind::StorageFull);
        let error: ControlError =
            OpError::File { path: "golden.5.vhdx".into(), action: "made", source }.into();
        assert_eq!(error.code, Code::NoSpace);
        assert!(error.message.contains("golden.5.vhdx") && error.hint.is_some(), "{error}");
    }

    #[test]
    fn word_of_a_code_is_what_is_serialised() {
        for code in [Code::NotFound, Code::InUse, Code::BadValue, Code::StoreUnreachable, Code::KeyReused] {
            assert_eq!(serde_json::to_string(&code).unwrap(), format!("\"{}\"", code.word()));
        }
    }
}
