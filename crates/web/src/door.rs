//! From requests to pages and back: whose session it is, that a form is one of ours, and what becomes of failures.
//!
//! A session goes by a cookie that scripts cannot read and that is sent to this server alone, over HTTPS. Every form
//! carries a token that follows from the session and that no other site can know; beside that, browsers say from which site a
//! form comes, and those from elsewhere are refused. The cookie lets nobody into the REST API under `/v1`, which takes no
//! cookies: so nothing can be done there in the name of who is logged in here.
use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, FromRequestParts as _, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use axum::routing::{MethodFilter, any_service, get, on};
use control::Caller;
use control::people::{Identity, Origin};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;
use tower::ServiceExt as _;

use crate::answer::{Answer, Page, cookie, guard, html, see_other};
use crate::ask::{Ask, Refusal};
use crate::fields::Fields;
use crate::frame::{self, Theme};
use crate::said::Said;
use crate::{Console, assets, pages, paths};

/// The cookie of a session. RFC 6265bis §4.1.3.2: `__Host-` holds it to this host, HTTPS and all paths.
const SESSION: &str = "__Host-headwater";
/// The cookie of what is said on the next page.
const SAID: &str = "__Host-headwater-said";
/// The cookie of the colours that were chosen.
const THEME: &str = "__Host-headwater-theme";
/// The header in which scripts send the token of a form.
const TOKEN: &str = "x-form-token";
/// The largest form: a table of ten thousand devices.
const MAX_FORM_BYTES: usize = 4 << 20;
/// How long a form may take to come.
const FORM_WITHIN: Duration = Duration::from_secs(30);
/// The longest address that is gone back to after the log-in.
const MAX_NEXT_BYTES: usize = 1000;

/// A page or an action that is being made.
pub(crate) type Pending = Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + Send>>;

/// An address, and what it gives.
pub(crate) struct Route {
    method: MethodFilter,
    path: String,
    /// Whether one comes in without a session.
    open: bool,
    /// The most bytes of what comes as it is, and is no form; none: a form comes.
    bytes: Option<usize>,
    handler: Arc<dyn Fn(Visit) -> Pending + Send + Sync>,
}

impl Route {
    /// A page.
    pub(crate) fn get<F>(path: impl Into<String>, page: fn(Visit) -> F) -> Self
    where
        F: Future<Output = Result<Answer, Refusal>> + Send + 'static,
    {
        let handler = Arc::new(move |visit| Box::pin(page(visit)) as Pending);
        Self { method: MethodFilter::GET, path: path.into(), open: false, bytes: None, handler }
    }

    /// What a form does.
    pub(crate) fn post<F>(path: impl Into<String>, action: fn(Visit) -> F) -> Self
    where
        F: Future<Output = Result<Answer, Refusal>> + Send + 'static,
    {
        Self { method: MethodFilter::POST, ..Self::get(path, action) }
    }

    /// Takes bytes as they are, which a script of ours sends: the form's token comes in the header [`TOKEN`].
    pub(crate) fn takes_bytes(self, most: usize) -> Self {
        Self { bytes: Some(most), ..self }
    }

    /// For everybody.
    pub(crate) fn open(self) -> Self {
        Self { open: true, ..self }
    }
}

/// Somebody at a page.
pub(crate) struct Visit {
    pub(crate) console: Arc<Console>,
    pub(crate) ask: Ask,
    /// `None` on pages that are open to everybody.
    pub(crate) who: Option<Identity>,
    pub(crate) path: String,
    pub(crate) query: Fields,
    pub(crate) form: Fields,
    /// What came as it is, where the route takes that.
    pub(crate) bytes: Bytes,
    /// Whether htmx asks for a part of a page.
    pub(crate) part: bool,
    pub(crate) theme: Theme,
    pub(crate) said: Option<Said>,
    parameters: HashMap<String, String>,
}

impl Visit {
    /// A parameter of the path.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }

    /// Who looks, as the farm knows them.
    pub(crate) fn caller(&self) -> Option<&Caller> {
        self.who.as_ref().map(|who| &who.caller)
    }

    /// What every form carries.
    pub(crate) fn token(&self) -> String {
        self.ask.secret.as_deref().map(form_token).unwrap_or_default()
    }

    /// The address of this page with other fields behind the question mark.
    pub(crate) fn here_with(&self, name: &str, value: &str) -> String {
        format!("{}{}", self.path, self.query.with(name, value).query())
    }
}

/// The pages, and the REST API beside them. Connections carry axum's `ConnectInfo<SocketAddr>`.
pub fn router(console: Arc<Console>) -> Router {
    let mut router = assets::router();
    for route in pages::routes() {
        let (console, route) = (Arc::clone(&console), Arc::new(route));
        let (method, path) = (route.method, route.path.clone());
        let handler = move |request: Request| {
            let (console, route) = (Arc::clone(&console), Arc::clone(&route));
            async move { enter(console, &route, request).await }
        };
        router = router.route(&path, on(method, handler));
    }
    let api = console.api.clone();
    router = router.route("/v1/{*rest}", any_service(api.clone())).route("/v1", any_service(api));
    // Prometheus shows a token of the API, as all programs do.
    let metrics = console.api.clone();
    router = router.route("/metrics", get(move |request: Request| metrics_of(metrics.clone(), request)));
    let lost = Arc::new(Route::get("", pages::nothing_here));
    router.fallback(move |request: Request| {
        let (console, route) = (Arc::clone(&console), Arc::clone(&lost));
        async move { enter(console, &route, request).await }
    })
}

/// `/metrics`, where Prometheus looks if it is told nothing else: what the API gives at `/v1/metrics`.
async fn metrics_of(api: Router, mut request: Request) -> Response<Body> {
    *request.uri_mut() = Uri::from_static("/v1/metrics");
    let Ok(response) = api.oneshot(request).await;
    response
}

async fn enter(console: Arc<Console>, route: &Route, request: Request) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let mut response = match visit(console, route, &mut parts, body).await {
        Ok(Entered::In(visit)) => answer(*visit, &route.handler).await,
        Ok(Entered::Elsewhere(response)) => response,
        Err(refusal) => html(refusal.status, frame::bare_failure(&refusal).into_string()),
    };
    guard(&mut response);
    response
}

/// Whoever comes, after the checks at the door.
enum Entered {
    In(Box<Visit>),
    Elsewhere(Response<Body>),
}

async fn visit(
    console: Arc<Console>,
    route: &Route,
    parts: &mut Parts,
    body: Body,
) -> Result<Entered, Refusal> {
    let Some(ConnectInfo(peer)) = parts.extensions.get::<ConnectInfo<SocketAddr>>().copied() else {
        let why = "the listener does not tell where connections come from";
        return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why));
    };
    let parameters = Path::<HashMap<String, String>>::from_request_parts(parts, &()).await;
    let Path(parameters) =
        parameters.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let is_form = parts.method == Method::POST;
    if is_form && !same_site(&parts.headers) {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "this form was sent by another site, and nothing was done",
        ));
    }
    let (form, bytes) = match route.bytes {
        _ if !is_form => Default::default(),
        Some(most) => (token_of(&parts.headers), read_body(body, most).await?),
        None => (read_form(body).await?, Bytes::new()),
    };
    let secret = cookie_value(&parts.headers, SESSION);
    let who = match &secret {
        None => None,
        Some(secret) => identify(&console, secret.clone(), peer).await?,
    };
    let secret = secret.filter(|_| who.is_some());
    let path = parts.uri.path().to_owned();
    let part = parts.headers.contains_key("hx-request");
    if let Some(secret) = &secret
        && is_form
        && !fits(form.get("form_token"), secret)
    {
        let why = "this form is not of your session, and nothing was done: go back, load the page anew and send it again";
        return Err(Refusal::new(StatusCode::FORBIDDEN, why));
    }
    if who.is_none() && !route.open {
        return Ok(Entered::Elsewhere(to_log_in(parts, part)));
    }
    let must_change = who.as_ref().is_some_and(|who| who.user.must_change_password && who.token.is_none());
    if must_change && !route.open && ![paths::PASSWORD, paths::LOG_OUT].contains(&path.as_str()) {
        return Ok(Entered::Elsewhere(see_other(paths::PASSWORD)));
    }
    let theme = Theme::of(&cookie_value(&parts.headers, THEME).unwrap_or_default());
    let said = cookie_value(&parts.headers, SAID).and_then(|value| Said::read(&value));
    let query = Fields::parse(parts.uri.query().unwrap_or_default());
    let ask = Ask { api: console.api.clone(), secret, peer };
    let visit = Visit { console, ask, who, path, query, form, bytes, part, theme, said, parameters };
    Ok(Entered::In(Box::new(visit)))
}

async fn answer(visit: Visit, handler: &Arc<dyn Fn(Visit) -> Pending + Send + Sync>) -> Response<Body> {
    let frame = frame::Frame::of(&visit);
    let part = visit.part;
    match handler(visit).await {
        Ok(Answer::Raw(response)) => response,
        Ok(Answer::Go(place, said)) => {
            let mut response = see_other(&place);
            if let Some(said) = said {
                let value = said.value();
                cookie(
                    &mut response,
                    &format!("{SAID}={value}; Path=/; Max-Age=60; Secure; HttpOnly; SameSite=Lax"),
                );
            }
            response
        }
        Ok(Answer::Page(page)) if part => html(page.status, page.body.into_string()),
        Ok(Answer::Page(page)) => in_frame(frame, page).await,
        Err(refusal) if refusal.status == StatusCode::UNAUTHORIZED => see_other(paths::LOG_IN),
        Err(refusal) if part => html(refusal.status, frame::failure(&refusal).into_string()),
        Err(refusal) => {
            let page = Page::new("That did not work", "", frame::failure(&refusal)).status(refusal.status);
            in_frame(frame, page).await
        }
    }
}

async fn in_frame(frame: frame::Frame, page: Page) -> Response<Body> {
    let said = frame.has_said();
    let status = page.status;
    let mut response = html(status, frame.around(page).await.into_string());
    if said {
        cookie(&mut response, &format!("{SAID}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax"));
    }
    response
}

/// Whoever has no session is sent to the log-in, and from there back to where they were. A form that comes too late is
/// not kept: the page that it was on is gone back to.
fn to_log_in(parts: &Parts, part: bool) -> Response<Body> {
    let is_get = parts.method == Method::GET;
    let asked = parts.uri.path_and_query().map_or("/", |asked| asked.as_str());
    let shown = parts.headers.get("hx-current-url").or_else(|| parts.headers.get(header::REFERER));
    let shown = shown.and_then(|url| url.to_str().ok()).and_then(local_part);
    let next = if is_get && !part { asked } else { shown.unwrap_or("/") };
    let place = format!("{}{}", paths::LOG_IN, Fields::from([("next", next)]).query());
    let mut response = if part {
        let mut response = Response::new(Body::empty());
        if let Ok(place) = HeaderValue::from_str(&place) {
            response.headers_mut().insert("hx-redirect", place);
        }
        response
    } else {
        see_other(&place)
    };
    if !is_get {
        let said =
            Said::bad("Your session had ended, and nothing was done. Log in, and send the form again.")
                .value();
        cookie(&mut response, &format!("{SAID}={said}; Path=/; Max-Age=60; Secure; HttpOnly; SameSite=Lax"));
    }
    response
}

/// The path of an address on this server; whose server it is does not matter, since only the path is used.
fn local_part(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    rest.find('/').and_then(|at| rest.get(at..))
}

/// An address within the console, whatever was sent: two slashes would begin another host.
pub(crate) fn next(wanted: &str) -> String {
    let plain = wanted.len() <= MAX_NEXT_BYTES
        && wanted.starts_with('/')
        && !wanted.starts_with("//")
        && wanted.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
        && ![paths::LOG_IN, paths::LOG_OUT].iter().any(|own| wanted.starts_with(own));
    if plain { wanted.to_owned() } else { paths::HOME.to_owned() }
}

/// As browsers tell: Fetch Metadata, and `Origin` of those that lack it. Programs that tell neither hold no cookies of a browser.
fn same_site(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site")
        && !["same-origin", "none"].contains(&site)
    {
        return false;
    }
    match (text("origin"), text("host")) {
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, from)| from == host),
        _ => true,
    }
}

async fn read_form(body: Body) -> Result<Fields, Refusal> {
    let bytes = read_body(body, MAX_FORM_BYTES).await?;
    Ok(Fields::parse(&String::from_utf8_lossy(&bytes)))
}

async fn read_body(body: Body, most: usize) -> Result<Bytes, Refusal> {
    match tokio::time::timeout(FORM_WITHIN, axum::body::to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let why = format!("what is sent may have {most} bytes");
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, why))
        }
        Err(_) => Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "the form did not come")),
    }
}

/// As if the header's token had come in a form.
fn token_of(headers: &HeaderMap) -> Fields {
    let token = headers.get(TOKEN).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Fields::from([("form_token", token)])
}

async fn identify(
    console: &Arc<Console>,
    secret: String,
    peer: SocketAddr,
) -> Result<Option<Identity>, Refusal> {
    let console = Arc::clone(console);
    let found = tokio::task::spawn_blocking(move || {
        let origin = Origin { address: peer.ip().to_canonical(), request: None };
        console.people.identify(&console.control, &secret, &origin)
    });
    let unavailable = |why: String| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
    let found = found.await.map_err(|error| unavailable(error.to_string()))?;
    found.map_err(|error| unavailable(error.to_string()))
}

/// What proves that a form was made for a session.
fn form_token(secret: &str) -> String {
    let digest = Sha256::new().chain_update("headwater console form\0").chain_update(secret).finalize();
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn fits(token: &str, secret: &str) -> bool {
    token.as_bytes().ct_eq(form_token(secret).as_bytes()).into()
}

fn cookie_value(headers: &HeaderMap, name: &str) -> Option<String> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let value = pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned());
    value.filter(|value| !value.is_empty())
}

/// Begins a session in the browser, or ends it where there is no secret.
pub(crate) fn session_cookie(response: &mut Response<Body>, secret: Option<&str>) {
    let text = match secret {
        Some(secret) => format!("{SESSION}={secret}; Path=/; Secure; HttpOnly; SameSite=Lax"),
        None => format!("{SESSION}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Lax"),
    };
    cookie(response, &text);
}

/// Keeps the colours that were chosen, for a year.
pub(crate) fn theme_cookie(response: &mut Response<Body>, theme: Theme) {
    let word = theme.word();
    cookie(response, &format!("{THEME}={word}; Path=/; Max-Age=31536000; Secure; HttpOnly; SameSite=Lax"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_to_go_back_to_stays_on_this_server() {
        for good in ["/", "/devices?filter=name%20~%20x", "/boots/b1"] {
            assert_eq!(next(good), good);
        }
        for bad in [
            "",
            "//evil.example",
            "https://evil.example/",
            "/\\evil",
            "/a\r\nx: y",
            "devices",
            "/log-in?next=/",
        ] {
            assert_eq!(next(bad), "/", "{bad}");
        }
        assert_eq!(local_part("https://server:8443/devices?x=1"), Some("/devices?x=1"));
    }

    #[test]
    fn forms_of_other_sites_are_told_by_what_browsers_say() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
                .collect()
        };
        for (pairs, same) in [
            (&[][..], true),
            (&[("sec-fetch-site", "same-origin"), ("origin", "https://a:8443"), ("host", "a:8443")], true),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("origin", "https://b"), ("host", "a")], false),
            (&[("origin", "null"), ("host", "a")], false),
        ] {
            let headers: HeaderMap = headers(pairs);
            assert_eq!(same_site(&headers), same, "{pairs:?}");
        }
    }

    #[test]
    fn token_of_a_form_is_of_one_session() {
        let token = form_token("hws_one");
        assert!(fits(&token, "hws_one") && !fits(&token, "hws_two") && !fits("", "hws_one"));
    }
}
