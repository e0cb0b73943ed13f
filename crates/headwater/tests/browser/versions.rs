//! Versions: made, promoted, assigned, merged.
use crate::place::Place;

#[test]
fn version_is_made_promoted_and_merged_while_the_page_shows_it_live() {
    let place = Place::new();
    let admin = place.admin();
    admin.go("/vdisks");
    admin.press("debian");
    admin.sees(&["Versions, newest first", "Version 0"]);
    admin.press("New version…");
    admin.sees(&["One maintenance device boots it"]);
    admin.fill("comment", "<b>November</b>");
    admin.press("Do it");
    admin.sees(&["Done: New version of debian", "Version 1", "<b>November</b>"]);
    admin.press("Promote to production…");
    admin.sees(&["boot version 1 at their next boot"]);
    admin.press("Cancel");
    admin.sees(&["Version 1"]);
    admin.press("Promote to production…");
    admin.press("Do it");
    admin.sees(&["Done: Promote to production"]);

    // Somebody else merges: it shows in the page that is open.
    admin.until("document.getElementById('lost').hidden");
    admin.script("window.stays = true;", &[]);
    place.site.headwater(&["vdisk", "merge", "debian", "--base", "--wait"]);
    admin.sees(&["Version 2", "merge images/debian"]);
    admin.until("window.stays && document.querySelector('.task-log').innerText.includes('done')");
    admin.press("Merge updates…");
    admin.press("Cancel");
    admin.sees(&["Versions, newest first"]);
}

#[test]
fn administrator_merges_from_the_page_and_sees_it_done_without_loading_it_again() {
    let place = Place::new();
    let admin = place.admin();
    place.site.headwater(&["version", "create", "debian", "--comment", "November"]);
    place.site.headwater(&["version", "promote", "debian/1"]);
    admin.go("/vdisks");
    admin.sees(&["MiB on disk"]);
    admin.press("debian");
    admin.sees(&["in 2 files: ", "MiB on disk"]);
    admin.press("Merge to a new base…");
    admin.sees(&["All versions become one whole image", "Cancel"]);
    admin.press("Do it");
    admin.sees(&["Versions, newest first"]);
    admin.script("window.stays = true;", &[]);
    admin.until("window.stays && document.querySelector('.chain').innerText.includes('Version 2')");
    admin.until("window.stays && document.querySelector('.task-log').innerText.includes('done')");
}

#[test]
fn dialog_tells_what_it_hits_and_does_nothing_by_itself() {
    let place = Place::new();
    let admin = place.admin();
    admin.go("/devices");
    admin.script("document.querySelector('input[name=id]').click();", &[]);
    admin.choose("what", "disable");
    admin.press("Go on…");
    admin.sees(&["Is this meant?", "1 device will not boot any more", "lab-01"]);
    let focused = admin.script("return document.activeElement.innerText;", &[]);
    assert_eq!(focused, "Cancel", "what is safe is what Enter does");
    admin.press("Do it to 1 device");
    admin.sees(&["Done: 1 device", "disabled"]);
}

#[test]
fn marked_devices_are_assigned_another_vdisk() {
    let place = Place::new();
    let admin = place.admin();
    std::fs::copy(place.site.path("golden.vhdx"), place.site.path("other.vhdx")).unwrap();
    place.site.headwater(&["store", "adopt", "images"]);
    admin.go("/devices");
    admin.script("document.querySelector('input[name=id]').click();", &[]);
    admin.choose_within(".bulk", "what", "assign the vDisk");
    admin.choose_within(".bulk", "vdisk", "images/other");
    admin.press("Go on…");
    admin.sees(&["Is this meant?", "lab-01"]);
    admin.press("Do it to 1 device");
    admin.sees(&["Done: 1 device"]);
    assert!(place.site.headwater(&["device", "show", "lab-01"]).contains("other"));
}
