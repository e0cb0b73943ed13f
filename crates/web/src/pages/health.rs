//! What machines ask: whether the server lives, whether it can do its work, and its figures for Prometheus.
use axum::body::Body;
use axum::http::{Response, StatusCode, header};

use crate::answer::{Answer, set};
use crate::ask::Refusal;
use crate::door::{Route, Visit};

pub(super) fn all() -> Vec<Route> {
    vec![Route::get("/health", health).open(), Route::get("/ready", ready).open()]
}

/// It answers, so it lives.
async fn health(_: Visit) -> Result<Answer, Refusal> {
    Ok(plain(StatusCode::OK, "ok\n".to_owned()))
}

/// Whether changes can be made; devices that are known boot in any case.
async fn ready(visit: Visit) -> Result<Answer, Refusal> {
    Ok(match visit.console.board.server().catalogue_trouble {
        None => plain(StatusCode::OK, "ready\n".to_owned()),
        // Why, stands in the log and in the console: this is told to everybody.
        Some(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "the farm's database cannot be used\n".to_owned()),
    })
}

fn plain(status: StatusCode, text: String) -> Answer {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    Answer::Raw(response)
}
