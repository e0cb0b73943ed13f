//! The server's host and its settings: doctor's findings, the way to a device, values that take effect at once or later.
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::farm::{Farm, HOSTILE};

#[tokio::test(flavor = "multi_thread")]
async fn doctor_looks_when_it_is_told_to_and_shows_the_worst_first() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/doctor").await.shows(&["Not checked since", "headwater doctor", "Check now"]);
    let seen = ann.post("/doctor", &[("dhcp", "")]).await;
    assert_eq!(seen.header("location"), "/doctor");
    let seen = ann.get("/doctor").await;
    seen.shows(&["1 problem, 1 warning in 3 findings", "systemctl stop dnsmasq", "by dnsmasq", "⟨U+202E⟩"]);
    let at = |text: &str| seen.text.find(text).unwrap();
    assert!(at("UDP 67 is taken") < at("txt.exe") && at("txt.exe") < at("synchronised"), "{}", seen.text);
    for harm in ["<script>alert", "\u{202e}", "\" onmouseover"] {
        assert!(HOSTILE.contains(harm) && !seen.text.contains(harm), "{harm:?}: {}", seen.text);
    }
    ann.post("/doctor", &[("dhcp", "true")]).await;
    ann.get("/doctor").await.shows(&["somebody else is having the host looked at"]);
    let audit = farm.root(Method::GET, "/v1/audit?filter=action%20=%20doctor", &Value::Null).await;
    assert_eq!((&audit["total"], &audit["items"][0]["after"]), (&json!(2), &json!({"dhcp": false})));
}

#[tokio::test(flavor = "multi_thread")]
async fn way_to_a_device_is_looked_at_from_its_page_with_and_without_javascript() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let page = ann.get("/devices/lab-01").await;
    page.shows(&["Network path", "Test the path", "hx-target=\"#network-result\""]);
    let seen = ann.post("/devices/lab-01/network", &[]).await;
    seen.shows(&["<html", "do not arrive", "1500 bytes", "headwater doctor network lab-01"]);
    ann.get("/devices/lab-01/network").await.shows(&["<html", "Test the path"]);
    let seen = ann.post_part("/devices/lab-01/network").await;
    seen.shows(&["1500 bytes"]);
    assert!(!seen.text.contains("<html"), "{}", seen.text);
    let seen = ann.post("/devices/lab-02/network", &[]).await;
    assert_eq!(seen.status, StatusCode::NOT_FOUND);
    assert!(seen.text.contains("let it boot first"), "{}", seen.text);
    ann.post_part("/devices/lab-02/network").await.shows(&["has not logged in"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_changed_by_a_form_that_says_when_each_takes_effect() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/settings").await.shows(&[
        "headwater setting set",
        "data-key=\"admission.at_once\"",
        "at each device&#39;s next boot".replace("&#39;", "'").as_str(),
        "name=\"revision\" value=\"1\"",
    ]);
    let sent = |revision: &'static str, places: &'static str, kept: &'static str| {
        [
            ("revision", revision),
            ("admission.at_once", places),
            ("was-admission.at_once", "8"),
            ("limits.bandwidth", "none"),
            ("was-limits.bandwidth", "none"),
            ("boots_kept", kept),
            ("was-boots_kept", "50"),
        ]
    };
    let seen = ann.post("/settings", &sent("1", "many", "30")).await;
    assert_eq!(seen.status, StatusCode::BAD_REQUEST);
    for shown in ["value=\"many\"", "aria-invalid=\"true\"", "value=\"30\"", "is not a number"] {
        assert!(seen.text.contains(shown), "{shown}: {}", seen.text);
    }
    let seen = ann.post("/settings", &sent("1", "12", "30")).await;
    assert_eq!(seen.header("location"), "/settings", "{}", seen.text);
    ann.get("/settings").await.shows(&[
        "admission.at_once: in effect now; boots_kept: in effect at the server's next start",
        "until the next start the server goes by",
        "another value stands",
        "name=\"revision\" value=\"2\"",
    ]);
    let filter = "/v1/audit?filter=action%20=%20change-settings";
    let audit = farm.root(Method::GET, filter, &Value::Null).await;
    let expected =
        json!({"admission.at_once": {"from": "8", "to": "12"}, "boots_kept": {"from": "50", "to": "30"}});
    assert_eq!((&audit["total"], &audit["items"][0]["after"]), (&json!(1), &expected));
    assert_eq!(audit["items"][0]["actor"], "ann");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_somebody_else_changed_meanwhile_are_shown_with_both_values_and_one_is_chosen() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/settings").await;
    farm.root(Method::PATCH, "/v1/settings", &json!({"admission.at_once": "20"})).await;
    let mine = [
        ("revision", "1"),
        ("admission.at_once", "12"),
        ("was-admission.at_once", "8"),
        ("limits.bandwidth", "10 MiB"),
        ("was-limits.bandwidth", "none"),
        ("boots_kept", "50"),
        ("was-boots_kept", "50"),
    ];
    let seen = ann.post("/settings", &mine).await;
    assert_eq!(seen.status, StatusCode::PRECONDITION_FAILED);
    for shown in [
        "Somebody else changed this meanwhile",
        "<bdi class=\"name\">root</bdi>",
        "<bdi class=\"name\">12</bdi>",
        "<bdi class=\"name\">20</bdi>",
        "value=\"10 MiB\"",
        "name=\"was-admission.at_once\" value=\"20\"",
        "name=\"revision\" value=\"2\"",
    ] {
        assert!(seen.text.contains(shown), "{shown}: {}", seen.text);
    }
    let again = [
        ("revision", "2"),
        ("admission.at_once", "12"),
        ("was-admission.at_once", "20"),
        ("take-admission.at_once", "theirs"),
        ("limits.bandwidth", "10 MiB"),
        ("was-limits.bandwidth", "none"),
        ("boots_kept", "50"),
        ("was-boots_kept", "50"),
    ];
    assert_eq!(ann.post("/settings", &again).await.status, StatusCode::SEE_OTHER);
    let settings = farm.root(Method::GET, "/v1/settings", &Value::Null).await;
    let values: Vec<&str> =
        settings["items"].as_array().unwrap().iter().map(|item| item["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["20", "10 MiB", "50"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_look_at_the_host_or_change_settings_is_told_why_and_cannot() {
    let farm = Farm::new().await;
    farm.user("eve", "read-only", None).await;
    let mut eve = farm.browser("eve").await;
    let seen = eve.get("/settings").await;
    seen.shows(&["admission.at_once", "Changing them is not for you", "takes the role administrator"]);
    assert!(!seen.text.contains("<input name="), "{}", seen.text);
    eve.get("/doctor").await.shows(&["This is not for you", "takes the role administrator"]);
    let sent = [("revision", "1"), ("admission.at_once", "1"), ("was-admission.at_once", "8")];
    assert_eq!(eve.post("/settings", &sent).await.status, StatusCode::FORBIDDEN);
    eve.post("/doctor", &[]).await;
    eve.get("/doctor").await.shows(&["takes the role administrator"]);
    assert_eq!(eve.post("/devices/lab-01/network", &[]).await.status, StatusCode::FORBIDDEN);
    let settings = farm.root(Method::GET, "/v1/settings", &Value::Null).await;
    assert_eq!(settings["revision"], 1);
    assert_eq!(farm.root(Method::GET, "/v1/doctor", &Value::Null).await["report"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn dialog_of_a_vdisk_that_changed_meanwhile_asks_anew_and_says_who_it_was() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/vdisks/8/do?what=release").await;
    farm.root(Method::PATCH, "/v1/vdisks/8", &json!({"description": "written by root"})).await;
    let seen = ann.post("/vdisks/8/do", &[("what", "release"), ("tag", "1")]).await;
    assert_eq!(seen.status, StatusCode::PRECONDITION_FAILED, "{}", seen.text);
    let tag = farm.root(Method::GET, "/v1/vdisks/8", &Value::Null).await["revision"].to_string();
    for shown in ["Nothing was done", ">root<", &format!("name=\"tag\" value=\"{tag}\"")] {
        assert!(seen.text.contains(shown), "{shown}: {}", seen.text);
    }
    let seen = ann.post("/vdisks/8/do", &[("what", "release"), ("tag", &tag)]).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
}
