//! What the servers of a farm carry, and who is told.
use axum::http::Method;
use farm::model::{Id, ServerId, Timestamp};
use serde_json::{Value, json};

use crate::farm::Farm;

fn load(devices: u64) -> Value {
    json!({
        "version": "0.1.0", "uptime_s": 3725, "devices": devices, "sessions": devices, "booting": 1, "at_once": 20, "waiting": 0,
        "longest_wait_s": 0, "processors_busy": 1.25, "processors": 4, "memory_bytes": 1 << 20, "cache_memory_bytes": 0,
        "cache_memory_limit_bytes": 0, "read_bytes_per_second": 7, "written_bytes_per_second": 0, "requests_per_second": 1,
        "hit_share": null,
    })
}

fn report(farm: &Farm, server: &Value, load: Option<&Value>) -> Timestamp {
    let server: ServerId = Id::new(server["id"].as_i64().unwrap()).unwrap();
    let load = load.map(Value::to_string);
    let by = farm.control.system();
    let at = farm.control.now();
    let told = farm
        .control
        .catalogue()
        .change(by.actor(), at, |change| change.report_server(server, load.as_deref()));
    told.unwrap();
    at
}

#[tokio::test]
async fn servers_are_told_with_their_state_and_what_they_carry() {
    let farm = Farm::furnished().await;
    let one = farm.get("/v1/servers/one.example.org").await.is(200);
    let path = "/v1/servers/one.example.org/load";
    let told = farm.get(path).await.is(200);
    assert_eq!(
        (&told["state"], &told["heard_at"], &told["load"]),
        (&json!("never-heard"), &Value::Null, &Value::Null)
    );
    let two = json!({"name": "two", "site": "Main", "max_devices": 40, "disabled": true});
    let two = farm.post("/v1/servers", &two).await.is(201);

    let at = report(&farm, &one, Some(&load(3)));
    report(&farm, &two, Some(&load(7)));
    let all = farm.get("/v1/server-loads?sort=name").await.is(200);
    let reference = json!({"id": one["id"], "name": "one.example.org"});
    let expected = json!({
        "server": reference, "site": one["site"], "disabled": false, "max_devices": null, "state": "running",
        "heard_at": at.to_string(), "load": load(3),
    });
    assert_eq!((&all["total"], &all["items"][0]), (&json!(2), &expected));
    assert_eq!(farm.get(path).await.is(200), expected);
    let (second, only) = (&all["items"][1], farm.get("/v1/server-loads?filter=disabled").await.is(200));
    assert_eq!((&second["max_devices"], &second["load"]["devices"]), (&json!(40), &json!(7)));
    assert_eq!((&only["total"], &only["items"][0]), (&json!(1), second));
    assert_eq!(
        farm.get("/v1/servers/one.example.org").await.is(200),
        one,
        "the server itself is what it was"
    );

    // One goes on telling, one stops, and then one falls silent.
    farm.wait(30);
    report(&farm, &two, None);
    farm.wait(6);
    let told = farm.get(path).await.is(200);
    assert_eq!(
        (&told["state"], &told["load"]),
        (&json!("silent"), &load(3)),
        "what it carried last stays known"
    );
    let told = farm.get("/v1/servers/two/load").await.is(200);
    assert_eq!((&told["state"], &told["load"]), (&json!("stopped"), &Value::Null));
    report(&farm, &one, Some(&json!({"words": "of a later version"})));
    let told = farm.get(path).await.is(200);
    assert_eq!((&told["state"], &told["load"]), (&json!("running"), &Value::Null));
    farm.get("/v1/servers/three/load").await.fails(404, "not-found");
}

#[tokio::test]
async fn whoever_may_see_servers_is_told_what_they_carry_and_nobody_else() {
    let farm = Farm::furnished().await;
    let lea = farm.user("lea", "read-only", json!({"collection": "Main/lab"})).await;
    let bob = farm.user("bob", "read-only", json!({})).await;
    let grant = farm.get("/v1/grants?filter=user%20%3D%20bob").await.is(200)["items"][0]["id"].clone();
    farm.delete(&format!("/v1/grants/{grant}"), "*").await.is(204);
    for (list, one) in [
        ("/v1/servers", "/v1/servers/one.example.org"),
        ("/v1/server-loads", "/v1/servers/one.example.org/load"),
    ] {
        for path in [list, one] {
            farm.with(Some(&lea), Method::GET, path, None).await.is(200);
            farm.with(Some(&bob), Method::GET, path, None).await.fails(403, "denied");
            farm.with(None, Method::GET, path, None).await.fails(401, "unauthenticated");
        }
    }
}
