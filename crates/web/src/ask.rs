//! The REST API, asked in this process: what the pages show, and what their buttons do.
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt as _;

use api::ErrorAnswer;

/// The largest answer that a page is made of: a thousand devices with all that they have.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Why the API did not do what it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) answer: Box<ErrorAnswer>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let answer = ErrorAnswer {
            code: "console".to_owned(),
            message: message.into(),
            hint: None,
            request_id: String::new(),
            field: None,
            rows: Vec::new(),
        };
        Self { status, answer: Box::new(answer) }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }
}

/// Who asks: the secret of a session, and from where.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) api: Router,
    /// `None`: what is open to everybody.
    pub(crate) secret: Option<String>,
    pub(crate) peer: SocketAddr,
}

impl Ask {
    /// What stands at a path.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refusal> {
        let answer = self.send(Method::GET, path, None, None).await?;
        serde_json::from_value(answer).map_err(|error| {
            internal(&format!("what the API told at {path} is not what was expected: {error}"))
        })
    }

    /// Does something; `tag` is the revision of the object that it is meant for.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        tag: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Value, Refusal> {
        let response = self.forward(method, path, tag, body).await?;
        read(response).await
    }

    /// Does something with a body that is no JSON.
    pub(crate) async fn send_bytes(
        &self,
        path: &str,
        content_type: &'static str,
        body: impl Into<Body>,
    ) -> Result<Value, Refusal> {
        let request = self.request(Method::POST, path).header(header::CONTENT_TYPE, content_type);
        let request = request.body(body.into()).map_err(|error| internal(&error.to_string()))?;
        let Ok(response) = self.api.clone().oneshot(request).await;
        read(response).await
    }

    fn request(&self, method: Method, path: &str) -> axum::http::request::Builder {
        let request = Request::builder().method(method).uri(path).extension(ConnectInfo(self.peer));
        match &self.secret {
            Some(secret) => request.header(header::AUTHORIZATION, format!("Bearer {secret}")),
            None => request,
        }
    }

    /// A text that stands at a path.
    pub(crate) async fn text(&self, path: &str) -> Result<Vec<u8>, Refusal> {
        let response = self.forward(Method::GET, path, None, None).await?;
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), MAX_ANSWER_BYTES)
            .await
            .map_err(|error| internal(&format!("the API's answer cannot be read: {error}")))?;
        if status.is_success() {
            return Ok(bytes.to_vec());
        }
        let answer = serde_json::from_slice(&bytes)
            .map_err(|_| internal(&format!("the API failed with status {status}")))?;
        Err(Refusal { status, answer })
    }

    /// The answer as it comes: for what goes on, or is no JSON.
    pub(crate) async fn forward(
        &self,
        method: Method,
        path: &str,
        tag: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Response<Body>, Refusal> {
        let mut request = self.request(method, path);
        if let Some(tag) = tag {
            let tag = if tag == "*" { tag.to_owned() } else { format!("\"{tag}\"") };
            request = request.header(header::IF_MATCH, tag);
        }
        let body = match body {
            None => Body::empty(),
            Some(value) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(value.to_string())
            }
        };
        let request = request.body(body).map_err(|error| internal(&error.to_string()))?;
        let Ok(response) = self.api.clone().oneshot(request).await;
        Ok(response)
    }
}

/// What an answer says.
async fn read(response: Response<Body>) -> Result<Value, Refusal> {
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), MAX_ANSWER_BYTES)
        .await
        .map_err(|error| internal(&format!("the API's answer cannot be read: {error}")))?;
    if !status.is_success() {
        let answer = serde_json::from_slice(&bytes)
            .map_err(|_| internal(&format!("the API failed with status {status}")))?;
        return Err(Refusal { status, answer });
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&bytes).map_err(|_| internal("the API's answer is no JSON"))
}

fn internal(why: &str) -> Refusal {
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why)
}
