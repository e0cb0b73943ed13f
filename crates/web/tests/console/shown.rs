//! What pages show, of a sample farm and of names that mean harm.
use std::sync::atomic::Ordering;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::farm::{Browser, Farm, load};

#[tokio::test(flavor = "multi_thread")]
async fn overview_tells_what_runs_and_what_fills_up() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    farm.report("one.example.org", Some(load()), 0).await;
    let seen = ann.get("/").await;
    seen.shows(&[
        "Works",
        "1 ready",
        "2 off",
        "is nearly full",
        "900 MiB of 1.0 GiB",
        "0.1.0, up 1 h 2 min",
        "0.4 of 4",
        "25.3 MiB/s",
        "310 MiB",
        "write caches",
        "Main",
    ]);
    let part = ann.part("/overview/live").await;
    part.shows(&["1 ready"]);
    assert!(!part.text.contains("<html"), "a part is no whole page");
    ann.get("/overview/live").await.shows(&["<html", "1 ready"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_are_filtered_by_fields_by_state_and_by_what_was_written() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    for (query, shown, hidden) in [
        ("", &["lab-01", "lab-02", "office-01"][..], &[][..]),
        ("?state=ready", &["lab-01", "runs v2"], &["lab-02", "office-01"]),
        ("?q=OFFICE", &["office-01"], &["lab-01"]),
        ("?q=52:54:00:77:00:11", &["lab-02"], &["lab-01"]),
        ("?filter=name+~+lab-*+and+kind+%3D+test", &["lab-02"], &["lab-01", "office-01"]),
        ("?sort=-name", &["aria-sort=\"descending\""], &[]),
    ] {
        let seen = ann.part(&format!("/devices/table{query}")).await;
        seen.shows(shown);
        for name in hidden {
            assert!(!seen.text.contains(&format!(">{name}<")), "{query} shows {name}");
        }
    }
    ann.get("/devices?filter=name+~").await.shows(&["The filter means nothing", "aria-invalid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dangerous_actions_ask_first_with_names_and_numbers() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let id = |name: &str| {
        let path = format!("/v1/devices/{name}");
        let farm = &farm;
        async move { farm.root(Method::GET, &path, &Value::Null).await["id"].to_string() }
    };
    let (one, two) = (id("lab-01").await, id("office-01").await);
    ann.get("/devices").await;
    let marked = [("id", one.as_str()), ("id", two.as_str()), ("what", "reset")];
    let asked = ann.post("/devices/do", &marked).await;
    asked.shows(&[
        "2 devices end at once",
        "1 device",
        "of them run now",
        "lab-01",
        "office-01",
        "headwater device reset lab-01",
        "autofocus",
    ]);
    assert!(farm.resets.lock().unwrap().is_empty(), "nothing is done before it is meant");
    ann.post("/devices/do", &[("id", &one), ("id", &two), ("what", "reset"), ("sure", "yes")]).await;
    assert_eq!(*farm.resets.lock().unwrap(), ["lab-01", "office-01"]);
    let seen = ann.post("/devices/do", &[("what", "reset")]).await;
    assert_eq!(seen.header("location"), "/devices");
    ann.get("/devices").await.shows(&["No device was marked"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn device_page_shows_the_waterfall_of_its_boot_and_compares_it() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/devices/lab-01").await.shows(&[
        "52:54:00:77:00:10",
        "first stage reads",
        "hand-over",
        "32.0 MiB in 100 requests",
        "4.00 s",
    ]);
    let seen = ann.get("/boots/b1?with=b0").await;
    seen.shows(&["ready after 4.00 s", "Difference", "−900 ms", "Sizes of reads"]);
    assert_eq!(ann.get("/boots/b9").await.status, StatusCode::NOT_FOUND);
    assert_eq!(ann.get("/devices/nobody").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_mean_harm_are_shown_as_they_are() {
    let farm = Farm::new().await;
    let hostile = "<script>alert(1)</script>\u{202e}txt.exe\" onmouseover=\"x";
    let body = json!({"name": "lab-66", "collection": "lab", "description": hostile, "personality": {"room": hostile}});
    farm.root(Method::POST, "/v1/devices", &body).await;
    let mut ann = farm.ann().await;
    for path in ["/devices", "/devices/lab-66"] {
        let seen = ann.get(path).await;
        assert_eq!(seen.status, StatusCode::OK);
        for harm in ["<script>alert", "\u{202e}", "\" onmouseover"] {
            assert!(!seen.text.contains(harm), "{path} shows {harm:?}");
        }
    }
    ann.get("/devices/lab-66").await.shows(&["&lt;script&gt;alert(1)&lt;/script&gt;⟨U+202E⟩txt.exe"]);
    let query = "/devices?q=%3Cscript%3Ealert(1)%3C%2Fscript%3E&state=%22%3E%3Cimg%3E";
    let seen = ann.get(query).await;
    assert!(!seen.text.contains("<script>alert") && !seen.text.contains("<img>"), "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_a_part_of_the_farm_sees_that_part_and_why_not_the_rest() {
    let farm = Farm::new().await;
    farm.user("ops", "operator", Some("lab")).await;
    let mut ops = farm.browser("ops").await;
    let seen = ops.get("/devices").await;
    seen.shows(&["lab-01", "lab-02"]);
    assert!(!seen.text.contains("office-01"));
    let seen = ops.get("/").await;
    seen.shows(&["1 ready", "1 off", "The write cache of", "lab-01"]);
    assert!(!seen.text.contains("office-01") && !seen.text.contains("busy with it"), "{}", seen.text);
    assert_eq!(ops.get("/overview/rates").await.status, StatusCode::OK);
    ops.get("/boots").await.shows(&["Boots of the last day"]);
    let id = farm.root(Method::GET, "/v1/devices/lab-01", &Value::Null).await["id"].to_string();
    ops.post("/devices/do", &[("id", &id), ("what", "delete"), ("sure", "yes")]).await;
    ops.get("/devices").await.shows(&["takes the role administrator"]);
    farm.root(Method::GET, "/v1/devices/lab-01", &Value::Null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_that_renews_itself_shows_each_what_their_role_shows() {
    let farm = Farm::new().await;
    farm.user("ops", "operator", Some("lab")).await;
    let (mut ann, mut ops) = (farm.ann().await, farm.browser("ops").await);
    // Each within the second in which the others are told what was read before.
    for _ in 0..3 {
        ann.part("/overview/live").await.shows(&[">3</a>", "2 off", "Page cache"]);
        let seen = ops.part("/overview/live").await;
        seen.shows(&[">2</a>", "1 off", "1 ready"]);
        assert!(!seen.text.contains("Page cache"), "{}", seen.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_a_role_nowhere_sees_an_overview_of_nothing() {
    let farm = Farm::new().await;
    let user = json!({"name": "new", "password": crate::farm::PASSWORD, "must_change_password": false});
    farm.root(Method::POST, "/v1/users", &user).await;
    let mut new = farm.browser("new").await;
    let seen = new.get("/").await;
    seen.shows(&["Your role shows no device"]);
    assert!(!seen.text.contains("lab-01"), "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_tells_of_stores_that_fill_up_or_cannot_be_reached() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/").await.shows(&["Storage", "cannot be reached", "/srv/images", "not there"]);
    let folder = std::env::temp_dir().to_str().unwrap().to_owned();
    let body = json!({"name": "here", "paths": [{"server": "one.example.org", "path": folder}]});
    let other = Farm::empty();
    for (kind, body) in [
        ("farm", json!({"name": "Works"})),
        ("sites", json!({"name": "Main"})),
        ("servers", json!({"name": "one.example.org", "site": "Main"})),
        ("stores", body),
    ] {
        other.root(Method::POST, &format!("/v1/{kind}"), &body).await;
    }
    let seen = other.ann().await.get("/").await;
    seen.shows(&["Storage", ">here<", "<meter"]);
    assert!(!seen.text.contains("cannot be reached"), "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn overview_tells_of_servers_that_are_gone_or_have_too_much_to_do() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    for body in [
        json!({"name": "two", "site": "Main", "max_devices": 10}),
        json!({"name": "off", "site": "Main", "disabled": true}),
    ] {
        farm.root(Method::POST, "/v1/servers", &body).await;
    }
    let marks =
        ["not heard of since", "of the 10 that it takes", "processors busy", "wait for a place to boot"];
    let told = |text: &str| marks.map(|mark| text.contains(mark));
    let seen = ann.get("/").await;
    assert_eq!(told(&seen.text), [false; 4], "nobody misses what never ran: {}", seen.text);

    // Just below all of that, and one that is disabled.
    let mut carried = load();
    (carried["devices"], carried["processors_busy"]) = (json!(8), json!(3.6));
    farm.report("two", Some(carried.clone()), 3600).await;
    farm.report("off", Some(carried.clone()), -3600).await;
    farm.report("one.example.org", None, -3600).await;
    let seen = ann.get("/").await;
    assert_eq!(told(&seen.text), [false; 4], "{}", seen.text);
    seen.shows(&["stopped", "not heard of</span>"]);

    // What a server carried that is gone is nobody's concern but that it is gone.
    (carried["devices"], carried["processors_busy"]) = (json!(9), json!(3.65));
    (carried["waiting"], carried["longest_wait_s"]) = (json!(2), json!(75));
    farm.report("two", Some(carried.clone()), 3600).await;
    let seen = ann.get("/").await;
    assert_eq!(told(&seen.text), [false, true, true, true], "{}", seen.text);
    seen.shows(&["9 devices of the", "keeps 3.6 of its 4", "2 devices wait", "for 1 min 15 s"]);
    farm.report("two", Some(carried), -60).await;
    let seen = ann.get("/").await;
    assert_eq!(told(&seen.text), [true, false, false, false], "{}", seen.text);
    assert!(!seen.text.contains("all is well"), "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn device_page_tells_what_happened_and_what_moves() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/devices/lab-01").await.shows(&[
        "Last 24 hours",
        "Events",
        "began to boot",
        "create",
        "data-chart=\"/devices/",
        "Record the next boot",
    ]);
    let id = farm.root(Method::GET, "/v1/devices/lab-01", &Value::Null).await["id"].to_string();
    let seen = ann.get(&format!("/devices/{id}/rates")).await;
    assert!(seen.text.contains("\"label\":\"read MiB/s\""), "{}", seen.text);
    assert_eq!(ann.get("/devices/lab-09/rates").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn recording_is_begun_looked_at_and_downloaded() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/devices/lab-02").await.shows(&["None since this server started"]);
    let id = farm.root(Method::GET, "/v1/devices/lab-01", &Value::Null).await["id"].to_string();
    let page = format!("/devices/{id}");
    assert_eq!(ann.get("/devices/lab-02/profile").await.status, StatusCode::NOT_FOUND);
    ann.get(&page).await.shows(&["3\u{202f}000 requests", "recording.csv"]);
    let seen = ann.post(&format!("{page}/recording"), &[("what", "boot")]).await;
    assert_eq!((seen.status, seen.header("location")), (StatusCode::SEE_OTHER, page.as_str()));
    assert_eq!(*farm.recordings.lock().unwrap(), ["lab-01 next boot"]);
    ann.get(&page).await.shows(&["The next boot is recorded"]);
    let shown =
        &["Where and when it read", "class=\"heat5\"", "On the whole disk of 40.0 GiB", "up to 64.0 KiB"];
    ann.get(&format!("{page}/profile")).await.shows(shown);
    let table = ann.get(&format!("{page}/recording.csv")).await;
    assert_eq!(table.header("content-disposition"), "attachment; filename=\"lab-01.csv\"");
    assert!(table.text.contains("time_us,operation"), "{}", table.text);
    let debian = farm.root(Method::GET, "/v1/vdisks/debian", &Value::Null).await["id"].to_string();
    ann.get(&format!("/vdisks/{debian}/profile")).await.shows(shown);
    let other = farm.root(Method::GET, "/v1/vdisks/win11", &Value::Null).await["id"].to_string();
    ann.get(&format!("/vdisks/{other}/profile")).await.shows(&["none was recorded"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn marked_devices_are_woken_restarted_and_sent_messages_and_those_that_cannot_be_are_told() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let mut ids = Vec::new();
    for device in ["lab-01", "office-01"] {
        ids.push(
            farm.root(Method::GET, &format!("/v1/devices/{device}"), &Value::Null).await["id"].to_string(),
        );
    }
    ann.get("/devices").await.shows(&["wake"]);
    let wake = [("what", "wake"), ("id", ids[0].as_str()), ("id", ids[1].as_str())];
    ann.post("/devices/do", &wake).await.shows(&["2 devices will be called", "headwater device wake lab-01"]);
    let sure = [&wake[..], &[("sure", "yes")]].concat();
    ann.post("/devices/do", &sure).await;
    ann.get("/devices").await.shows(&["1 device done, 1 not", "no network is up"]);
    let both = [("id", ids[0].as_str()), ("id", ids[1].as_str())];
    let message = [&[("what", "message"), ("text", "Save <b>now</b>")], &both[..]].concat();
    let said = ["2 devices", "Save &lt;b&gt;now&lt;/b&gt;", "headwater device message 'Save &lt;b&gt;now"];
    ann.post("/devices/do", &message).await.shows(&said);
    for what in ["reboot", "shutdown"] {
        let order = [&[("what", what)], &both[..]].concat();
        ann.post("/devices/do", &order).await.shows(&["2 devices", "not saved", what]);
        ann.post("/devices/do", &[&order[..], &[("sure", "yes")]].concat()).await;
        ann.get("/devices").await.shows(&["1 device done, 1 not", "it is not running"]);
    }
    ann.post("/devices/do", &[&[("what", "message"), ("text", " ")], &both[..]].concat()).await;
    ann.get("/devices").await.shows(&["Write what the marked devices are to show"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_told_whether_the_server_lives_and_is_ready() {
    let farm = Farm::new().await;
    let mut nobody = Browser::new(farm.console.clone());
    assert_eq!(nobody.get("/health").await.text, "ok\n");
    assert_eq!(nobody.get("/ready").await.text, "ready\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn device_at_another_server_is_shown_with_it_and_pages_say_whose_boots_they_tell() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let whose =
        ["at this server", "of this server, <b>", "Of this server, <b>", "at branch", "server <b>branch"];
    for page in ["/", "/boots", "/devices", "/devices/3"] {
        let seen = ann.get(page).await;
        assert!(whose.iter().all(|mark| !seen.text.contains(mark)), "one server is all: {}", seen.text);
    }
    let farm = Farm::new().await;
    farm.root(Method::POST, "/v1/servers", &json!({"name": "branch", "site": "Main"})).await;
    farm.elsewhere.store(true, Ordering::Relaxed);
    let mut ann = farm.ann().await;
    ann.get("/").await.shows(&["are those of this server, <b>one.example.org</b>", "2 ready"]);
    ann.get("/boots").await.shows(&["Of this server, <b>one.example.org</b>: the others tell theirs."]);
    let seen = ann.get("/devices?state=ready").await;
    seen.shows(&["lab-01", "office-01", "at branch"]);
    assert_eq!(seen.text.matches("at branch").count(), 1, "{}", seen.text);
    let id = farm.root(Method::GET, "/v1/devices/office-01", &Value::Null).await["id"].clone();
    ann.get(&format!("/devices/{id}"))
        .await
        .shows(&["It runs from server <b>branch</b>, which tells of its boots"]);
}
