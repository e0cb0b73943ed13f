//! Operations: the rows of the table that both the router and the document are made of.
use axum::body::Body as HttpBody;
use axum::http::Response;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::asked::Asked;
use crate::problem::Problem;
use crate::reply::Reply;

/// What one method does to one path.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// With its parameters in braces.
    pub(crate) path: String,
    /// As programs that are generated from the document name it.
    pub(crate) id: String,
    /// In a line, for people.
    pub(crate) summary: String,
    /// What it belongs to.
    pub(crate) tag: &'static str,
    /// Behind the question mark.
    pub(crate) query: Vec<Parameter>,
    pub(crate) takes: Takes,
    pub(crate) gives: Gives,
    /// Whether it wants `If-Match`.
    pub(crate) if_match: bool,
    /// Whether it takes an `Idempotency-Key`.
    pub(crate) once: bool,
    /// Whether everybody may ask, without being let in.
    pub(crate) open: bool,
    pub(crate) handler: Handler,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Patch,
    Delete,
}

/// What does it.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// A function that waits for the database.
    Waits(fn(&Asked<'_>) -> Result<Reply, Problem>),
    /// A function whose answer goes on for as long as somebody listens.
    Goes(fn(&Asked<'_>) -> Result<Response<HttpBody>, Problem>),
}

/// A parameter behind the question mark.
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) says: &'static str,
    pub(crate) kind: ParameterKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    Text,
    Flag,
    /// A number between these.
    Number(u64, u64),
}

/// A schema that the document makes when it needs it.
pub(crate) type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// What an operation takes as its body.
pub(crate) enum Takes {
    Nothing,
    Json(MakeSchema),
    /// JSON of which any part may be left out: a merge patch.
    Patch(MakeSchema),
    /// Text of this content type, with this many bytes at most.
    Text(&'static str, usize),
}

/// What an operation answers when it succeeds.
pub(crate) enum Gives {
    Nothing,
    Json(u16, MakeSchema),
    Text(&'static str),
}

pub(crate) fn schema_of<T: JsonSchema>() -> MakeSchema {
    |generator| generator.subschema_for::<T>()
}

impl Operation {
    fn new(
        method: Method,
        path: impl Into<String>,
        id: impl Into<String>,
        tag: &'static str,
        summary: impl Into<String>,
        handler: Handler,
    ) -> Self {
        Self {
            method,
            path: path.into(),
            id: id.into(),
            summary: summary.into(),
            tag,
            query: Vec::new(),
            takes: Takes::Nothing,
            gives: Gives::Nothing,
            if_match: false,
            once: false,
            open: false,
            handler,
        }
    }

    pub(crate) fn get(
        path: impl Into<String>,
        id: impl Into<String>,
        tag: &'static str,
        summary: impl Into<String>,
        handler: fn(&Asked<'_>) -> Result<Reply, Problem>,
    ) -> Self {
        Self::new(Method::Get, path, id, tag, summary, Handler::Waits(handler))
    }

    pub(crate) fn post(
        path: impl Into<String>,
        id: impl Into<String>,
        tag: &'static str,
        summary: impl Into<String>,
        handler: fn(&Asked<'_>) -> Result<Reply, Problem>,
    ) -> Self {
        Self::new(Method::Post, path, id, tag, summary, Handler::Waits(handler))
    }

    pub(crate) fn patch(
        path: impl Into<String>,
        id: impl Into<String>,
        tag: &'static str,
        summary: impl Into<String>,
        handler: fn(&Asked<'_>) -> Result<Reply, Problem>,
    ) -> Self {
        Self::new(Method::Patch, path, id, tag, summary, Handler::Waits(handler)).if_match()
    }

    pub(crate) fn delete(
        path: impl Into<String>,
        id: impl Into<String>,
        tag: &'static str,
        summary: impl Into<String>,
        handler: fn(&Asked<'_>) -> Result<Reply, Problem>,
    ) -> Self {
        Self::new(Method::Delete, path, id, tag, summary, Handler::Waits(handler)).if_match()
    }

    /// A GET whose answer goes on.
    pub(crate) fn stream(
        path: impl Into<String>,
        id: impl Into<String>,
        summary: impl Into<String>,
        content_type: &'static str,
        handler: fn(&Asked<'_>) -> Result<Response<HttpBody>, Problem>,
    ) -> Self {
        Self::new(Method::Get, path, id, "events", summary, Handler::Goes(handler)).gives_text(content_type)
    }

    pub(crate) fn takes<T: JsonSchema>(self) -> Self {
        Self { takes: Takes::Json(schema_of::<T>()), ..self }
    }

    pub(crate) fn takes_patch<T: JsonSchema>(self) -> Self {
        Self { takes: Takes::Patch(schema_of::<T>()), ..self }
    }

    pub(crate) fn takes_text(self, content_type: &'static str, max_bytes: usize) -> Self {
        Self { takes: Takes::Text(content_type, max_bytes), ..self }
    }

    pub(crate) fn gives<T: JsonSchema>(self) -> Self {
        Self { gives: Gives::Json(200, schema_of::<T>()), ..self }
    }

    /// Makes an object.
    pub(crate) fn makes<T: JsonSchema>(self) -> Self {
        Self { gives: Gives::Json(201, schema_of::<T>()), ..self }
    }

    /// Begins a task.
    pub(crate) fn begins<T: JsonSchema>(self) -> Self {
        Self { gives: Gives::Json(202, schema_of::<T>()), ..self }
    }

    pub(crate) fn gives_text(self, content_type: &'static str) -> Self {
        Self { gives: Gives::Text(content_type), ..self }
    }

    pub(crate) fn query(mut self, name: &'static str, kind: ParameterKind, says: &'static str) -> Self {
        self.query.push(Parameter { name, says, kind });
        self
    }

    /// The parameters of every list.
    pub(crate) fn pages(self) -> Self {
        self.filtered()
            .query(
                "sort",
                ParameterKind::Text,
                "the field to sort by; with \"-\" before it, the largest first",
            )
            .query("cursor", ParameterKind::Text, "\"next\" of the page before")
            .query(
                "limit",
                ParameterKind::Number(1, 1000),
                "the most objects of the page; 100 where nothing is said",
            )
    }

    pub(crate) fn filtered(self) -> Self {
        self.query(
            "filter",
            ParameterKind::Text,
            "which objects, as in: kind = production and name ~ \"lab-*\"",
        )
    }

    pub(crate) fn if_match(self) -> Self {
        Self { if_match: true, ..self }
    }

    pub(crate) fn once(self) -> Self {
        Self { once: true, ..self }
    }

    pub(crate) fn open(self) -> Self {
        Self { open: true, ..self }
    }
}
