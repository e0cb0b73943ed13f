//! What was asked, with everything that a handler may want to know of it.
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode, header};
use control::people::{Identity, Origin};
use control::{Caller, Control};
use farm::catalogue::ListQuery;
use farm::filter::Filter;
use farm::model::{IdempotencyKey, Revision};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::Api;
use crate::problem::Problem;

/// How many objects a page has where nothing is said.
const USUAL_PAGE: usize = 100;

/// A request that was let in.
pub(crate) struct Asked<'a> {
    pub(crate) api: &'a Arc<Api>,
    /// Who asks; `None` where the operation is open to everybody.
    pub(crate) who: Option<WhoAsks>,
    pub(crate) origin: Origin,
    pub(crate) method: &'static str,
    /// The path as it was asked for.
    pub(crate) path: String,
    /// The values of the path's parameters, by their names.
    pub(crate) parameters: HashMap<String, String>,
    pub(crate) query: HashMap<String, String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// Who asks.
pub(crate) struct WhoAsks {
    pub(crate) caller: Caller,
    /// As whom they were let in, and by what; `None`: root on this server.
    pub(crate) identity: Option<(Identity, String)>,
}

/// Which state of an object a change is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Whatever it is.
    Any,
    /// This one.
    Revision(Revision),
}

impl Expected {
    /// As the catalogue wants it, of an object that is at `present`.
    pub(crate) fn or(self, present: Revision) -> Revision {
        match self {
            Self::Any => present,
            Self::Revision(revision) => revision,
        }
    }
}

impl Asked<'_> {
    pub(crate) fn control(&self) -> &Control {
        &self.api.control
    }

    /// Who asks, of an operation that is not open to everybody.
    pub(crate) fn caller(&self) -> Result<&Caller, Problem> {
        self.who.as_ref().map(|who| &who.caller).ok_or_else(unauthorized)
    }

    /// A parameter of the path.
    pub(crate) fn parameter(&self, name: &str) -> Result<&str, Problem> {
        let found = self.parameters.get(name).map(String::as_str);
        found.ok_or_else(|| Problem::bad_request(format!("the path lacks its {name}")))
    }

    /// A parameter behind the question mark.
    pub(crate) fn wanted<T: FromStr>(&self, name: &str, rule: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.query.get(name) else { return Ok(None) };
        let bad = || {
            Problem::new(StatusCode::BAD_REQUEST, "bad-value", format!("{name}={text:?}: {rule}")).field(name)
        };
        text.parse().map(Some).map_err(|_| bad())
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        Ok(self.wanted(name, "true or false")?.unwrap_or(false))
    }

    /// Which part of a list.
    pub(crate) fn list(&self) -> Result<ListQuery, Problem> {
        let filter = self.filter()?;
        let sort = self.query.get("sort").filter(|sort| !sort.is_empty());
        let (order, descending) = match sort.map(|sort| sort.strip_prefix('-').ok_or(sort)) {
            None => (None, false),
            Some(Ok(field)) => (Some(field.to_owned()), true),
            Some(Err(field)) => (Some(field.to_owned()), false),
        };
        let after = match self.query.get("cursor").filter(|cursor| !cursor.is_empty()) {
            None => None,
            Some(text) => Some(text.parse().map_err(|bad: farm::model::BadValue| {
                Problem::new(StatusCode::BAD_REQUEST, "bad-value", bad.to_string()).field("cursor")
            })?),
        };
        let limit = self.wanted("limit", "a number")?.unwrap_or(USUAL_PAGE);
        Ok(ListQuery { filter, order, descending, after, limit })
    }

    /// Which objects of a list.
    pub(crate) fn filter(&self) -> Result<Filter, Problem> {
        let text = self.query.get("filter").map(String::as_str).unwrap_or_default();
        text.parse().map_err(|bad: farm::filter::BadFilter| {
            Problem::new(StatusCode::BAD_REQUEST, "bad-value", bad.to_string()).field("filter")
        })
    }

    /// The body as JSON.
    pub(crate) fn value(&self) -> Result<Value, Problem> {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim).unwrap_or_default();
        let is_json = ["application/json", "application/merge-patch+json"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(kind));
        if !is_json {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "bad-request",
                "the body is to be JSON, with the header \"Content-Type: application/json\"",
            ));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Problem::bad_request(format!("the body is not JSON: {error}")))
    }

    /// The body as a type of the interface.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        read(self.value()?)
    }

    /// Which state of the object the request is meant for: `If-Match`, RFC 9110 §13.1.1.
    pub(crate) fn expected(&self) -> Result<Expected, Problem> {
        let Some(header) = self.headers.get(header::IF_MATCH) else {
            let message = "a change says which state of the object it is meant for: If-Match is missing";
            return Err(Problem::new(StatusCode::PRECONDITION_REQUIRED, "if-match-needed", message)
                .hint("send the object's ETag in If-Match, or * to change it whatever it is"));
        };
        let text = header.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Expected::Any);
        }
        let revision = tag(text).ok_or_else(|| {
            Problem::bad_request(format!("If-Match is {text:?}, and no ETag of ours: one such as \"7\""))
                .field("If-Match")
        })?;
        Ok(Expected::Revision(revision))
    }

    /// Whether the asker has this state already: `If-None-Match`, RFC 9110 §13.1.2.
    pub(crate) fn has(&self, revision: Revision) -> bool {
        let Some(header) = self.headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok())
        else {
            return false;
        };
        // The comparison is the weak one: W/ does not matter.
        header
            .split(',')
            .map(str::trim)
            .any(|text| text == "*" || tag(text.strip_prefix("W/").unwrap_or(text)) == Some(revision))
    }

    /// What the request is named with, so that its repetition does nothing twice; and a digest of what it asks.
    pub(crate) fn once(&self) -> Result<Option<(IdempotencyKey, [u8; 32])>, Problem> {
        let Some(header) = self.headers.get("idempotency-key") else { return Ok(None) };
        let key = IdempotencyKey::new(header.to_str().unwrap_or_default()).map_err(|bad| {
            Problem::new(StatusCode::BAD_REQUEST, "bad-value", bad.to_string()).field("Idempotency-Key")
        })?;
        let mut digest = Sha256::new();
        for part in [self.method.as_bytes(), self.path.as_bytes(), &self.body] {
            digest.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            digest.update(part);
        }
        Ok(Some((key, digest.finalize().into())))
    }
}

fn tag(text: &str) -> Option<Revision> {
    let digits = text.strip_prefix('"')?.strip_suffix('"')?;
    let number = digits.parse().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))?;
    Revision::new(number).ok()
}

pub(crate) fn unauthorized() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        control::Code::Unauthenticated.word(),
        "nobody is known by this request, or nobody any more",
    )
    .hint("log in (POST /v1/login), or send an API token: \"Authorization: Bearer hwt_...\"")
}

/// Reads a type of the interface; what is wrong is told with its place.
pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    // serde takes a list of the properties' values as well.
    if !value.is_object() {
        let why = "the body is to be an object: {...}";
        return Err(Problem::new(StatusCode::BAD_REQUEST, control::Code::BadValue.word(), why));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let problem = Problem::new(
            StatusCode::BAD_REQUEST,
            control::Code::BadValue.word(),
            if path == "." { error.inner().to_string() } else { format!("{path}: {}", error.inner()) },
        );
        if path == "." { problem } else { problem.field(path) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etag_is_a_revision_in_quotation_marks_and_nothing_else() {
        assert_eq!(tag("\"7\"").map(Revision::get), Some(7));
        for text in ["7", "\"\"", "\"+7\"", "\"0\"", "\"7", "\"x\"", "\"99999999999999999999\""] {
            assert_eq!(tag(text), None, "{text}");
        }
    }

    #[test]
    fn bad_value_is_told_with_its_place() {
        #[derive(Debug, serde::Deserialize)]
        struct Outer {
            #[serde(rename = "inner")]
            _inner: Vec<farm::model::Name>,
        }
        let problem = read::<Outer>(serde_json::json!({"inner": ["a", "b/c"]})).unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("inner[1]"));
        assert!(problem.message.contains("b/c") && problem.message.contains("without"), "{problem:?}");
    }
}
