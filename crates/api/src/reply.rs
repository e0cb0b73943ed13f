//! What a handler answers.
use axum::http::StatusCode;
use farm::model::Revision;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::problem::Problem;

/// What a handler answers.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    /// The revision of the object in the body, as its ETag.
    pub(crate) revision: Option<Revision>,
    /// Where the object that was made is to be found.
    pub(crate) location: Option<String>,
    pub(crate) body: Body,
}

/// The body of a reply.
#[derive(Debug)]
pub(crate) enum Body {
    None,
    /// JSON, written already: lists are long.
    Json(String),
    /// Of this content type.
    Text(&'static str, String),
}

impl Reply {
    pub(crate) fn json(value: &impl Serialize) -> Result<Self, Problem> {
        let body = serde_json::to_string(value).map_err(|error| not_json(&error))?;
        Ok(Self { status: StatusCode::OK, revision: None, location: None, body: Body::Json(body) })
    }

    pub(crate) fn text(content_type: &'static str, text: String) -> Self {
        let body = Body::Text(content_type, text);
        Self { status: StatusCode::OK, revision: None, location: None, body }
    }

    pub(crate) fn nothing() -> Self {
        Self { status: StatusCode::NO_CONTENT, revision: None, location: None, body: Body::None }
    }

    pub(crate) fn revision(self, revision: Revision) -> Self {
        Self { revision: Some(revision), ..self }
    }

    pub(crate) fn made(self, location: String) -> Self {
        Self { status: StatusCode::CREATED, location: Some(location), ..self }
    }

    pub(crate) fn accepted(self, location: String) -> Self {
        Self { status: StatusCode::ACCEPTED, location: Some(location), ..self }
    }
}

/// A value as JSON. The types of the interface have text keys alone: nothing in them is beyond JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<Value, Problem> {
    serde_json::to_value(value).map_err(|error| not_json(&error))
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, control::Code::Internal.word(), error.to_string())
}

/// A reply to a creation, as it is kept for the repetition of its request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept {
    revision: Option<Revision>,
    location: Option<String>,
    body: Value,
}

impl Kept {
    pub(crate) fn of(reply: &Reply) -> Option<Self> {
        let Body::Json(body) = &reply.body else { return None };
        let body = serde_json::from_str(body).ok()?;
        Some(Self { revision: reply.revision, location: reply.location.clone(), body })
    }

    pub(crate) fn reply(self) -> Reply {
        let Self { revision, location, body } = self;
        Reply { status: StatusCode::CREATED, revision, location, body: Body::Json(body.to_string()) }
    }
}
