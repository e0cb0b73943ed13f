//! vDisks with their versions, and all other objects: lists, forms, and two administrators at the same one.
use api::live::KeptOut;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::farm::{Browser, Farm};

#[tokio::test(flavor = "multi_thread")]
async fn every_list_is_shown_and_every_kind_tells_of_its_objects() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    for (path, shown) in [
        ("/vdisks", "images"),
        ("/stores", "/srv/images on one.example.org"),
        ("/servers", "one.example.org"),
        ("/sites", "Main"),
        ("/collections", "office"),
        ("/users", "ann"),
        ("/grants", "administrator"),
        ("/tokens", "Programs show a token"),
        ("/persistent-caches", "None is kept"),
        ("/locks", "Nothing is held by anybody"),
        ("/locks?filter=sharing+%3D+shared", "None fits"),
        ("/audit?filter=kind+%3D+device", "lab-01"),
        ("/boots", "No machine has booted in the last day"),
        ("/tasks", "0 tasks"),
        ("/first-run", "Works"),
        ("/audit/3", "create"),
        ("/stores/4", "/srv/images"),
    ] {
        ann.get(path).await.shows(&["<html", shown]);
    }
    ann.get("/servers?filter=nonsense+%3D+1").await.shows(&["The filter means nothing"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn device_is_made_changed_and_deleted_by_forms() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/devices/new").await.shows(&["headwater device create", "data-key=\"collection\""]);
    let bad = [("name", "lab-77"), ("collection", "5"), ("macs", "no mac"), ("kind", "test")];
    let seen = ann.post("/devices/new", &bad).await;
    assert_eq!(seen.status, StatusCode::BAD_REQUEST);
    assert!(
        seen.text.contains("value=\"no mac\"") && seen.text.contains("aria-invalid=\"true\""),
        "{}",
        seen.text
    );
    let good = [
        ("name", "lab-77"),
        ("collection", "5"),
        ("macs", "52:54:00:77:00:77, 52:54:00:77:00:78"),
        ("disks", "8"),
    ];
    let seen = ann.post("/devices/new", &good).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    let place = seen.header("location").to_owned();
    ann.get(&place).await.shows(&["lab-77", "52:54:00:77:00:78", "images/debian", "Made device lab-77."]);
    let edit = format!("{place}/edit");
    ann.get(&edit)
        .await
        .shows(&["value=\"52:54:00:77:00:77 52:54:00:77:00:78\"", "headwater device set lab-77"]);
    let fields = [
        ("revision", "1"),
        ("name", "lab-77"),
        ("was-name", "lab-77"),
        ("description", "by the door"),
        ("was-disks", "8"),
        ("disks", ""),
        ("kind", "production"),
        ("was-kind", "production"),
    ];
    let seen = ann.post(&edit, &fields).await;
    assert_eq!(seen.header("location"), place, "{}", seen.text);
    ann.get(&place).await.shows(&["by the door", "nothing: no vDisk is assigned"]);
    ann.get(&format!("{place}/delete")).await.shows(&[
        "Delete device",
        "headwater device delete lab-77",
        "autofocus",
    ]);
    let seen = ann.post(&format!("{place}/delete"), &[("revision", "1")]).await;
    assert_eq!(seen.status, StatusCode::PRECONDITION_FAILED, "another one changed it: {}", seen.text);
    let seen = ann.post(&format!("{place}/delete"), &[("revision", "2")]).await;
    assert_eq!(seen.header("location"), "/devices");
    assert_eq!(ann.get(&place).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn view_is_made_changed_and_deleted_and_narrows_the_devices() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/views/new").await.shows(&["headwater view create", "data-key=\"filter\"", "of the whole farm"]);
    let bad = [("name", "lab"), ("of", "devices"), ("filter", "colour = red")];
    let seen = ann.post("/views/new", &bad).await;
    assert_eq!(seen.status, StatusCode::BAD_REQUEST, "{}", seen.text);
    assert!(seen.text.contains("value=\"colour = red\""), "{}", seen.text);
    let good = [("name", "lab"), ("of", "devices"), ("filter", "name ~ \"lab-*\"")];
    let seen = ann.post("/views/new", &good).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    let place = seen.header("location").to_owned();
    let devices = format!("/devices?view={}", place.rsplit('/').next().unwrap());
    ann.get("/views").await.shows(&["lab", "New view"]);
    let seen = ann.get(&place).await;
    seen.shows(&[
        "2 devices",
        "lab-01",
        "lab-02",
        &format!("href=\"{devices}\""),
        "headwater view items lab",
    ]);
    assert!(!seen.text.contains("office-01"), "{}", seen.text);
    // With another filter, a state and the part that renews itself.
    let rows = async |ann: &mut Browser, path: &str| {
        let seen = ann.get(path).await;
        assert_eq!(seen.status, StatusCode::OK, "{}", seen.text);
        ["lab-01", "lab-02", "office-01"].map(|name| seen.text.contains(&format!("Mark {name}\"")))
    };
    assert_eq!(rows(&mut ann, &devices).await, [true, true, false]);
    assert_eq!(rows(&mut ann, &format!("{devices}&kind=test")).await, [false, true, false]);
    assert_eq!(rows(&mut ann, &format!("{devices}&state=off")).await, [false, true, false]);
    ann.get(&devices).await.shows(&["/devices/table?view="]);
    let edit = format!("{place}/edit");
    ann.get(&edit).await.shows(&["headwater view set lab"]);
    let fields = [
        ("revision", "1"),
        ("name", "lab"),
        ("was-name", "lab"),
        ("of", "devices"),
        ("was-of", "devices"),
        ("filter", "name = office-01"),
        ("was-filter", "name ~ \"lab-*\""),
    ];
    let seen = ann.post(&edit, &fields).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    assert_eq!(rows(&mut ann, &devices).await, [false, false, true]);
    // One of another list has its members, and is none of the devices'.
    let of_versions = json!({"name": "wrong", "of": "vdisks", "filter": "name = debian"});
    let id = farm.root(Method::POST, "/v1/views", &of_versions).await["id"].to_string();
    ann.get(&format!("/views/{id}")).await.shows(&["1 vDisk", "debian"]);
    assert_eq!(ann.get(&format!("/devices?view={id}")).await.status, StatusCode::NOT_FOUND);
    ann.get(&format!("{place}/delete")).await.shows(&["Delete view", "headwater view delete lab"]);
    ann.post(&format!("{place}/delete"), &[("revision", "2")]).await;
    assert_eq!(ann.get(&devices).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn form_that_comes_too_late_shows_both_values_and_writes_none() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/sites/2/edit").await.shows(&["value=\"Main\""]);
    farm.root(Method::PATCH, "/v1/sites/2", &json!({"description": "written by root"})).await;
    let fields = [
        ("revision", "1"),
        ("name", "Main"),
        ("was-name", "Main"),
        ("description", "written by ann"),
        ("was-description", ""),
    ];
    let seen = ann.post("/sites/2/edit", &fields).await;
    assert_eq!(seen.status, StatusCode::PRECONDITION_FAILED);
    for shown in [
        "Somebody else changed this meanwhile",
        "written by ann",
        "written by root",
        "<bdi class=\"name\">root</bdi>",
        "name=\"take-description\" value=\"theirs\"",
        "name=\"revision\" value=\"2\"",
    ] {
        assert!(seen.text.contains(shown), "{shown}: {}", seen.text);
    }
    let site = farm.root(Method::GET, "/v1/sites/2", &Value::Null).await;
    assert_eq!(site["description"], "written by root");
    let again = [
        ("revision", "2"),
        ("name", "Main"),
        ("was-name", "Main"),
        ("description", "written by ann"),
        ("was-description", "written by root"),
    ];
    assert_eq!(ann.post("/sites/2/edit", &again).await.status, StatusCode::SEE_OTHER);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_role_does_not_allow_is_shown_with_the_reason() {
    let farm = Farm::new().await;
    farm.user("eve", "read-only", None).await;
    let mut eve = farm.browser("eve").await;
    for path in ["/devices/lab-01", "/vdisks", "/vdisks/8", "/sites"] {
        let seen = eve.get(path).await;
        seen.shows(&["aria-disabled=\"true\"", "takes the role"]);
    }
    let seen = eve.get("/users").await;
    assert_eq!(seen.status, StatusCode::FORBIDDEN);
    let seen = eve.post("/sites/new", &[("name", "Second")]).await;
    assert_eq!(seen.status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn search_goes_to_the_one_thing_that_fits_or_lists_all() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let one = ann.get("/search?q=52:54:00:77:00:20").await;
    assert!(one.header("location").starts_with("/devices/"), "{one:?}");
    assert!(ann.get("/search?q=win").await.header("location").starts_with("/vdisks/"));
    ann.get("/search?q=lab").await.shows(&["lab-01", "lab-02", "2 devices"]);
    ann.get("/search?q=%22nothing*").await.shows(&["Nothing fits"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_shown_once_and_prometheus_reads_figures_with_it() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/tokens/new").await;
    let user = farm.root(Method::GET, "/v1/users/ann", &Value::Null).await["id"].to_string();
    let seen =
        ann.post("/tokens/new", &[("name", "prometheus"), ("user", &user), ("role", "read-only")]).await;
    seen.shows(&["It is shown once", "hwt_"]);
    let at = seen.text.find("hwt_").unwrap();
    let secret = seen.text[at..].split('<').next().unwrap().to_owned();
    let mut machine = Browser::new(farm.console.clone());
    assert_eq!(machine.get("/metrics").await.status, StatusCode::UNAUTHORIZED);
    let bearer = format!("Bearer {secret}");
    let seen = machine.send(Method::GET, "/metrics", &[("authorization", &bearer)], String::new()).await;
    seen.shows(&["# HELP headwater_up"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_with_a_vdisk_is_told_before_with_who_is_hit() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/vdisks/8").await.shows(&["debian", "1 production, 0 test", "1 device", "It has no version"]);
    ann.get("/vdisks/8/do?what=merge-base").await.shows(&[
        "one whole image",
        "headwater vdisk merge images/debian --base",
        "autofocus",
    ]);
    assert_eq!(ann.get("/vdisks/8/do?what=delete&version=7").await.status, StatusCode::NOT_FOUND);
    ann.get("/vdisks/8").await;
    let tag = farm.root(Method::GET, "/v1/vdisks/8", &Value::Null).await["revision"].to_string();
    ann.post("/vdisks/8/do", &[("what", "new"), ("tag", &tag)]).await;
    let seen = ann.get("/vdisks/8").await;
    assert!(seen.text.contains("class=\"said bad\""), "why there can be none is said: {}", seen.text);
}

#[test]
fn dashboard_asks_for_figures_that_are_documented() {
    let dashboard = include_str!("../../../../packaging/grafana-dashboard.json");
    let documented = include_str!("../../../../docs/metrics.md");
    let words = dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let figures: Vec<&str> = words.filter(|word| word.starts_with("headwater_")).collect();
    assert!(figures.len() > 12);
    for figure in figures {
        let figure = figure.trim_end_matches("_bucket");
        assert!(documented.contains(&format!("`{figure}`")), "{figure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_of_stores_and_write_caches_of_vdisks_are_changed_by_forms() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/stores/4/edit").await.shows(&["value=\"one.example.org:/srv/images\"", "data-key=\"paths\""]);
    let store = |paths: &'static str| {
        [("revision", "1"), ("name", "images"), ("was-name", "images"), ("paths", paths), ("was-paths", "x")]
    };
    let seen = ann.post("/stores/4/edit", &store("nonsense")).await;
    assert_eq!(seen.status, StatusCode::BAD_REQUEST);
    assert!(
        seen.text.contains("is not SERVER:/folder") && seen.text.contains("value=\"nonsense\""),
        "{}",
        seen.text
    );
    let seen = ann.post("/stores/4/edit", &store("one.example.org:/srv/other")).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    let store = farm.root(Method::GET, "/v1/stores/images", &Value::Null).await;
    assert_eq!(store["paths"][0]["path"], "/srv/other");

    ann.get("/vdisks/8/edit")
        .await
        .shows(&["data-key=\"write_cache.limit_bytes\"", "headwater vdisk set images/debian"]);
    let vdisk = |limit: &'static str| {
        [("revision", "1"), ("name", "debian"), ("was-name", "debian"), ("write_cache.limit_bytes", limit)]
    };
    let seen = ann.post("/vdisks/8/edit", &vdisk("20 GB")).await;
    assert_eq!(seen.status, StatusCode::BAD_REQUEST);
    assert!(
        seen.text.contains("value=\"20 GB\"") && seen.text.contains("aria-invalid=\"true\""),
        "{}",
        seen.text
    );
    let seen = ann.post("/vdisks/8/edit", &vdisk("20 GiB")).await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
    let vdisk = farm.root(Method::GET, "/v1/vdisks/debian", &Value::Null).await;
    assert_eq!(vdisk["write_cache"]["limit_bytes"], 20_u64 << 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_that_keeps_others_out_is_shown_and_broken_with_a_reason_for_the_audit() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let fence = farm.lock();
    let to = format!("/locks/{fence}/break");
    ann.get("/").await.shows(&["Locks that keep others out", "debian", &format!("href=\"{to}\"")]);
    ann.get("/locks").await.shows(&["lab-01", &format!("href=\"/locks/{fence}\"")]);
    ann.get(&format!("/locks/{fence}")).await.shows(&[
        "exclusive",
        "maintenance",
        "one.example.org",
        "Break…",
    ]);
    ann.get(&to).await.shows(&[
        "1 device is cut off",
        "autofocus",
        &format!("headwater lock break {fence} --reason"),
    ]);
    let seen = ann.post(&to, &[("reason", " ")]).await;
    assert_eq!(seen.status, StatusCode::BAD_REQUEST, "{}", seen.text);
    assert!(seen.text.contains("say why"), "{}", seen.text);
    let seen = ann.post(&to, &[("reason", "its machine burnt")]).await;
    assert_eq!(seen.header("location"), "/locks", "{}", seen.text);
    ann.get("/locks").await.shows(&["Nothing is held by anybody", "The lock is broken"]);
    assert_eq!(ann.get(&to).await.status, StatusCode::NOT_FOUND);
    let audit = farm.root(Method::GET, "/v1/audit?sort=-number&limit=1", &Value::Null).await;
    assert!(audit["items"][0].to_string().contains("its machine burnt"), "{audit}");
    let fence = farm.lock();
    farm.user("eve", "read-only", None).await;
    let mut eve = farm.browser("eve").await;
    eve.get(&format!("/locks/{fence}")).await.shows(&["takes the role administrator"]);
    eve.get(&format!("/locks/{fence}/break")).await.shows(&["takes the role administrator"]);
    eve.post(&format!("/locks/{fence}/break"), &[("reason", "none")]).await;
    ann.get("/locks").await.shows(&["lab-01"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_that_cannot_log_in_stand_with_the_lock_that_keeps_them_out_until_it_is_gone() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let fence = farm.lock();
    let id = async |name: &str| {
        let device = farm.root(Method::GET, &format!("/v1/devices/{name}"), &Value::Null).await;
        farm::model::Id::new(device["id"].as_i64().unwrap()).unwrap()
    };
    let at = farm.control.now();
    let refused = |device| KeptOut {
        device,
        fences: vec![farm::model::Fence::new(fence).unwrap()],
        since: at,
        last: at,
    };
    *farm.kept_out.lock().unwrap() = vec![refused(id("lab-02").await), refused(id("office-01").await)];
    ann.get("/").await.shows(&["2 devices cannot log in", ">refused</span> device <a", "lab-02"]);
    ann.get(&format!("/locks/{fence}")).await.shows(&["Refused for it", "lab-02", "office-01"]);
    ann.get("/devices/lab-02").await.shows(&[
        "Cannot log in",
        "device <bdi class=\"name\">lab-01</bdi> has its version (maintenance)",
        &format!("href=\"/locks/{fence}\""),
    ]);
    let locks = farm.root(Method::GET, "/v1/locks?keeping_out=true", &Value::Null).await;
    assert_eq!(locks["items"][0]["keeps_out"], 2, "{locks}");
    // Whoever sees the room alone is told of its devices alone.
    farm.user("cora", "administrator", Some("lab")).await;
    let seen = farm.browser("cora").await.get(&format!("/locks/{fence}")).await;
    seen.shows(&["lab-02"]);
    assert!(!seen.text.contains("office-01"), "{}", seen.text);
    ann.get(&format!("/locks/{fence}/break")).await;
    ann.post(&format!("/locks/{fence}/break"), &[("reason", "its machine burnt")]).await;
    let seen = ann.get("/").await;
    assert!(!seen.text.contains("cannot log in"), "{}", seen.text);
    let seen = ann.get("/devices/lab-02").await;
    assert!(!seen.text.contains("Cannot log in"), "{}", seen.text);
    let locks = farm.root(Method::GET, "/v1/locks?keeping_out=true", &Value::Null).await;
    assert_eq!(locks["total"], 0, "{locks}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_devices_that_cannot_log_in_are_counted_and_a_few_are_told() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let fence = farm::model::Fence::new(farm.lock()).unwrap();
    let (lab, at) = (farm::model::Id::new(5).unwrap(), farm.control.now());
    let made = farm.control.change(&farm.control.system(), |change| {
        let mut made = Vec::new();
        for number in 0..10_000 {
            let name = farm::model::DeviceName::new(&format!("many-{number:05}")).unwrap();
            let device = farm::model::Device::plain(name, lab, farm::model::Description::new("").unwrap());
            made.push(change.create(device)?.id);
        }
        Ok(made)
    });
    let refused = |device| KeptOut { device, fences: vec![fence], since: at, last: at };
    *farm.kept_out.lock().unwrap() = made.unwrap().into_iter().map(refused).collect();
    let lock = farm.root(Method::GET, &format!("/v1/locks/{fence}"), &Value::Null).await;
    assert_eq!((&lock["keeps_out"], lock["kept_out"].as_array().unwrap().len()), (&json!(10_000), 20));
    let seen = ann.get("/").await;
    seen.shows(&["10\u{202f}000 devices cannot log in", "many-00000", "10\u{202f}000 devices in all</a>"]);
    assert!(!seen.text.contains("many-00020"), "{}", seen.text);
    ann.get(&format!("/locks/{fence}"))
        .await
        .shows(&["many-00019", "10\u{202f}000 devices in all; these wait longest."]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_is_broken_by_administrators_of_the_site_that_its_store_is_in() {
    let farm = Farm::new().await;
    let fence = farm.lock();
    farm.user_of_site("carl", "administrator", "Main").await;
    let mut carl = farm.browser("carl").await;
    let (page, to) = (format!("/locks/{fence}"), format!("/locks/{fence}/break"));
    carl.get(&page).await.shows(&["administrator in the whole farm"]);
    carl.get("/vdisks/8").await.shows(&["administrator in the whole farm"]);
    farm.root(Method::PATCH, "/v1/stores/images", &json!({"site": "Main"})).await;
    let button = format!("href=\"{to}\">Break…");
    carl.get(&page).await.shows(&[&button]);
    let seen = carl.get("/vdisks/8").await;
    seen.shows(&["do?what=merge-base", "href=\"/vdisks/8/edit\""]);
    assert!(!seen.text.contains("this takes the role"), "{}", seen.text);
    carl.get("/").await.shows(&[&button]);
    carl.get(&to).await.shows(&["<button class=\"danger\">Break the lock"]);
    let seen = carl.post(&to, &[("reason", "its machine burnt")]).await;
    assert_eq!(seen.header("location"), "/locks", "{}", seen.text);
    carl.get("/locks").await.shows(&["Nothing is held by anybody", "The lock is broken"]);
}
