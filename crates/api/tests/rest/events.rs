//! What is heard by whoever listens.
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::farm::Farm;

/// How long an event may take to come on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(30);

struct Listener {
    body: Body,
    heard: String,
}

impl Listener {
    async fn new(farm: &Farm, last: Option<&str>) -> Self {
        let mut request = Request::builder().uri("/v1/events");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        Self::by(&farm.local, request).await
    }

    /// Somebody who is let in over the network.
    async fn of(farm: &Farm, secret: &str) -> Self {
        let request = Request::builder().uri("/v1/events");
        Self::by(&farm.network, request.header("authorization", format!("Bearer {secret}"))).await
    }

    async fn by(router: &Router, request: Builder) -> Self {
        let response = router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), heard: String::new() }
    }

    /// The next event of this kind: its id and what it tells.
    async fn next(&mut self, kind: &str) -> (String, Value) {
        loop {
            while let Some((event, rest)) = self.heard.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.heard = rest;
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap_or_default()
                };
                if field("event") == kind {
                    return (field("id").to_owned(), serde_json::from_str(field("data")).unwrap());
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.unwrap().unwrap().unwrap();
            self.heard.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }
}

#[tokio::test]
async fn change_is_heard_and_can_be_heard_again_from_its_id_on() {
    let farm = Farm::furnished().await;
    let mut listener = Listener::new(&farm, None).await;
    assert_eq!(listener.next("boot").await.1, json!({"id": "b1"}));
    farm.post("/v1/sites", &json!({"name": "Branch"})).await.is(201);
    farm.patch("/v1/sites/Branch", "*", &json!({"disabled": true})).await.is(200);
    let (first, change) = listener.next("change").await;
    assert_eq!(
        (&change["action"], &change["kind"], &change["name"]),
        (&json!("create"), &json!("site"), &json!("Branch"))
    );
    let (second, change) = listener.next("change").await;
    assert_eq!(change["action"], "update");
    drop(listener);
    let mut back = Listener::new(&farm, Some(&first)).await;
    assert_eq!(back.next("change").await.0, second);
}

#[tokio::test]
async fn listener_who_missed_boots_is_told_so_and_a_follower_is_told_all_anew() {
    let farm = Farm::furnished().await;
    let mut listener = Listener::new(&farm, None).await;
    assert_eq!(listener.next("lost").await.1, json!({"boots": true}));
    let request = Request::builder().uri("/v1/boots/follow").body(Body::empty()).unwrap();
    let mut lines = farm.local.clone().oneshot(request).await.unwrap().into_body();
    let mut told = String::new();
    while told.lines().count() < 3 {
        let frame = tokio::time::timeout(PATIENCE, lines.frame()).await.unwrap().unwrap().unwrap();
        told.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    assert_eq!(told, "{\"id\":\"b0\"}\n{\"id\":\"b1\"}\n{\"id\":\"b0\"}\n");
}

#[tokio::test]
async fn device_that_comes_or_goes_is_heard_of() {
    let farm = Farm::furnished().await;
    let mut listener = Listener::new(&farm, None).await;
    for (device, presence) in [("out", "lost"), ("in", "online")] {
        let told = json!({"device": device, "presence": presence, "before": "booting"});
        // It is no change of the catalogue: nobody comes back to it by an id.
        assert_eq!(listener.next("presence").await, (String::new(), told));
    }
}

#[tokio::test]
async fn listener_hears_that_the_server_is_there_when_nothing_happens() {
    let farm = Farm::furnished().await;
    let mut listener = Listener::new(&farm, None).await;
    assert_eq!(listener.next("lost").await.1, json!({"boots": true}));
    // The clock goes on by itself as soon as everything waits for it.
    tokio::time::pause();
    for _ in 0..3 {
        assert_eq!(listener.next("alive").await, (String::new(), json!({})));
    }
}

#[tokio::test]
async fn listener_whose_roles_shrink_hears_from_then_on_what_they_leave() {
    let farm = Farm::furnished().await;
    let ann = farm.user("ann", "read-only", json!({})).await;
    let mut listener = Listener::of(&farm, &ann).await;
    let make = async |name: &str, collection: &str| {
        farm.post("/v1/devices", &json!({"name": name, "collection": collection})).await.is(201);
    };
    make("out", "office").await;
    assert_eq!(listener.next("change").await.1["name"], "out");
    let grant = farm.get("/v1/grants?filter=user%20%3D%20ann").await.is(200)["items"][0]["id"].clone();
    farm.post("/v1/grants", &json!({"user": "ann", "role": "read-only", "collection": "lab"})).await.is(201);
    farm.delete(&format!("/v1/grants/{grant}"), "*").await.is(204);
    tokio::time::pause();
    listener.next("alive").await;
    tokio::time::resume();
    make("away", "office").await;
    make("in", "lab").await;
    assert_eq!(listener.next("change").await.1["name"], "in");
}

#[tokio::test]
async fn follower_of_boots_who_may_not_look_any_more_is_let_go() {
    let farm = Farm::furnished().await;
    let ann = farm.user("ann", "read-only", json!({})).await;
    let request = Request::builder().uri("/v1/boots/follow").header("authorization", format!("Bearer {ann}"));
    let response = farm.network.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    farm.patch("/v1/users/ann", "*", &json!({"disabled": true})).await.is(200);
    tokio::time::pause();
    let rest = tokio::time::timeout(PATIENCE, response.into_body().collect()).await;
    assert!(rest.is_ok(), "it is told on");
}

#[tokio::test]
async fn listener_is_let_go_when_the_server_stops() {
    let farm = Farm::furnished().await;
    let mut listener = Listener::new(&farm, None).await;
    listener.next("boot").await;
    farm.stop.send(true).unwrap();
    let rest = tokio::time::timeout(PATIENCE, listener.body.collect()).await;
    assert!(rest.is_ok());
}

#[tokio::test]
async fn id_that_is_none_of_ours_is_refused_and_places_are_limited() {
    let farm = Farm::furnished().await;
    let headers = [("last-event-id", "x")];
    farm.send(Method::GET, "/v1/events", &headers, None).await.fails(400, "bad-request");
    let mut listeners = Vec::new();
    for _ in 0..256 {
        listeners.push(Listener::new(&farm, None).await);
    }
    farm.send(Method::GET, "/v1/events", &[], None).await.fails(429, "throttled");
    drop(listeners.pop());
    Listener::new(&farm, None).await.next("boot").await;
}
