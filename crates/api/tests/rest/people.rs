//! Who is let in, and what they may.
use axum::http::Method;
use serde_json::{Value, json};

use crate::farm::{Farm, ask};

const PASSWORD: &str = "three walnut boats";

impl Farm {
    async fn log_in(&self, user: &str, password: &str) -> String {
        let body = json!({"user": user, "password": password});
        let session = self.with(None, Method::POST, "/v1/login", Some(&body)).await.is(200);
        session["token"].as_str().unwrap().to_owned()
    }

    /// A user with one role, logged in.
    pub(crate) async fn user(&self, name: &str, role: &str, place: Value) -> String {
        self.post("/v1/users", &json!({"name": name, "password": PASSWORD})).await.is(201);
        let mut grant = json!({"user": name, "role": role});
        grant.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
        self.post("/v1/grants", &grant).await.is(201);
        self.log_in(name, PASSWORD).await
    }
}

#[tokio::test]
async fn network_lets_in_nobody_without_a_secret() {
    let farm = Farm::furnished().await;
    for path in ["/v1/sites", "/v1/devices", "/v1/audit", "/v1/status", "/v1/events", "/v1/me"] {
        let answer = farm.with(None, Method::GET, path, None).await;
        assert!(answer.header("www-authenticate").starts_with("Bearer"));
        answer.fails(401, "unauthenticated");
        farm.with(Some("hwt_0"), Method::GET, path, None).await.fails(401, "unauthenticated");
    }
    farm.with(None, Method::GET, "/v1/openapi.json", None).await.is(200);
    let body = json!({"user": "admin", "password": "x"});
    farm.with(None, Method::POST, "/v1/login", Some(&body)).await.fails(401, "unauthenticated");
}

#[tokio::test]
async fn first_administrator_comes_in_once_by_the_token_of_the_first_run() {
    let farm = Farm::new();
    let first = farm.people.first_run(&farm.control).unwrap().unwrap();
    let body = json!({"token": first.token.reveal(), "password": PASSWORD});
    let session = farm.with(None, Method::POST, "/v1/first-login", Some(&body)).await.is(200);
    farm.with(None, Method::POST, "/v1/first-login", Some(&body)).await.fails(401, "unauthenticated");
    let secret = session["token"].as_str().unwrap();
    let me = farm.with(Some(secret), Method::GET, "/v1/me", None).await.is(200);
    assert_eq!(
        (&me["name"], &me["roles"][0]["role"], &me["local"]),
        (&json!("admin"), &json!("administrator"), &json!(false))
    );
    farm.with(Some(secret), Method::POST, "/v1/sites", Some(&json!({"name": "Main"}))).await.is(201);
    farm.with(Some(secret), Method::POST, "/v1/logout", None).await.is(204);
    farm.with(Some(secret), Method::GET, "/v1/me", None).await.fails(401, "unauthenticated");
}

#[tokio::test]
async fn role_in_a_collection_sees_and_changes_its_devices_alone() {
    let farm = Farm::furnished().await;
    for (name, collection) in [("in", "lab"), ("out", "office")] {
        farm.post("/v1/devices", &json!({"name": name, "collection": collection})).await.is(201);
    }
    let ann = farm.user("ann", "administrator", json!({"collection": "lab"})).await;
    let ann = Some(ann.as_str());
    let page = farm.with(ann, Method::GET, "/v1/devices", None).await.is(200);
    assert_eq!((&page["total"], &page["items"][0]["name"]), (&json!(1), &json!("in")));
    let page = farm.with(ann, Method::GET, "/v1/collections", None).await.is(200);
    assert_eq!((&page["total"], &page["items"][0]["name"]), (&json!(1), &json!("lab")));
    farm.with(ann, Method::GET, "/v1/devices/out", None).await.fails(403, "denied");
    let off = json!({"disabled": true});
    farm.with(ann, Method::PATCH, "/v1/devices/in", Some(&off)).await.is(200);
    farm.with(ann, Method::PATCH, "/v1/devices/out", Some(&off)).await.fails(403, "denied");
    let away = json!({"collection": "office"});
    farm.with(ann, Method::PATCH, "/v1/devices/in", Some(&away)).await.fails(403, "denied");
    farm.with(ann, Method::DELETE, "/v1/devices/out", None).await.fails(403, "denied");
    farm.with(ann, Method::GET, "/v1/vdisks", None).await.is(200);
    for path in ["/v1/users", "/v1/tokens", "/v1/grants", "/v1/audit", "/v1/metrics", "/v1/secrets"] {
        farm.with(ann, Method::GET, path, None).await.fails(403, "denied");
    }
    let exported = farm.with(ann, Method::GET, "/v1/devices/export", None).await;
    assert_eq!(exported.text.lines().count(), 2);
    // What runs, too.
    let boots = farm.with(ann, Method::GET, "/v1/boots", None).await.is(200);
    assert_eq!(boots["boots"], json!([{"id": "b1", "device": "in"}]));
    farm.with(ann, Method::GET, "/v1/boots/b3", None).await.fails(404, "not-found");
    for path in ["/v1/stats", "/v1/device-status", "/v1/persistent-caches"] {
        farm.with(ann, Method::GET, path, None).await.is(200);
    }
    // Who looks after nothing sees nothing.
    let bob = farm.user("bob", "read-only", json!({})).await;
    let grant = farm.get("/v1/grants?filter=user%20%3D%20bob").await.is(200)["items"][0]["id"].clone();
    farm.delete(&format!("/v1/grants/{grant}"), "*").await.is(204);
    for path in ["/v1/boots", "/v1/device-status", "/v1/stats", "/v1/events"] {
        farm.with(Some(&bob), Method::GET, path, None).await.fails(403, "denied");
    }
}

#[tokio::test]
async fn table_of_devices_is_held_to_the_rights_in_the_place_of_each_row() {
    let farm = Farm::furnished().await;
    for (name, collection) in [("in", "lab"), ("out", "office")] {
        farm.post("/v1/devices", &json!({"name": name, "collection": collection})).await.is(201);
    }
    let import = async |secret: &str, options: &str, table: &str| {
        let bearer = format!("Bearer {secret}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "text/csv")];
        let path = format!("/v1/devices/import?{options}");
        ask(&farm.network, Method::POST, &path, &headers, Some(&json!(table))).await
    };
    let refused = async |secret: &str, options: &str, table: &str| {
        let problem = import(secret, options, table).await.fails(422, "bad-table");
        let rows = problem["rows"].as_array().unwrap().clone();
        let place = |row: &Value| (row["line"].as_u64().unwrap(), row["column"].as_str().unwrap().to_owned());
        assert!(rows.iter().all(|row| row["why"].as_str().unwrap().contains("administrator")), "{problem}");
        rows.iter().map(place).collect::<Vec<_>>()
    };
    let ann = farm.user("ann", "administrator", json!({"collection": "lab"})).await;
    let made = import(&ann, "update=true", "name,collection,kind\nnew,lab,test\nin,lab,test\n").await.is(200);
    assert_eq!((&made["made"], &made["changed"]), (&json!(1), &json!(1)));
    let table = "name,collection\nfresh,office\nout,lab\nin,office\nnew,lab\n";
    let places =
        [(2, "collection"), (3, "name"), (4, "collection")].map(|(line, column)| (line, column.to_owned()));
    assert_eq!(refused(&ann, "update=true", table).await, places);
    // Without a collection, a row is about the device where it is.
    assert_eq!(refused(&ann, "update=true", "name,kind\nout,test\n").await, [(2, "name".to_owned())]);
    let cellar = "name,site,collection\nfresh,Main,cellar\n";
    assert_eq!(refused(&ann, "make_collections=true", cellar).await, [(2, "collection".to_owned())]);
    assert_eq!(farm.get("/v1/devices").await.is(200)["total"], 3);
    let sam = farm.user("sam", "administrator", json!({"site": "Main"})).await;
    let made = import(&sam, "make_collections=true", cellar).await.is(200);
    assert_eq!((&made["made"], &made["collections"]), (&json!(1), &json!(1)));
    let eve = farm.user("eve", "operator", json!({})).await;
    import(&eve, "dry_run=true", cellar).await.fails(403, "denied");
}

#[tokio::test]
async fn chap_secrets_are_kept_named_and_never_told() {
    let farm = Farm::furnished().await;
    let short = json!({"name": "lab", "secret": "short"});
    let problem = farm.post("/v1/secrets", &short).await.fails(400, "bad-value");
    assert!(
        problem["field"] == "secret" && !problem["message"].as_str().unwrap().contains("short"),
        "{problem}"
    );
    farm.post("/v1/secrets", &json!({"name": "lab", "secret": "three walnut boats"})).await.is(204);
    let chap = json!({"user": "u", "secret": "lab"});
    farm.post("/v1/devices", &json!({"name": "in", "collection": "lab", "chap": chap})).await.is(201);
    let listed = farm.get("/v1/secrets").await.is(200);
    assert_eq!(listed["items"], json!([{"name": "lab", "kept": true, "devices": ["in"]}]));
    let used = farm.send(Method::DELETE, "/v1/secrets/lab", &[], None).await.fails(409, "in-use");
    assert!(used["message"].as_str().unwrap().contains("in"), "{used}");
    farm.delete("/v1/devices/in", "*").await.is(204);
    farm.send(Method::DELETE, "/v1/secrets/lab", &[], None).await.is(204);
    farm.send(Method::DELETE, "/v1/secrets/lab", &[], None).await.fails(404, "not-found");
    let audit = farm.get("/v1/audit/export").await.text;
    assert!(
        audit.contains("keep-secret") && audit.contains("forget-secret") && !audit.contains("walnut"),
        "{audit}"
    );
}

#[tokio::test]
async fn operator_runs_devices_and_changes_nothing() {
    let farm = Farm::furnished().await;
    farm.post("/v1/devices", &json!({"name": "lab-001", "collection": "lab"})).await.is(201);
    let bob = farm.user("bob", "operator", json!({"site": "Main"})).await;
    let bob = Some(bob.as_str());
    farm.with(bob, Method::POST, "/v1/devices/lab-001/reset", None).await.is(204);
    let path = "/v1/devices/lab-001/reset?discard_persistent=true";
    farm.with(bob, Method::POST, path, None).await.fails(403, "denied");
    farm.with(bob, Method::PATCH, "/v1/devices/lab-001", Some(&json!({}))).await.fails(403, "denied");
}

#[tokio::test]
async fn token_is_told_once_and_narrows_its_user() {
    let farm = Farm::furnished().await;
    let admin = farm.user("ann", "administrator", json!({})).await;
    let body =
        json!({"user": "ann", "name": "ci", "role": "read-only", "expires_at": "2099-01-01T00:00:00Z"});
    let made = farm.with(Some(&admin), Method::POST, "/v1/tokens", Some(&body)).await.is(201);
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("hwt_"));
    let listed = farm.get("/v1/tokens").await;
    assert!(!listed.text.contains(&secret[4..]) && !listed.text.contains("digest"), "{}", listed.text);
    farm.with(Some(secret), Method::GET, "/v1/devices", None).await.is(200);
    let site = json!({"name": "x"});
    farm.with(Some(secret), Method::POST, "/v1/sites", Some(&site)).await.fails(403, "denied");
    let own = json!({"old": PASSWORD, "new": "four walnut boats"});
    farm.with(Some(secret), Method::POST, "/v1/me/password", Some(&own)).await.fails(401, "unauthenticated");
    let me = farm.with(Some(secret), Method::GET, "/v1/me", None).await.is(200);
    assert_eq!(me["token"]["role"], "read-only");
    farm.patch("/v1/tokens/ann%2Fci", "*", &json!({"disabled": true})).await.is(200);
    farm.with(Some(secret), Method::GET, "/v1/devices", None).await.fails(401, "unauthenticated");
    let past = json!({"user": "ann", "name": "old", "role": "read-only", "expires_at": "2020-01-01"});
    let problem = farm.post("/v1/tokens", &past).await.fails(400, "bad-value");
    assert_eq!(problem["field"], "expires_at");
}

#[tokio::test]
async fn user_who_is_disabled_or_gets_another_password_is_out_at_once() {
    let farm = Farm::furnished().await;
    let ann = farm.user("ann", "administrator", json!({})).await;
    farm.post("/v1/users/ann/password", &json!({"password": "five walnut boats", "must_change": true}))
        .await
        .is(204);
    farm.with(Some(&ann), Method::GET, "/v1/me", None).await.fails(401, "unauthenticated");
    let ann = farm.log_in("ann", "five walnut boats").await;
    farm.with(Some(&ann), Method::GET, "/v1/sites", None).await.fails(403, "denied");
    let own = json!({"old": "five walnut boats", "new": PASSWORD});
    farm.with(Some(&ann), Method::POST, "/v1/me/password", Some(&own)).await.is(204);
    farm.with(Some(&ann), Method::GET, "/v1/sites", None).await.is(200);
    farm.patch("/v1/users/ann", "*", &json!({"disabled": true})).await.is(200);
    farm.with(Some(&ann), Method::GET, "/v1/sites", None).await.fails(401, "unauthenticated");
    farm.delete("/v1/users/ann", "*").await.is(204);
    assert_eq!(farm.get("/v1/grants").await.is(200)["total"], 0);
}

#[tokio::test]
async fn guessing_is_answered_with_when_to_come_back() {
    let farm = Farm::furnished().await;
    farm.user("ann", "read-only", json!({})).await;
    let wrong = json!({"user": "ann", "password": "wrong wrong wrong"});
    for _ in 0..6 {
        farm.with(None, Method::POST, "/v1/login", Some(&wrong)).await.fails(401, "unauthenticated");
    }
    let right = json!({"user": "ann", "password": PASSWORD});
    let answer = farm.with(None, Method::POST, "/v1/login", Some(&right)).await;
    assert!(answer.header("retry-after").parse::<u32>().is_ok_and(|seconds| seconds >= 1));
    answer.fails(429, "throttled");
}
