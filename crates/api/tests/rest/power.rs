//! Waking devices, and commands for their systems.
use axum::http::Method;
use serde_json::{Value, json};

use crate::farm::Farm;

/// With devices in both collections, one of them off.
async fn with_devices() -> Farm {
    let farm = Farm::furnished().await;
    for (name, collection) in [("in-1", "lab"), ("in-2", "lab"), ("off", "lab"), ("out", "office")] {
        farm.post("/v1/devices", &json!({"name": name, "collection": collection})).await.is(201);
    }
    farm
}

fn names(answer: &Value) -> Vec<&str> {
    answer["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

/// What the audit tells of devices: action, name and details.
async fn audited(farm: &Farm) -> Vec<(String, String, Value)> {
    let entries = farm.get("/v1/audit?limit=100").await.is(200);
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let of_devices = entries["items"].as_array().unwrap().iter().filter(|entry| entry["kind"] == "device");
    let mut told: Vec<_> = of_devices
        .filter(|entry| entry["action"] != "create")
        .map(|entry| (word(&entry["action"]), word(&entry["name"]), entry["after"].clone()))
        .collect();
    told.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    told
}

#[tokio::test]
async fn command_goes_to_the_devices_of_a_collection_and_is_audited_for_those_that_get_it() {
    let farm = with_devices().await;
    let body = json!({"command": "message", "text": "We close at six.\n", "collection": "Main/lab"});
    let mut rehearsal = body.clone();
    rehearsal["dry_run"] = json!(true);
    let would = farm.post("/v1/commands", &rehearsal).await.is(200);
    assert_eq!((names(&would), &would["id"]), (vec!["in-1", "in-2", "off"], &Value::Null));
    assert_eq!(audited(&farm).await, []);
    assert_eq!(farm.get("/v1/commands").await.is(200)["items"], json!([]));

    let given = farm.post("/v1/commands", &body).await.is(200);
    assert_eq!(
        (&given["id"], &given["text"], &given["expires_at"]),
        (&json!(7), &json!("We close at six."), &json!("120"))
    );
    assert_eq!(given["items"][2]["problem"], "it is off");
    let entry = |name: &str| ("message".to_owned(), name.to_owned(), json!({"text": "We close at six."}));
    assert_eq!(audited(&farm).await, [entry("in-1"), entry("in-2")]);
    assert_eq!(farm.get("/v1/commands/7").await.is(200), given);
    farm.get("/v1/commands/8").await.fails(404, "not-found");

    let one =
        farm.post("/v1/devices/out/commands", &json!({"command": "reboot", "expires_s": 5})).await.is(200);
    assert_eq!((names(&one), &one["expires_at"]), (vec!["out"], &json!("5")));
    let of_device = farm.get("/v1/devices/in-1/commands").await.is(200);
    assert_eq!(
        (names(&of_device["items"][0]), of_device["items"].as_array().unwrap().len()),
        (vec!["in-1"], 1)
    );
}

#[tokio::test]
async fn operator_commands_the_devices_of_a_collection_alone_and_sees_no_others() {
    let farm = with_devices().await;
    let (bob, cid) = (
        farm.user("bob", "operator", json!({"collection": "Main/lab"})).await,
        farm.user("cid", "read-only", json!({"collection": "Main/lab"})).await,
    );
    let reboot = |who: &str| json!({"command": "reboot", "devices": [who]});
    let (post, bob) = (Method::POST, Some(bob.as_str()));
    farm.with(bob, post.clone(), "/v1/commands", Some(&reboot("in-1"))).await.is(200);
    farm.with(bob, post.clone(), "/v1/wake", Some(&json!({"devices": ["in-1"]}))).await.is(200);
    for (who, device) in [(bob, "out"), (Some(cid.as_str()), "in-1")] {
        farm.with(who, post.clone(), "/v1/commands", Some(&reboot(device))).await.fails(403, "denied");
        let path = format!("/v1/devices/{device}/commands");
        farm.with(who, post.clone(), &path, Some(&json!({"command": "shutdown"}))).await.fails(403, "denied");
        farm.with(who, post.clone(), "/v1/wake", Some(&json!({"devices": [device]})))
            .await
            .fails(403, "denied");
    }
    // One that may not be operated among many: nothing is done.
    let all = json!({"command": "reboot", "filter": "name != nobody"});
    farm.with(bob, post, "/v1/commands", Some(&all)).await.fails(403, "denied");
    farm.post("/v1/commands", &reboot("out")).await.is(200);
    let seen = farm.with(bob, Method::GET, "/v1/commands", None).await.is(200);
    assert_eq!(seen["items"].as_array().unwrap().iter().map(names).collect::<Vec<_>>(), [["in-1"]]);
    assert_eq!(audited(&farm).await.len(), 3, "two of bob's, one of root's");
}

#[tokio::test]
async fn command_that_makes_no_sense_is_refused_with_its_field() {
    let farm = with_devices().await;
    let long = "x".repeat(1001);
    for (body, field) in [
        (json!({"command": "reboot"}), "devices"),
        (json!({"command": "reboot", "text": "why", "devices": ["in-1"]}), "text"),
        (json!({"command": "message", "devices": ["in-1"]}), "text"),
        (json!({"command": "message", "text": "a\u{1b}[2Jb", "devices": ["in-1"]}), "text"),
        (json!({"command": "message", "text": long, "devices": ["in-1"]}), "text"),
        (json!({"command": "reboot", "expires_s": 0, "devices": ["in-1"]}), "expires_s"),
        (json!({"command": "reboot", "expires_s": 3601, "devices": ["in-1"]}), "expires_s"),
        (json!({"command": "explode", "devices": ["in-1"]}), "command"),
        (json!({"command": "reboot", "devices": ["in-1", "nobody"]}), "devices[1]"),
    ] {
        let answer = farm.post("/v1/commands", &body).await;
        assert!(answer.status.is_client_error(), "{body}: {answer:?}");
        assert_eq!(answer.json()["field"], field, "{body}: {answer:?}");
    }
    assert_eq!(audited(&farm).await, []);
}
