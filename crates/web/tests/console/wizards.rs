//! Tables of devices, images that come into stores, and the first run.
use axum::http::{Method, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::farm::Farm;

#[tokio::test(flavor = "multi_thread")]
async fn table_with_mistakes_is_shown_row_by_row_and_makes_nothing() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/devices/import").await.shows(&["Devices from a table", "Look at it first"]);
    let table = "name,site,collection,mac\nlab-09,Main,lab,52:54:00:77:00:99\n<b>,Main,lab,nonsense\n";
    let seen = ann.post("/devices/import", &[("table", table), ("what", "make")]).await;
    assert!(seen.status.is_client_error(), "{seen:?}");
    for text in ["Nothing was done", "nonsense", "&lt;b&gt;,Main,lab,nonsense", "lab-09"] {
        assert!(seen.text.contains(text), "{text:?} is missing in {}", seen.text);
    }
    assert!(!seen.text.contains("value=\"make\""), "what is wrong cannot be imported");
    ann.get("/devices").await.shows(&["3 devices"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn table_without_mistakes_is_looked_at_first_and_then_imported() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/devices/import").await;
    let table = "name,site,collection,mac\r\nlab-09,Main,lab,52:54:00:77:00:99\r\n";
    let seen = ann.post("/devices/import", &[("table", table), ("what", "look")]).await;
    seen.shows(&["It would make 1 device", "Nothing was done yet", "value=\"make\"", "Import 1 device"]);
    ann.get("/devices").await.shows(&["3 devices"]);
    ann.get("/devices/import").await;
    let seen = ann.post("/devices/import", &[("table", table), ("what", "make")]).await;
    assert_eq!(seen.header("location"), "/devices", "{}", seen.text);
    ann.get("/devices").await.shows(&["4 devices", "lab-09", "Made 1 device"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_given_as_files() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    for (path, file, text) in [
        ("/devices/export", "devices.csv", "lab-01"),
        ("/audit/export", "audit.jsonl", "\"win11\""),
        (
            "/vdisks/export?filter=name%20%3D%20debian",
            "vdisks.csv",
            "\r\ndebian,images,standard,no,0,,,0,,0,1,server-disk,10737418240\r\n",
        ),
        ("/boots/export", "boots.csv", "Device,State,vDisk,Began,Took ms,"),
        ("/sites/export", "sites.csv", "Name,Description,Disabled\r\nMain,"),
        ("/collections/export?filter=name%20%3D%20lab", "collections.csv", "lab,Main"),
    ] {
        let seen = ann.get(path).await;
        seen.shows(&[text]);
        assert_eq!(seen.header("content-disposition"), format!("attachment; filename=\"{file}\""));
    }
    ann.get("/sites").await.shows(&["/sites/export"]);
    ann.get("/vdisks?filter=mode+%3D+standard").await.shows(&["/vdisks/export?filter=mode"]);
    ann.get("/boots").await.shows(&["/boots/export"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn image_that_is_uploaded_in_parts_is_found_for_adoption() {
    let farm = Farm::new().await;
    let folder = farm.store_folder().await;
    let mut ann = farm.ann().await;
    ann.get("/vdisks/upload").await.shows(&["Upload an image", "local"]);
    let store = farm.root(Method::GET, "/v1/stores/local", &Value::Null).await["id"].to_string();
    let fields = [("store", store.as_str()), ("name", "new.vhdx"), ("length", "7000")];
    let begun = ann.post("/vdisks/upload/begin", &fields).await;
    begun.shows(&["\"here_bytes\":0"]);
    for (offset, part) in [(0, "x".repeat(4000)), (4000, "y".repeat(3000))] {
        let digest: String = Sha256::digest(&part).iter().map(|byte| format!("{byte:02x}")).collect();
        let path = format!("/vdisks/upload/part?store={store}&name=new.vhdx&offset={offset}&sha256={digest}");
        let stranger = ann.send(Method::POST, &path, &[], part.clone()).await;
        assert_eq!(stranger.status, StatusCode::FORBIDDEN, "a part without the form's token");
        let seen = ann.send_with_token(&path, part).await;
        seen.shows(&["here_bytes"]);
    }
    let seen = ann.post("/vdisks/upload/finish", &fields).await;
    assert!(seen.status.is_client_error() && seen.text.contains("none of the images"), "{seen:?}");
    ann.post("/vdisks/upload/cancel", &fields).await;
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    std::fs::write(folder.join("notes.vhdx"), "no image").unwrap();
    ann.get(&format!("/vdisks/adopt?store={store}")).await.shows(&[
        "0 vDisks can be made",
        "What cannot be adopted",
        "notes.vhdx",
        "damaged",
    ]);
    ann.get("/vdisks/adopt").await.shows(&["Look through its folder"]);
    let seen = ann.post("/vdisks/adopt", &[("store", &store), ("cache", "10")]).await;
    assert!(seen.text.contains("no vDisk is marked"), "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_run_makes_store_and_collection_where_it_asks_for_them() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    ann.get("/first-run").await.shows(&["Set up the farm", "A store", "Devices from a table"]);
    let id = |kind: &'static str| {
        let farm = &farm;
        async move {
            farm.root(Method::GET, &format!("/v1/{kind}"), &Value::Null).await["items"][0]["id"].to_string()
        }
    };
    let (server, site) = (id("servers").await, id("sites").await);
    let store = [("step", "store"), ("name", "fast"), ("path", "/srv/fast"), ("server", server.as_str())];
    assert_eq!(ann.post("/first-run", &store).await.header("location"), "/first-run");
    ann.get("/first-run").await;
    let collection = [("step", "collection"), ("name", "hall"), ("site", site.as_str())];
    assert_eq!(ann.post("/first-run", &collection).await.header("location"), "/first-run");
    ann.get("/first-run").await;
    let seen = ann.post("/first-run", &collection).await;
    assert_eq!(seen.status, StatusCode::CONFLICT, "the same once more is told where it was asked");
    assert_eq!(
        ann.post("/first-run", &[("step", "farm"), ("name", "Mill")]).await.header("location"),
        "/first-run"
    );
    ann.get("/first-run").await.shows(&["Mill", "2 stores", "3 collections"]);
}
