//! The server's host and its settings: who may look and change, and what is written down of it.
use axum::http::Method;
use serde_json::{Value, json};

use crate::farm::Farm;

#[tokio::test]
async fn server_without_settings_says_so_and_changes_none() {
    let farm = Farm::furnished().await;
    let answer = farm.get("/v1/settings").await;
    assert_eq!(answer.header("etag"), "\"1\"");
    assert_eq!(answer.is(200), json!({"revision": 1, "items": []}));
    farm.patch("/v1/settings", "*", &json!({"admission.at_once": "4"})).await.fails(400, "bad-value");
    farm.patch("/v1/settings", "*", &json!({})).await.is(200);
    let long = "9".repeat(1001);
    let refused = farm.patch("/v1/settings", "*", &json!({"log": long})).await.fails(400, "bad-value");
    assert_eq!(refused["field"], "log");
    farm.send(Method::PATCH, "/v1/settings", &[], Some(&json!({}))).await.fails(428, "if-match-needed");
}

#[tokio::test]
async fn look_at_the_host_is_audited_and_told_of_when_it_cannot_be_done() {
    let farm = Farm::furnished().await;
    assert_eq!(farm.get("/v1/doctor").await.is(200), json!({"report": null}));
    farm.post("/v1/doctor", &json!({"dhcp": true})).await.fails(409, "unsupported");
    let audit = farm.get("/v1/audit?filter=action%20=%20doctor").await.is(200);
    assert_eq!((&audit["total"], &audit["items"][0]["after"]), (&json!(1), &json!({"dhcp": true})));
}

#[tokio::test]
async fn way_to_a_device_is_for_its_operators() {
    let farm = Farm::furnished().await;
    farm.post("/v1/devices", &json!({"name": "lab-01", "collection": "lab"})).await.is(201);
    farm.post("/v1/devices/lab-01/network-check", &Value::Null).await.fails(404, "not-found");
    let audit = farm.get("/v1/audit?filter=action%20=%20network-check").await.is(200);
    assert_eq!((&audit["total"], &audit["items"][0]["name"]), (&json!(1), &json!("lab-01")));
}

#[tokio::test]
async fn host_is_the_business_of_the_administrators_of_its_site() {
    let farm = Farm::furnished().await;
    farm.post("/v1/devices", &json!({"name": "lab-01", "collection": "lab"})).await.is(201);
    let eve = farm.user("eve", "operator", json!({})).await;
    let as_eve = |method: Method, path: &'static str, body: Value| {
        let (farm, eve) = (&farm, eve.clone());
        async move { farm.with(Some(&eve), method, path, Some(&body)).await }
    };
    as_eve(Method::GET, "/v1/settings", Value::Null).await.is(200);
    as_eve(Method::PATCH, "/v1/settings", json!({})).await.fails(403, "denied");
    as_eve(Method::GET, "/v1/doctor", Value::Null).await.fails(403, "denied");
    as_eve(Method::POST, "/v1/doctor", json!({})).await.fails(403, "denied");
    as_eve(Method::POST, "/v1/devices/lab-01/network-check", Value::Null).await.fails(404, "not-found");
    let ann = farm.user("ann", "read-only", json!({})).await;
    let path = "/v1/devices/lab-01/network-check";
    farm.with(Some(&ann), Method::POST, path, None).await.fails(403, "denied");
}
