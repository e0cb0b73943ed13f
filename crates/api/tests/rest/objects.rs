//! Objects: made, listed, changed and taken away.
use axum::http::Method;
use serde_json::{Value, json};

use crate::farm::Farm;

#[tokio::test]
async fn object_is_made_shown_changed_and_taken_away() {
    let farm = Farm::new();
    let made = farm.post("/v1/sites", &json!({"name": "Main"})).await;
    assert_eq!(made.header("etag"), "\"1\"");
    let location = made.header("location").to_owned();
    let site = made.is(201);
    assert_eq!(
        (&site["name"], &site["description"], &site["disabled"]),
        (&json!("Main"), &json!(""), &json!(false))
    );
    assert_eq!(location, format!("/v1/sites/{}", site["id"]));
    assert_eq!(farm.get(&location).await.is(200), site);
    assert_eq!(farm.get("/v1/sites/MAIN").await.is(200), site, "a name, whatever its case");
    let changed = farm.patch("/v1/sites/Main", "\"1\"", &json!({"description": "north"})).await;
    assert_eq!(changed.header("etag"), "\"2\"");
    assert_eq!(changed.is(200)["description"], "north");
    let taken = farm.patch(&location, "*", &json!({"description": null})).await.is(200);
    assert_eq!((&taken["description"], &taken["revision"]), (&json!(""), &json!(3)));
    assert_eq!(farm.delete(&location, "\"3\"").await.is(204), Value::Null);
    farm.get(&location).await.fails(404, "not-found");
}

#[tokio::test]
async fn write_cache_of_which_only_the_limit_is_said_is_on_the_servers_disk() {
    let farm = Farm::furnished().await;
    let vdisk = json!({"name": "win12", "store": "images", "write_cache": {"limit_bytes": 5_u64 << 30}});
    let made = farm.post("/v1/vdisks", &vdisk).await.is(201);
    let expected = json!({"kind": "server-disk", "limit_bytes": 5_u64 << 30, "warn_percent": 80});
    assert_eq!(made["write_cache"], expected);
    let memory = json!({"write_cache": {"kind": "server-memory"}});
    farm.patch("/v1/vdisks/win12", "*", &memory).await.is(200);
    let limit = json!({"write_cache": {"limit_bytes": 1_u64 << 30}});
    let changed = farm.patch("/v1/vdisks/win12", "*", &limit).await.is(200);
    assert_eq!(changed["write_cache"]["kind"], "server-memory", "what was said before stays");
}

#[tokio::test]
async fn change_of_a_state_that_is_gone_is_refused() {
    let farm = Farm::new();
    farm.post("/v1/sites", &json!({"name": "Main"})).await.is(201);
    farm.patch("/v1/sites/Main", "\"1\"", &json!({"disabled": true})).await.is(200);
    farm.patch("/v1/sites/Main", "\"1\"", &json!({"disabled": false})).await.fails(412, "stale");
    farm.delete("/v1/sites/Main", "\"1\"").await.fails(412, "stale");
    let answer = farm.send(Method::PATCH, "/v1/sites/Main", &[], Some(&json!({}))).await;
    assert!(answer.fails(428, "if-match-needed")["hint"].as_str().unwrap().contains("ETag"));
    farm.patch("/v1/sites/Main", "1", &json!({})).await.fails(400, "bad-request");
    assert_eq!(farm.get("/v1/sites/Main").await.is(200)["disabled"], true);
}

#[tokio::test]
async fn what_has_not_changed_is_not_told_again() {
    let farm = Farm::new();
    farm.post("/v1/sites", &json!({"name": "Main"})).await.is(201);
    for tag in ["\"1\"", "W/\"1\"", "\"7\", \"1\"", "*"] {
        let answer = farm.send(Method::GET, "/v1/sites/Main", &[("if-none-match", tag)], None).await;
        assert_eq!((answer.status.as_u16(), answer.text.as_str()), (304, ""), "{tag}");
    }
    let answer = farm.send(Method::GET, "/v1/sites/Main", &[("if-none-match", "\"2\"")], None).await;
    answer.is(200);
}

#[tokio::test]
async fn repeated_creation_with_a_key_is_done_once() {
    let farm = Farm::new();
    let headers = [("idempotency-key", "k-1")];
    let body = json!({"name": "Main"});
    let once = farm.send(Method::POST, "/v1/sites", &headers, Some(&body)).await;
    let again = farm.send(Method::POST, "/v1/sites", &headers, Some(&body)).await;
    assert_eq!(
        (once.header("etag"), once.header("location")),
        (again.header("etag"), again.header("location"))
    );
    assert_eq!(once.is(201), again.is(201));
    let other = json!({"name": "Other"});
    farm.send(Method::POST, "/v1/sites", &headers, Some(&other)).await.fails(422, "key-reused");
    farm.send(Method::POST, "/v1/sites", &[], Some(&body)).await.fails(409, "conflict");
    assert_eq!(farm.get("/v1/sites").await.is(200)["total"], 1);
    // What failed is not kept: the key is good for another try.
    let headers = [("idempotency-key", "k-2")];
    let bad = json!({"name": "a", "site": "Nowhere"});
    farm.send(Method::POST, "/v1/collections", &headers, Some(&bad)).await.fails(400, "bad-value");
    let good = json!({"name": "a", "site": "Main"});
    farm.send(Method::POST, "/v1/collections", &headers, Some(&good)).await.is(201);
}

#[tokio::test]
async fn bad_values_are_told_with_field_and_rule() {
    let farm = Farm::furnished().await;
    let cases = [
        ("sites", json!({"name": "a/b"}), "name", "without"),
        ("sites", json!({}), "", "name"),
        ("sites", json!({"name": "x", "nmae": "y"}), "nmae", "unknown field"),
        ("collections", json!({"name": "x", "site": "Nowhere"}), "site", "no site"),
        ("servers", json!({"name": "two", "site": "Main", "weight": 0}), "weight", "1 to 1000"),
        (
            "servers",
            json!({"name": "two", "site": "Main", "addresses": ["::1", "x"]}),
            "addresses[1]",
            "IP address",
        ),
        (
            "devices",
            json!({"name": "pc", "collection": "lab", "macs": ["52:54:00:00:00:01", "x"]}),
            "macs[1]",
            "MAC",
        ),
        (
            "devices",
            json!({"name": "pc", "collection": "lab", "disks": [{"vdisk": "win10"}]}),
            "disks[0].vdisk",
            "win10",
        ),
        ("devices", json!({"name": "pc", "collection": "lab", "kind": "x"}), "kind", "production, test"),
        (
            "vdisks",
            json!({"name": "x", "store": "images", "mode": "private", "write_cache": {"kind": "server-disk", "limit_bytes": 1}}),
            "write_cache",
            "private",
        ),
        (
            "vdisks",
            json!({"name": "x", "store": "images", "write_cache": {"kind": "server-disk", "limit_bytes": u64::MAX}}),
            "write_cache.limit_bytes",
            "8 EiB",
        ),
        ("views", json!({"name": "v", "of": "devices", "filter": "colour = red"}), "filter", "colour"),
    ];
    for (kind, body, field, says) in cases {
        let problem = farm.post(&format!("/v1/{kind}"), &body).await.fails(400, "bad-value");
        assert_eq!(problem["field"].as_str().unwrap_or_default(), field, "{problem}");
        assert!(problem["message"].as_str().unwrap().contains(says), "{problem}");
    }
    let text = json!("{\"name\": ");
    let headers = [("content-type", "application/json")];
    farm.send(Method::POST, "/v1/sites", &headers, Some(&text)).await.fails(400, "bad-request");
    let headers = [("content-type", "text/plain")];
    farm.send(Method::POST, "/v1/sites", &headers, Some(&text)).await.fails(415, "bad-request");
    farm.post("/v1/sites", &json!(["x"])).await.fails(400, "bad-value");
    for (patch, field) in [(json!({"": null}), ""), (json!({"nmae": null}), "nmae")] {
        let problem = farm.patch("/v1/sites/Main", "*", &patch).await.fails(400, "bad-value");
        assert_eq!(problem["field"], field, "{problem}");
    }
}

#[tokio::test]
async fn device_is_told_with_what_it_refers_to_and_can_be_sent_back_as_it_is() {
    let farm = Farm::furnished().await;
    let body = json!({
        "name": "pc-1", "collection": "Main/lab", "macs": ["52-54-00-00-00-01"],
        "disks": [{"vdisk": "images/win11", "menu_text": "Windows"}],
        "write_cache": {"limit_bytes": 1 << 30}, "personality": {"Room": "B12"},
    });
    let device = farm.post("/v1/devices", &body).await.is(201);
    assert_eq!(device["collection"]["name"], "Main/lab");
    assert_eq!(device["site"]["name"], "Main");
    assert_eq!(device["macs"], json!(["52:54:00:00:00:01"]));
    assert_eq!(device["disks"][0]["vdisk"]["name"], "images/win11");
    assert_eq!(device["kind"], "production");
    let again = farm.patch("/v1/devices/pc-1", "*", &device).await.is(200);
    assert_eq!(again, device, "nothing changed, the revision included");
    let elsewhere = json!({"collection": "office", "personality": {"Room": null, "Floor": "3"}});
    let moved = farm.patch("/v1/devices/pc-1", "*", &elsewhere).await.is(200);
    assert_eq!(
        (&moved["collection"]["name"], &moved["personality"]),
        (&json!("Main/office"), &json!({"Floor": "3"}))
    );
    let lie = farm.patch("/v1/devices/pc-1", "*", &json!({"id": 1})).await;
    lie.fails(400, "bad-value");
}

#[tokio::test]
async fn new_device_gets_what_its_collections_template_gets() {
    let farm = Farm::furnished().await;
    let template = json!({"name": "template", "collection": "lab", "disks": [{"vdisk": "win11"}], "local_disk": "offered"});
    farm.post("/v1/devices", &template).await.is(201);
    farm.patch("/v1/collections/lab", "*", &json!({"template": "template"})).await.is(200);
    let one = farm.post("/v1/devices", &json!({"name": "one", "collection": "lab"})).await.is(201);
    assert_eq!((&one["local_disk"], one["disks"].as_array().map(Vec::len)), (&json!("offered"), Some(1)));
    let two =
        farm.post("/v1/devices", &json!({"name": "two", "collection": "lab", "kind": "test"})).await.is(201);
    assert_eq!((&two["local_disk"], &two["disks"]), (&json!("no"), &json!([])));
    let copied = farm.post("/v1/devices/template/copy-profile", &json!({"to": ["two", "one"]})).await.is(200);
    assert_eq!(copied, json!({"changed": 1, "same": 1}));
    let unknown = farm.post("/v1/devices/template/copy-profile", &json!({"to": ["one", "three"]})).await;
    assert_eq!(unknown.fails(400, "bad-value")["field"], "to[1]");
}

#[tokio::test]
async fn list_comes_in_pages_filtered_and_sorted() {
    let farm = Farm::furnished().await;
    for number in 1..=25 {
        let kind = if number % 5 == 0 { "test" } else { "production" };
        let body = json!({"name": format!("pc-{number:02}"), "collection": "lab", "kind": kind});
        farm.post("/v1/devices", &body).await.is(201);
    }
    let mut names = Vec::new();
    let mut path = "/v1/devices?limit=10&sort=-name".to_owned();
    loop {
        let page = farm.get(&path).await.is(200);
        assert_eq!(page["total"], 25);
        names.extend(
            page["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/devices?limit=10&sort=-name&cursor={next}");
    }
    assert_eq!(
        (names.len(), names.first().unwrap().as_str(), names.last().unwrap().as_str()),
        (25, "pc-25", "pc-01")
    );
    let some = farm.get("/v1/devices?filter=kind%20%3D%20test%20and%20name%20~%20%22pc-2*%22").await.is(200);
    assert_eq!(some["total"], 2);
    for (query, field) in [
        ("filter=colour%20=%20red", "filter"),
        ("filter=(", "filter"),
        ("sort=colour", "order"),
        ("cursor=x", "cursor"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
    ] {
        let problem = farm.get(&format!("/v1/devices?{query}")).await.fails(400, "bad-value");
        assert_eq!(problem["field"], field, "{problem}");
    }
    farm.get("/v1/devices?fliter=x").await.fails(400, "bad-request");
    farm.get("/v1/devices?limit=1&limit=2").await.fails(400, "bad-request");
    for after in ["-1", "x", "9223372036854775808"] {
        let answer = farm.get(&format!("/v1/audit/export?after={after}")).await;
        assert_eq!(answer.fails(400, "bad-value")["field"], "after");
    }
}

#[tokio::test]
async fn what_others_need_is_not_taken_away_and_they_are_named() {
    let farm = Farm::furnished().await;
    let problem = farm.delete("/v1/stores/images", "*").await.fails(409, "in-use");
    assert!(problem["message"].as_str().unwrap().contains("win11"), "{problem}");
    let problem = farm.post("/v1/sites", &json!({"name": "main"})).await.fails(409, "conflict");
    assert!(problem["message"].as_str().unwrap().contains("Main"), "{problem}");
}

#[tokio::test]
async fn name_that_is_in_several_places_takes_the_place_as_well() {
    let farm = Farm::furnished().await;
    farm.post("/v1/sites", &json!({"name": "Branch"})).await.is(201);
    farm.post("/v1/collections", &json!({"name": "lab", "site": "Branch"})).await.is(201);
    farm.get("/v1/collections/lab").await.fails(409, "conflict");
    let lab = farm.get("/v1/collections/Branch%2Flab").await.is(200);
    assert_eq!(lab["site"]["name"], "Branch");
    farm.post("/v1/sites", &json!({"name": "7"})).await.is(201);
    assert_eq!(farm.get("/v1/sites/name:7").await.is(200)["name"], "7");
    farm.get("/v1/sites/99999999999999999999").await.fails(404, "not-found");
    let problem =
        farm.post("/v1/devices", &json!({"name": "pc", "collection": "lab"})).await.fails(400, "bad-value");
    assert_eq!(problem["field"], "collection");
}

#[tokio::test]
async fn table_of_devices_is_imported_whole_or_not_at_all() {
    let farm = Farm::furnished().await;
    let csv = |text: &str| json!(text);
    let headers = [("content-type", "text/csv")];
    let table = csv(
        "name,collection,mac,vdisks\npc-1,lab,52:54:00:00:00:01,win11\npc-2,lab,52:54:00:00:00:02,win11\n",
    );
    let path = "/v1/devices/import";
    let dry = farm.send(Method::POST, &format!("{path}?dry_run=true"), &headers, Some(&table)).await.is(200);
    assert_eq!(dry, json!({"dry_run": true, "made": 2, "changed": 0, "same": 0, "collections": 0}));
    assert_eq!(farm.get("/v1/devices").await.is(200)["total"], 0);
    farm.send(Method::POST, path, &headers, Some(&table)).await.is(200);
    let bad = csv("name,collection,mac\npc-3,lab,52:54:00:00:00:03\npc-4,cellar,x\n");
    let problem = farm.send(Method::POST, path, &headers, Some(&bad)).await.fails(422, "bad-table");
    assert_eq!((&problem["rows"][0]["line"], &problem["rows"][0]["column"]), (&json!(3), &json!("mac")));
    let bad = csv("name,collection\npc-3,lab\npc-4,cellar\n");
    let problem = farm.send(Method::POST, path, &headers, Some(&bad)).await.fails(422, "bad-table");
    assert_eq!(
        (&problem["rows"][0]["line"], &problem["rows"][0]["column"]),
        (&json!(3), &json!("collection"))
    );
    assert_eq!(farm.get("/v1/devices").await.is(200)["total"], 2);
    let exported = farm.get("/v1/devices/export?filter=name%20%3D%20pc-1").await;
    assert!(exported.header("content-type").starts_with("text/csv"));
    assert!(
        exported.text.lines().count() == 2 && exported.text.contains("images/win11"),
        "{}",
        exported.text
    );
}

#[tokio::test]
async fn view_lists_what_fits_it_now() {
    let farm = Farm::furnished().await;
    for (name, kind) in [("a", "test"), ("b", "production")] {
        farm.post("/v1/devices", &json!({"name": name, "collection": "lab", "kind": kind})).await.is(201);
    }
    let view = json!({"name": "testers", "of": "devices", "filter": "kind = test", "site": "Main"});
    farm.post("/v1/views", &view).await.is(201);
    let items = farm.get("/v1/views/testers/items").await.is(200);
    assert_eq!((&items["total"], &items["items"][0]["name"]), (&json!(1), &json!("a")));
    farm.patch("/v1/devices/b", "*", &json!({"kind": "test"})).await.is(200);
    assert_eq!(farm.get("/v1/views/testers/items").await.is(200)["total"], 2);
}

#[tokio::test]
async fn every_change_is_in_the_audit_with_who_what_and_before() {
    let farm = Farm::furnished().await;
    farm.send(
        Method::PATCH,
        "/v1/sites/Main",
        &[("if-match", "*"), ("x-request-id", "ticket-17")],
        Some(&json!({"disabled": true})),
    )
    .await
    .is(200);
    let page = farm.get("/v1/audit?sort=-number&limit=1").await.is(200);
    let entry = &page["items"][0];
    assert_eq!(
        (&entry["actor"], &entry["origin"], &entry["request"]),
        (&json!("root"), &json!("local"), &json!("ticket-17"))
    );
    assert_eq!(
        (&entry["before"], &entry["after"]),
        (&json!({"disabled": false}), &json!({"disabled": true}))
    );
    assert_eq!(farm.get(&format!("/v1/audit/{}", entry["number"])).await.is(200), *entry);
    let number = entry["number"].as_i64().unwrap();
    let lines = farm.get(&format!("/v1/audit/export?after={}", number - 2)).await;
    assert_eq!(lines.text.lines().count(), 2);
    farm.get("/v1/audit/0").await.fails(404, "not-found");
}

#[tokio::test]
async fn block_requests_of_a_device_are_recorded_and_given_as_a_table() {
    let farm = Farm::furnished().await;
    for name in ["lab-001", "lab-002"] {
        farm.post("/v1/devices", &json!({"name": name, "collection": "lab"})).await.is(201);
    }
    let start = |query: &str| format!("/v1/devices/lab-001/trace/start{query}");
    let begun = farm.send(Method::POST, &start("?next_boot=true&seconds=9"), &[], None).await.is(200);
    assert_eq!(begun["state"], "waiting");
    farm.send(Method::POST, &start("?seconds=0"), &[], None).await.fails(400, "bad-value");
    let done = farm.send(Method::POST, "/v1/devices/lab-001/trace/stop", &[], None).await.is(200);
    assert_eq!(done["state"], "done");
    let table = farm.get("/v1/devices/lab-001/trace/table").await;
    assert!(table.header("content-type").starts_with("text/csv"));
    assert!(table.text.starts_with("time_us,operation"));
    for path in ["/v1/devices/lab-002/trace", "/v1/devices/lab-002/trace/table"] {
        farm.get(path).await.fails(404, "not-found");
    }
}

#[tokio::test]
async fn what_the_server_knows_is_told_and_devices_are_reset() {
    let farm = Farm::furnished().await;
    farm.post("/v1/devices", &json!({"name": "lab-001", "collection": "lab"})).await.is(201);
    assert_eq!(farm.get("/v1/devices/lab-001/status").await.is(200)["status"], "off");
    farm.post("/v1/devices", &json!({"name": "lab-002", "collection": "lab"})).await.is(201);
    farm.get("/v1/devices/lab-002/status").await.fails(404, "not-found");
    farm.send(Method::POST, "/v1/devices/lab-001/reset?discard_persistent=true", &[], None).await.is(204);
    assert_eq!(*farm.resets.lock().unwrap(), [("lab-001".to_owned(), true)]);
    assert_eq!(farm.get("/v1/boots/b1").await.is(200)["boots"][0]["id"], "b1");
    farm.get("/v1/boots/b2").await.fails(404, "not-found");
    assert!(farm.get("/v1/metrics").await.header("content-type").starts_with("text/plain; version=0.0.4"));
    assert_eq!(farm.get("/v1/status").await.is(200)["uptime_s"], 1);
}

#[tokio::test]
async fn body_that_is_too_large_is_refused_before_it_is_read() {
    let farm = Farm::new();
    let large = json!({"name": "x".repeat(2 << 20)});
    farm.post("/v1/sites", &large).await.fails(413, "too-large");
    farm.get("/v1/nothing").await.fails(404, "not-found");
    farm.send(Method::DELETE, "/v1/sites", &[], None).await.fails(405, "bad-request");
}

#[tokio::test]
async fn answer_to_a_key_is_forgotten_after_a_day() {
    let farm = Farm::furnished().await;
    let headers = [("idempotency-key", "k-1")];
    let make = |name: &str| json!({"name": name});
    farm.send(Method::POST, "/v1/sites", &headers, Some(&make("One"))).await.is(201);
    farm.wait(24 * 60 * 60 + 1);
    let other = [("idempotency-key", "k-2")];
    farm.send(Method::POST, "/v1/sites", &other, Some(&make("Two"))).await.is(201);
    farm.send(Method::POST, "/v1/sites", &headers, Some(&make("Three"))).await.is(201);
}

#[tokio::test]
async fn space_of_a_vdisk_is_told_by_servers_that_reach_its_store() {
    let farm = Farm::furnished().await;
    farm.get("/v1/vdisks/win11/space").await.fails(409, "store-unreachable");
    farm.get("/v1/vdisks/none/space").await.fails(404, "not-found");
}
