//! Who comes in, and what forms are taken.
use std::time::Duration;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::farm::{Browser, Farm, PASSWORD, form};

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_logged_in_is_sent_to_the_log_in_and_back_to_the_page() {
    let farm = Farm::new().await;
    farm.user("ann", "administrator", None).await;
    let mut browser = Browser::new(farm.console.clone());
    let seen = browser.get("/devices?kind=test").await;
    assert_eq!(
        (seen.status, seen.header("location")),
        (StatusCode::SEE_OTHER, "/log-in?next=%2Fdevices%3Fkind%3Dtest")
    );
    let seen = browser.get(seen.header("location")).await;
    seen.shows(&["name=\"next\" value=\"/devices?kind=test\""]);
    let fields = [("user", "ann"), ("password", PASSWORD), ("next", "/devices?kind=test")];
    let seen = browser.post("/log-in", &fields).await;
    assert_eq!(seen.header("location"), "/devices?kind=test");
    browser.get("/devices?kind=test").await.shows(&["lab-02", "1 device"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_password_is_told_and_many_of_them_have_to_wait() {
    let farm = Farm::new().await;
    farm.user("ann", "administrator", None).await;
    let mut browser = Browser::new(farm.console.clone());
    let wrong = [("user", "ann"), ("password", "wrong-horse-battery"), ("next", "https://evil.example/")];
    let seen = browser.post("/log-in", &wrong).await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
    assert!(seen.text.contains("password is wrong") && !seen.text.contains("evil.example"), "{}", seen.text);
    for _ in 0..6 {
        browser.post("/log-in", &wrong).await;
    }
    let seen = browser.post("/log-in", &wrong).await;
    assert_eq!(seen.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(seen.text.contains("try again in"), "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_administrator_sets_a_password_with_the_token_and_is_in() {
    let farm = Farm::new().await;
    let token = farm.first_token();
    let mut browser = Browser::new(farm.console.clone());
    let other = [("token", token.as_str()), ("password", PASSWORD), ("again", "another")];
    let seen = browser.post("/first-log-in", &other).await;
    assert!(seen.text.contains("not the same"), "{}", seen.text);
    let fields = [("token", token.as_str()), ("password", PASSWORD), ("again", PASSWORD)];
    let seen = browser.post("/first-log-in", &fields).await;
    assert_eq!(seen.header("location"), "/");
    browser.get("/").await.shows(&["Overview"]);
    let seen = browser.post("/first-log-in", &fields).await;
    assert_eq!(seen.status, StatusCode::UNAUTHORIZED, "a token is good once");
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_without_the_token_of_the_session_or_from_other_sites_do_nothing() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/devices").await;
    let id = farm.root(Method::GET, "/v1/devices/lab-01", &Value::Null).await["id"].to_string();
    let fields = [("id", id.as_str()), ("what", "delete"), ("sure", "yes")];
    let seen = ann.send(Method::POST, "/devices/do", &[], form(&fields)).await;
    assert_eq!(seen.status, StatusCode::FORBIDDEN, "{}", seen.text);
    let headers = [("sec-fetch-site", "cross-site")];
    let seen = ann.send(Method::POST, "/devices/do", &headers, form(&fields)).await;
    assert_eq!(seen.status, StatusCode::FORBIDDEN);
    let headers = [("origin", "https://evil.example"), ("host", "server:8443")];
    let seen = ann.send(Method::POST, "/log-in", &headers, form(&fields)).await;
    assert_eq!(seen.status, StatusCode::FORBIDDEN);
    farm.root(Method::GET, "/v1/devices/lab-01", &Value::Null).await;
    let seen = ann.post("/devices/do", &fields).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "with the token it is done: {}", seen.text);
    ann.get("/devices").await.shows(&["2 devices", "Done: 1 device."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_has_ended_asks_for_the_log_in_and_its_form_is_not_carried_out() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/devices").await;
    farm.wait(Duration::from_secs(3601));
    let part = ann.part("/devices/table").await;
    assert_eq!(part.header("hx-redirect"), "/log-in?next=%2Fdevices%3Fq%3Dx");
    let seen = ann.post("/devices/do", &[("id", "10"), ("what", "delete"), ("sure", "yes")]).await;
    assert!(seen.header("location").starts_with("/log-in"), "{seen:?}");
    ann.get("/log-in").await.shows(&["Your session had ended, and nothing was done"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_out_ends_the_session_and_the_cookie_opens_no_api() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    assert_eq!(ann.get("/v1/devices").await.status, StatusCode::UNAUTHORIZED, "the API takes no cookies");
    ann.get("/").await;
    let seen = ann.post("/log-out", &[]).await;
    assert_eq!(seen.header("location"), "/log-in");
    assert!(ann.get("/devices").await.header("location").starts_with("/log-in"));
}

#[tokio::test(flavor = "multi_thread")]
async fn password_that_was_given_must_be_changed_before_anything_else() {
    let farm = Farm::new().await;
    let user = json!({"name": "bob", "password": PASSWORD, "must_change_password": true});
    farm.root(Method::POST, "/v1/users", &user).await;
    let mut bob = farm.browser("bob").await;
    assert_eq!(bob.get("/devices").await.header("location"), "/password");
    bob.get("/password").await.shows(&["must be changed before anything else"]);
    let new = "another-horse-battery";
    let wrong = bob.post("/password", &[("old", "wrong"), ("new", new), ("again", new)]).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    let seen = bob.post("/password", &[("old", PASSWORD), ("new", new), ("again", new)]).await;
    assert_eq!(seen.header("location"), "/", "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_forbids_foreign_scripts_and_frames() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    for path in ["/", "/devices", "/nothing", "/log-in", "/health"] {
        let seen = ann.get(path).await;
        let policy = seen.header("content-security-policy");
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(seen.header("x-frame-options"), "DENY", "{path}");
        assert_eq!(seen.header("cache-control"), "no-store", "{path}");
        assert!(!seen.text.contains("style=\"") && !seen.text.contains("onclick"), "{path}");
    }
}
