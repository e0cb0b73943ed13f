//! The list of vDisks, and what is done from it.
use axum::http::{Method, StatusCode};
use farm::model::{
    Access, Description, Id, Lineage, Timestamp, VdiskId, Version, VersionNumber, VersionState,
};
use farm::rules::files::{ImageFormat, file_name};
use serde_json::json;

use crate::farm::Farm;

/// Gives a vDisk so many versions, of which production devices boot each.
fn versions(farm: &Farm, vdisk: i64, count: u32) {
    let vdisk: VdiskId = Id::new(vdisk).unwrap();
    let made = farm.control.change(&farm.control.system(), |change| {
        let name = change.get(vdisk)?.value.name;
        for number in 0..count {
            let lineage = match number.checked_sub(1) {
                None => Lineage::Base,
                Some(parent) => Lineage::Difference { parent: VersionNumber::new(parent).unwrap() },
            };
            let number = VersionNumber::new(number).unwrap();
            change.create(Version {
                vdisk,
                number,
                lineage,
                access: Access::Production { released: Timestamp::from_ms(0) },
                file: file_name(&name, number, lineage, ImageFormat::Vhdx).unwrap(),
                mark: None,
                state: VersionState::Ready,
                comment: Description::new("").unwrap(),
                made_at: Timestamp::from_ms(0),
            })?;
        }
        Ok(())
    });
    made.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_each_vdisk_are_counted_however_many_there_are_in_all() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    versions(&farm, 8, 2);
    // More than the largest page of the API holds, and newer than those of the other vDisk.
    versions(&farm, 7, 1001);
    let seen = ann.get("/vdisks").await;
    seen.shows(&["newest v1<", "newest v1000<"]);
    assert!(seen.text.contains("<td>2 ") && seen.text.contains("<td>1001 "), "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_of_one_vdisk_are_told_page_by_page_and_done_with_on_every_page() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    versions(&farm, 8, 1002);
    let seen = ann.get("/vdisks/8").await;
    seen.shows(&[
        "100 of 1\u{202f}002 versions",
        "Version 1001 ",
        "Version 902 ",
        "in 1\u{202f}002 files",
        "Older 100",
    ]);
    assert!(!seen.text.contains("Version 901 ") && !seen.text.contains(">Newest<"), "{}", seen.text);
    let mut next = seen;
    for _ in 0..10 {
        let older = next.text.split("href=\"").filter(|link| link.contains(">Older 100<")).last().unwrap();
        let older = older.split('"').next().unwrap().replace("&amp;", "&");
        next = ann.get(&older).await;
    }
    next.shows(&["2 of 1\u{202f}002 versions", "Version 1 ", "Version 0 ", ">Newest<"]);
    assert!(!next.text.contains("Older 100"), "{}", next.text);
    // What is done with one that is on no first page, and with the newest, which is.
    ann.get("/vdisks/8/do?what=delete&version=1").await.shows(&["Delete version 1 of debian"]);
    ann.get("/vdisks/8/do?what=new").await.shows(&["made on version 1001."]);
    assert_eq!(ann.get("/vdisks/8/do?what=delete&version=1002").await.status, StatusCode::NOT_FOUND);
    assert_eq!(ann.get("/vdisks/8/do?what=delete&version=x").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_what_somebody_changed_meanwhile_is_asked_anew_with_who_is_hit_now() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let seen = ann.get("/vdisks/8/delete").await;
    seen.shows(&["Delete vDisk", "<b>1 device</b>", "name=\"revision\" value=\"1\""]);
    farm.root(Method::PATCH, "/v1/vdisks/debian", &json!({"description": "kept"})).await;
    farm.root(Method::PATCH, "/v1/devices/lab-02", &json!({"disks": [{"vdisk": "debian"}]})).await;
    let seen = ann.post("/vdisks/8/delete", &[("revision", "1")]).await;
    assert_eq!(seen.status, StatusCode::PRECONDITION_FAILED, "{}", seen.text);
    for text in [
        "somebody else changed this meanwhile, <bdi class=\"name\">root</bdi>",
        "This is how it stands now.",
        "Delete vDisk",
        "<b>2 devices</b>",
        "name=\"revision\" value=\"2\"",
    ] {
        assert!(seen.text.contains(text), "{text:?} is missing in {}", seen.text);
    }
    let still = farm.root(Method::GET, "/v1/vdisks/debian", &serde_json::Value::Null).await;
    assert_eq!(still["description"], "kept");
    let seen = ann.post("/vdisks/7/delete", &[("revision", "1")]).await;
    assert_eq!(seen.header("location"), "/vdisks", "{}", seen.text);
}
