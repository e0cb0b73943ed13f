//! What administrators do for themselves: log out, change the password, choose colours.
use axum::http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::json;

use crate::answer::{Answer, Page, see_other};
use crate::ask::Refusal;
use crate::door::{Route, Visit, next, session_cookie, theme_cookie};
use crate::frame::Theme;
use crate::markup::{token, visible};
use crate::paths;
use crate::said::Said;

pub(super) fn all() -> Vec<Route> {
    vec![
        Route::post(paths::LOG_OUT, log_out),
        Route::get(paths::PASSWORD, password_page),
        Route::post(paths::PASSWORD, password),
        Route::post(paths::THEME, theme),
    ]
}

async fn log_out(visit: Visit) -> Result<Answer, Refusal> {
    visit.ask.send(Method::POST, "/v1/logout", None, None).await?;
    let mut response = see_other(paths::LOG_IN);
    session_cookie(&mut response, None);
    Ok(Answer::Raw(response))
}

async fn theme(visit: Visit) -> Result<Answer, Refusal> {
    let mut response = see_other(&next(visit.form.get("back")));
    theme_cookie(&mut response, Theme::of(visit.form.get("theme")));
    Ok(Answer::Raw(response))
}

/// Who changes it, and what went wrong the last time.
struct Data {
    user: String,
    must: bool,
    failed: Option<String>,
    token: String,
}

impl Data {
    fn of(visit: &Visit, failed: Option<String>) -> Self {
        let user = visit.who.as_ref().map(|who| &who.user);
        Self {
            user: user.map(|user| user.name.to_string()).unwrap_or_default(),
            must: user.is_some_and(|user| user.must_change_password),
            failed,
            token: visit.token(),
        }
    }
}

async fn password_page(visit: Visit) -> Result<Answer, Refusal> {
    Ok(Page::new("Change password", "", password_form(&Data::of(&visit, None))).into())
}

async fn password(visit: Visit) -> Result<Answer, Refusal> {
    let (new, again) = (visit.form.get("new"), visit.form.get("again"));
    let done = if new == again {
        let body = json!({ "old": visit.form.get("old"), "new": new });
        visit.ask.send(Method::POST, "/v1/me/password", None, Some(&body)).await.map(drop)
    } else {
        Err(Refusal::new(StatusCode::BAD_REQUEST, "the two new passwords are not the same"))
    };
    match done {
        Ok(()) => {
            let said = Said::good("The password was changed. All other sessions of yours have ended.");
            Ok(Answer::Go(paths::HOME.to_owned(), Some(said)))
        }
        Err(refusal) => {
            let data = Data::of(&visit, Some(refusal.answer.message));
            // A wrong old password ends no session: the form is shown again.
            let status = if refusal.status == StatusCode::UNAUTHORIZED {
                StatusCode::BAD_REQUEST
            } else {
                refusal.status
            };
            Ok(Page::new("Change password", "", password_form(&data)).status(status).into())
        }
    }
}

fn password_form(data: &Data) -> Markup {
    html! {
        h1 { "Change password" }
        @if data.must { p.said { "The password that you were given must be changed before anything else." } }
        @if let Some(failed) = &data.failed { p.said.bad role="alert" { (visible(failed)) } }
        form.stack method="post" action=(paths::PASSWORD) {
            (token(&data.token))
            input type="hidden" name="user" value=(data.user) autocomplete="username";
            label { "Old password" input name="old" type="password" autocomplete="current-password" required autofocus; }
            label { "New password" input name="new" type="password" autocomplete="new-password" required; }
            label { "New password again" input name="again" type="password" autocomplete="new-password" required; }
            button.primary { "Change password" }
        }
    }
}
