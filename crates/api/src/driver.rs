//! From HTTP to operations and back: who asks, how much they send, what the request is called, and what is answered.
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body as HttpBody;
use axum::extract::{ConnectInfo, Path, Query, Request};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::routing::{MethodFilter, on};
use control::people::Origin;
use control::{Caller, Code};
use tokio::sync::Semaphore;

use crate::Api;
use crate::asked::{Asked, WhoAsks, unauthorized};
use crate::operation::{Handler, Method, Operation, ParameterKind, Takes};
use crate::problem::Problem;
use crate::reply::{Body, Reply};
use crate::table::operations;

/// The largest JSON body: a personality, ten thousand references.
const MAX_JSON_BYTES: usize = 1 << 20;
/// How long a body may take to come.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// How many requests work at once; further ones wait for their turn.
const MAX_WORKING: usize = 64;
/// The longest name of a request that is taken over from whoever sends it.
const MAX_REQUEST_ID: usize = 64;

/// By which way requests come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// A socket that only root on this server can open, or whom root lets: who comes without a token is root.
    Local,
    /// The network: who comes without a token is nobody. Connections carry axum's `ConnectInfo<SocketAddr>`.
    Network,
}

/// What every request of a router has in common.
struct Driver {
    api: Arc<Api>,
    door: Door,
    working: Semaphore,
    /// Differs from one start to the next.
    start: u32,
    requests: AtomicU64,
}

/// The routes.
pub fn router(api: Arc<Api>, door: Door) -> Router {
    let mut start = [0; 4];
    // Without random bytes request ids repeat after a restart; the log tells them apart by time.
    let _ = getrandom::fill(&mut start);
    let driver = Arc::new(Driver {
        api,
        door,
        working: Semaphore::new(MAX_WORKING),
        start: u32::from_ne_bytes(start),
        requests: AtomicU64::new(0),
    });
    let mut router = Router::new();
    for operation in operations() {
        let (path, filter) = (operation.path.clone(), filter(operation.method));
        let (operation, driver) = (Arc::new(operation), Arc::clone(&driver));
        let handler = move |request: Request| {
            let (operation, driver) = (Arc::clone(&operation), Arc::clone(&driver));
            async move { driver.answer(operation, request).await }
        };
        router = router.route(&path, on(filter, handler));
    }
    let (lost, refused) = (Arc::clone(&driver), driver);
    router
        .fallback(move |request: Request| {
            let problem = Problem::not_found(format!("there is nothing at {}", request.uri().path()))
                .hint("GET /v1/openapi.json describes what there is");
            let response = refuse(problem, &lost.request_id(request.headers()));
            async move { response }
        })
        .method_not_allowed_fallback(move |request: Request| {
            let (method, path) = (request.method(), request.uri().path());
            let message = format!("{method} is not a thing that can be done to {path}");
            let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "bad-request", message);
            let response = refuse(problem, &refused.request_id(request.headers()));
            async move { response }
        })
}

const fn filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    }
}

impl Driver {
    async fn answer(self: Arc<Self>, operation: Arc<Operation>, request: Request) -> Response<HttpBody> {
        let id = self.request_id(request.headers());
        match Arc::clone(&self).attempt(operation, request, &id).await {
            Ok(response) => with_headers(response, &id),
            Err(problem) => refuse(problem, &id),
        }
    }

    async fn attempt(
        self: Arc<Self>,
        operation: Arc<Operation>,
        request: Request,
        id: &str,
    ) -> Result<Response<HttpBody>, Problem> {
        let (mut parts, body) = request.into_parts();
        let address = match (self.door, parts.extensions.get::<ConnectInfo<SocketAddr>>()) {
            (Door::Local, _) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            (Door::Network, Some(ConnectInfo(peer))) => peer.ip().to_canonical(),
            (Door::Network, None) => {
                return Err(internal("the listener does not tell where connections come from"));
            }
        };
        let query = query(&operation, &parts.uri)?;
        let parameters = parameters(&mut parts).await?;
        let most = match operation.takes {
            Takes::Text(_, most) => most,
            Takes::Nothing | Takes::Json(_) | Takes::Patch(_) => MAX_JSON_BYTES,
        };
        let body = read_body(body, most, &parts.headers).await?;
        let origin = Origin { address, request: Some(id.to_owned()) };
        let path = parts.uri.path().to_owned();
        let work = Work { operation, origin, path, parameters, query, headers: parts.headers, body };
        let turn = Arc::clone(&self);
        let turn = turn.working.acquire().await.map_err(|error| internal(&error.to_string()))?;
        let driver = Arc::clone(&self);
        let done = tokio::task::spawn_blocking(move || driver.work(work)).await;
        drop(turn);
        done.map_err(|error| internal(&error.to_string()))?
    }

    /// Lets the caller in, and does what was asked.
    fn work(&self, work: Work) -> Result<Response<HttpBody>, Problem> {
        let Work { operation, origin, path, parameters, query, headers, body } = work;
        let who = self.let_in(&headers, &origin)?;
        if who.is_none() && !operation.open {
            return Err(unauthorized());
        }
        let asked = Asked {
            api: &self.api,
            who,
            origin,
            method: operation.method.word(),
            path,
            parameters,
            query,
            headers,
            body,
        };
        match operation.handler {
            Handler::Goes(handler) => handler(&asked),
            Handler::Waits(handler) => {
                let reply = handler(&asked)?;
                let known = reply.revision.is_some_and(|revision| asked.has(revision));
                if operation.method == Method::Get && known {
                    return respond(Reply { body: Body::None, status: StatusCode::NOT_MODIFIED, ..reply });
                }
                respond(reply)
            }
        }
    }

    fn let_in(&self, headers: &HeaderMap, origin: &Origin) -> Result<Option<WhoAsks>, Problem> {
        let Some(header) = headers.get(header::AUTHORIZATION) else {
            return Ok((self.door == Door::Local).then(|| WhoAsks {
                caller: Caller::local_root(origin.request.clone(), self.api.control.now()),
                identity: None,
            }));
        };
        let shown = header.to_str().ok().and_then(|text| {
            let (scheme, secret) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
        });
        let shown = shown.ok_or_else(unauthorized)?;
        let identity = self.api.people.identify(&self.api.control, shown, origin)?;
        let identity = identity.ok_or_else(unauthorized)?;
        Ok(Some(WhoAsks { caller: identity.caller.clone(), identity: Some((identity, shown.to_owned())) }))
    }

    /// What the request is called: as whoever sends it says, or else by a number.
    fn request_id(&self, headers: &HeaderMap) -> String {
        let said = headers.get("x-request-id").and_then(|id| id.to_str().ok());
        let legal = |id: &&str| {
            (1..=MAX_REQUEST_ID).contains(&id.len())
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':'))
        };
        match said.filter(legal) {
            Some(id) => id.to_owned(),
            None => format!("{:08x}-{}", self.start, self.requests.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// A request that has come in.
struct Work {
    operation: Arc<Operation>,
    origin: Origin,
    path: String,
    parameters: HashMap<String, String>,
    query: HashMap<String, String>,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// The parameters behind the question mark: each once, and none that means nothing here.
fn query(operation: &Operation, uri: &axum::http::Uri) -> Result<HashMap<String, String>, Problem> {
    let bad = |error: String| Problem::bad_request(format!("what stands behind the question mark: {error}"));
    let Query(pairs) =
        Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|error| bad(error.to_string()))?;
    let mut query = HashMap::new();
    for (name, value) in pairs {
        let Some(known) = operation.query.iter().find(|known| known.name == name) else {
            let known: Vec<&str> = operation.query.iter().map(|known| known.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(bad(format!("{name:?} means nothing here; there are: {known}")).field(name));
        };
        // What the document says of it holds, whoever reads it later.
        if let ParameterKind::Number(least, most) = known.kind
            && !value.parse().is_ok_and(|number: u64| (least..=most).contains(&number))
        {
            let message = format!("{name}={value:?}: a number from {least} to {most}");
            return Err(Problem::new(StatusCode::BAD_REQUEST, "bad-value", message).field(name));
        }
        if query.insert(name.clone(), value).is_some() {
            return Err(bad(format!("{name:?} is there twice")).field(name));
        }
    }
    Ok(query)
}

async fn parameters(parts: &mut axum::http::request::Parts) -> Result<HashMap<String, String>, Problem> {
    use axum::extract::FromRequestParts as _;
    let Path(parameters) = Path::<HashMap<String, String>>::from_request_parts(parts, &())
        .await
        .map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok(parameters)
}

async fn read_body(body: HttpBody, most: usize, headers: &HeaderMap) -> Result<Vec<u8>, Problem> {
    let too_large = || {
        let message = format!("the body may have {most} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message)
    };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| usize::try_from(length).map_or(true, |length| length > most)) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_WITHIN, axum::body::to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "bad-request", "the body did not come")),
    }
}

fn internal(why: &str) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, Code::Internal.word(), why)
}

fn respond(reply: Reply) -> Result<Response<HttpBody>, Problem> {
    let Reply { status, revision, location, body } = reply;
    let mut response = Response::builder().status(status);
    if let Some(revision) = revision {
        response = response.header(header::ETAG, format!("\"{revision}\""));
    }
    if let Some(location) = location {
        response = response.header(header::LOCATION, location);
    }
    let (content_type, body) = match body {
        Body::None => (None, HttpBody::empty()),
        Body::Json(text) => (Some("application/json"), HttpBody::from(text)),
        Body::Text(content_type, text) => (Some(content_type), HttpBody::from(text)),
    };
    if let Some(content_type) = content_type {
        response = response.header(header::CONTENT_TYPE, content_type);
    }
    response.body(body).map_err(|error| internal(&error.to_string()))
}

fn refuse(problem: Problem, id: &str) -> Response<HttpBody> {
    if problem.status.is_server_error() {
        tracing::error!(request = id, code = problem.code, "request failed: {}", problem.message);
    } else {
        tracing::debug!(request = id, code = problem.code, "request refused: {}", problem.message);
    }
    let (status, retry_after) = (problem.status, problem.retry_after);
    // Texts and numbers alone: nothing that JSON lacks.
    let body = serde_json::to_vec(&problem.answer(id)).unwrap_or_default();
    let mut response = Response::new(HttpBody::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"headwater\""));
    }
    if let Some(wait) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    with_headers(response, id)
}

/// What every answer carries.
fn with_headers(mut response: Response<HttpBody>, id: &str) -> Response<HttpBody> {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // What is told is the caller's, and may be other in a moment; with an ETag it may be kept and asked for again.
    let kept = if headers.contains_key(header::ETAG) { "private, no-cache" } else { "no-store" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    response
}
