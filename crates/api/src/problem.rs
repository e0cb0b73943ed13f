//! Why a request was not carried out, as status and body.
use std::time::Duration;

use axum::http::StatusCode;
use control::people::LogInError;
use control::{Code, ControlError};
use farm::csv::BadCell;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorAnswer {
    /// What kind of failure it is: a word that stays the same.
    pub code: String,
    /// What failed and why.
    pub message: String,
    /// What to do about it, where the message does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The request, as the server's log and the audit name it.
    pub request_id: String,
    /// Where a value was bad: its place in the body, or the parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong with a table, place by place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<RowProblem>,
}

/// What is wrong with a place in a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RowProblem {
    /// The line, the first being 1.
    pub line: usize,
    /// The column; none: the whole line.
    pub column: Option<String>,
    /// What is wrong.
    pub why: String,
}

/// Why a request was not carried out.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<Box<str>>,
    pub(crate) field: Option<Box<str>>,
    pub(crate) rows: Vec<RowProblem>,
    pub(crate) retry_after: Option<Duration>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code, message, hint: None, field: None, rows: Vec::new(), retry_after: None }
    }

    /// The request itself makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, Code::NotFound.word(), message)
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into().into()), ..self }
    }

    pub(crate) fn field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into().into()), ..self }
    }

    pub(crate) fn table(errors: &[BadCell]) -> Self {
        let row =
            |bad: &BadCell| RowProblem { line: bad.line, column: bad.column.clone(), why: bad.why.clone() };
        let message = format!("the table has {} error(s), and nothing of it was imported", errors.len());
        let rows = errors.iter().map(row).collect();
        Self { rows, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "bad-table", message) }
    }

    /// The body for whoever asked.
    pub(crate) fn answer(self, request_id: &str) -> ErrorAnswer {
        let Self { code, message, hint, field, rows, .. } = self;
        let (code, request_id) = (code.to_owned(), request_id.to_owned());
        let (hint, field) = (hint.map(String::from), field.map(String::from));
        ErrorAnswer { code, message, hint, request_id, field, rows }
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let ControlError { code, message, hint, field } = error;
        let (hint, field) = (hint.map(String::into), field.map(String::into));
        Self { hint, field, ..Self::new(status(code), code.word(), message) }
    }
}

impl From<farm::catalogue::CatalogueError> for Problem {
    fn from(error: farm::catalogue::CatalogueError) -> Self {
        ControlError::from(error).into()
    }
}

impl From<LogInError> for Problem {
    fn from(error: LogInError) -> Self {
        let retry_after = match &error {
            LogInError::Wait(wait) => Some(*wait),
            _ => None,
        };
        Self { retry_after, ..ControlError::from(error).into() }
    }
}

fn status(code: Code) -> StatusCode {
    match code {
        Code::BadValue => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::Denied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::Conflict
        | Code::InUse
        | Code::Refused
        | Code::LeaseLost
        | Code::FileChanged
        | Code::FileDamaged
        // The server works; what is wanted cannot be had from here.
        | Code::StoreUnreachable
        | Code::Unsupported
        | Code::Cancelled => StatusCode::CONFLICT,
        Code::Stale => StatusCode::PRECONDITION_FAILED,
        Code::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
        Code::Throttled => StatusCode::TOO_MANY_REQUESTS,
        Code::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::FileFailed | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
