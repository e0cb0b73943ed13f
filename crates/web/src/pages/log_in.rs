//! Logging in: by password, and the first time by the token that the server printed.
use axum::http::{Method, StatusCode};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;

use crate::answer::{Answer, Page, see_other};
use crate::ask::Refusal;
use crate::door::{Route, Visit, next, session_cookie};
use crate::markup::visible;
use crate::paths;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::get(paths::LOG_IN, page).open(),
        Route::post(paths::LOG_IN, log_in).open(),
        Route::get(paths::FIRST, first_page).open(),
        Route::post(paths::FIRST, first).open(),
    ]
}

#[derive(Deserialize)]
struct Session {
    token: String,
}

/// What the form shows again after a failure.
struct Data<'a> {
    user: &'a str,
    next: String,
    failed: Option<&'a Refusal>,
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let next = next(visit.query.get("next"));
    if visit.who.is_some() {
        return Ok(Answer::Go(next, None));
    }
    Ok(Page::new("Log in", "", form(&Data { user: "", next, failed: None })).into())
}

async fn log_in(visit: Visit) -> Result<Answer, Refusal> {
    let (user, next) = (visit.form.get("user"), next(visit.form.get("next")));
    let body = json!({ "user": user, "password": visit.form.get("password") });
    match begin(&visit, "/v1/login", &body, &next).await {
        Ok(answer) => Ok(answer),
        Err(failed) => {
            let markup = form(&Data { user, next, failed: Some(&failed) });
            Ok(Page::new("Log in", "", markup).status(failed.status).into())
        }
    }
}

/// Asks for a session, and begins it in the browser.
async fn begin(visit: &Visit, path: &str, body: &serde_json::Value, next: &str) -> Result<Answer, Refusal> {
    let answer = visit.ask.send(Method::POST, path, None, Some(body)).await?;
    let unread = |_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the API gave no session");
    let session: Session = serde_json::from_value(answer).map_err(unread)?;
    let mut response = see_other(next);
    session_cookie(&mut response, Some(&session.token));
    Ok(Answer::Raw(response))
}

fn form(data: &Data<'_>) -> Markup {
    html! {
        h1 { "Log in" }
        (why(data.failed))
        form.stack method="post" action=(paths::LOG_IN) {
            input type="hidden" name="next" value=(data.next);
            label { "User" input name="user" autocomplete="username" required autofocus[data.user.is_empty()] value=(data.user); }
            label { "Password" input name="password" type="password" autocomplete="current-password" required autofocus[!data.user.is_empty()]; }
            button.primary { "Log in" }
        }
        p.small { "A new farm? " a href=(paths::FIRST) { "Set the first password" } " with the token that the server printed when it started." }
    }
}

fn why(failed: Option<&Refusal>) -> Markup {
    html! { @if let Some(refusal) = failed {
        p.said.bad role="alert" { (sentence(&visible(&refusal.answer.message))) }
    } }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}.", chars.as_str())
}

async fn first_page(_: Visit) -> Result<Answer, Refusal> {
    Ok(Page::new("First log-in", "", first_form(None)).into())
}

async fn first(visit: Visit) -> Result<Answer, Refusal> {
    let (password, again) = (visit.form.get("password"), visit.form.get("again"));
    let done = if password == again {
        let body = json!({ "token": visit.form.get("token").trim(), "password": password });
        begin(&visit, "/v1/first-login", &body, paths::HOME).await
    } else {
        Err(Refusal::new(StatusCode::BAD_REQUEST, "the two passwords are not the same"))
    };
    match done {
        Ok(answer) => Ok(answer),
        Err(failed) => {
            Ok(Page::new("First log-in", "", first_form(Some(&failed))).status(failed.status).into())
        }
    }
}

fn first_form(failed: Option<&Refusal>) -> Markup {
    html! {
        h1 { "First log-in" }
        p { "The server printed a token when it started: it stands in its log ("
            code { "journalctl -u headwater" } "). With it, you set the password of user " code { "admin" } "." }
        (why(failed))
        form.stack method="post" action=(paths::FIRST) {
            input type="hidden" name="user" value="admin" autocomplete="username";
            label { "Token" input name="token" autocomplete="off" required autofocus; }
            label { "Password" input name="password" type="password" autocomplete="new-password" required; }
            label { "Password again" input name="again" type="password" autocomplete="new-password" required; }
            button.primary { "Set the password and log in" }
        }
        p.small { a href=(paths::LOG_IN) { "Log in with a password" } }
    }
}
