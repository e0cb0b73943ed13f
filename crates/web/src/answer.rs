//! What pages give, and the headers that every answer carries.
use axum::body::Body;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, Response, StatusCode};
use maud::Markup;

use crate::said::Said;

/// What a page gives.
pub(crate) enum Answer {
    /// Markup with its title: in the frame, or alone where htmx asks for a part.
    Page(Page),
    /// Another page, with what is said there.
    Go(String, Option<Said>),
    /// As it is.
    Raw(Response<Body>),
}

/// A page.
pub(crate) struct Page {
    pub(crate) title: String,
    /// Whether names in the title are the farm's own; the part of the navigation that it belongs to.
    pub(crate) here: &'static str,
    pub(crate) status: StatusCode,
    pub(crate) body: Markup,
}

impl Page {
    pub(crate) fn new(title: impl Into<String>, here: &'static str, body: Markup) -> Self {
        Self { title: title.into(), here, status: StatusCode::OK, body }
    }

    pub(crate) fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl From<Page> for Answer {
    fn from(page: Page) -> Self {
        Self::Page(page)
    }
}

/// Nothing but what we serve runs, nothing loads from elsewhere, nobody frames us: CSP level 3. Styles in attributes are
/// refused with the rest, so charts and bars are drawn with the attributes of SVG.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Of markup.
pub(crate) fn html(status: StatusCode, markup: String) -> Response<Body> {
    let mut response = Response::new(Body::from(markup));
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, "text/html; charset=utf-8");
    response
}

/// Of JSON.
pub(crate) fn json(text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    set(&mut response, header::CONTENT_TYPE, "application/json");
    response
}

/// RFC 9110 §15.4.4: whatever was asked, the answer is got there.
pub(crate) fn see_other(place: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    // Places are encoded paths of ours.
    if let Ok(place) = HeaderValue::from_str(place) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

/// What every answer of the console carries.
pub(crate) fn guard(response: &mut Response<Body>) {
    set(response, header::CONTENT_SECURITY_POLICY, POLICY);
    set(response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(response, header::X_FRAME_OPTIONS, "DENY");
    set(response, header::REFERRER_POLICY, "same-origin");
    set(response, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    if !response.headers().contains_key(header::CACHE_CONTROL) {
        set(response, header::CACHE_CONTROL, "no-store");
    }
}

pub(crate) fn set(response: &mut Response<Body>, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// Adds a cookie.
pub(crate) fn cookie(response: &mut Response<Body>, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}
