//! From an empty farm to a machine that boots.
use crate::harness::{MAC, target_in};
use crate::place::Place;

#[test]
fn administrator_sets_up_a_farm_and_watches_its_first_machine_boot() {
    let place = Place::empty();
    let admin = place.admin();
    admin.go("/first-run");
    admin.fill("name", "Mill");
    admin.press("Rename it");
    admin.sees(&["The farm has a name."]);

    // The form of the store has fields of its own names but for the first, so the step is told by its folder.
    admin.fill("path", place.site.path("store").to_str().unwrap());
    admin.press("Make the store");
    admin.sees(&["The store was made."]);
    admin.script("document.querySelector('[value=collection]').form.elements.name.value = 'lab';", &[]);
    admin.press("Make the collection");
    admin.sees(&["The collection was made.", "Devices from a table"]);

    // The image comes by upload, and becomes a vDisk.
    admin.press("Upload an image");
    admin.arrives_at("/vdisks/upload");
    admin.choose_file("file", &place.site.path("golden.vhdx"));
    admin.press("Upload");
    admin.arrives_at("/vdisks/adopt?store=");
    admin.sees(&["1 vDisk can be made", "golden.vhdx"]);
    admin.press("Make the marked vDisks");
    admin.sees(&["1 vDisk made", "golden"]);

    // A table with a mistake is told row by row; mended, it makes the device.
    admin.go("/devices/import");
    let row = |mac: &str| format!("name,site,collection,mac,vdisks\nlab-01,site,lab,{mac},golden");
    admin.fill("table", &row("nonsense"));
    admin.press("Look at it first");
    admin.sees(&["Nothing was done", "nonsense"]);
    admin.fill("table", &row(MAC));
    admin.press("Look at it first");
    admin.sees(&["It would make 1 device"]);
    admin.press("Import 1 device");
    admin.sees(&["Made 1 device", "lab-01"]);

    // The machine boots while the page is open: what it does comes without the page being loaded again.
    admin.go("/boots");
    admin.sees(&["No machine has booted"]);
    admin.until("document.getElementById('lost').hidden");
    admin.script("window.stays = true;", &[]);
    let script = place.site.script(MAC);
    let mut machine = place.site.session(&target_in(&script));
    assert!(machine.run("read -P 0x5a 0 4096").contains("read 4096"));
    admin.until("document.querySelector('td.strip') && window.stays");
    admin.press("lab-01");
    admin.arrives_at("/boots/");
    admin.sees(&["log-in, first stage"]);
    machine.end();
}

#[test]
fn upload_that_is_broken_off_goes_on_where_it_was() {
    // Parts are 4 MiB: of this image the first one arrives, and the connection is cut in the second.
    const WITH_A_CUT: &str = "const real = window.fetch; let parts = 0; window.fetch = (address, options) => \
        String(address).includes('/part?') && ++parts === 2 ? Promise.reject(new Error('cut off')) : real(address, options);";
    const NOTED: &str = "const real = window.fetch; window.fetch = (address, options) => { \
        const offset = new URL(address, location).searchParams.get('offset'); \
        if (offset !== null && !sessionStorage.first) { sessionStorage.first = offset; } \
        return real(address, options); };";
    let place = Place::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let image = elsewhere.path().join("second.vhdx");
    std::fs::copy(place.site.path("golden.vhdx"), &image).unwrap();
    let admin = place.admin();
    admin.go("/vdisks/upload");
    admin.script(WITH_A_CUT, &[]);
    admin.choose_file("file", &image);
    admin.press("Upload");
    admin.sees(&["cut off"]);

    admin.go("/vdisks/upload");
    admin.script(NOTED, &[]);
    admin.choose_file("file", &image);
    admin.press("Upload");
    admin.arrives_at("/vdisks/adopt?store=");
    admin.sees(&["second.vhdx"]);
    assert_eq!(admin.script("return sessionStorage.first;", &[]), (4 << 20).to_string());
    let arrived = std::fs::read(place.site.path("second.vhdx")).unwrap();
    assert!(arrived == std::fs::read(&image).unwrap(), "what arrived is not what was sent");
}

#[test]
fn boot_that_is_looked_at_gets_its_next_steps_without_being_loaded_again() {
    let place = Place::new();
    let admin = place.admin();
    let target = target_in(&place.site.script(MAC));
    admin.go("/boots");
    admin.press("lab-01");
    admin.arrives_at("/boots/");
    admin.sees(&["iPXE script"]);
    admin.until("document.getElementById('lost').hidden");
    assert!(!admin.text().contains("log-in, first stage"));
    admin.script("window.stays = true;", &[]);
    let mut machine = place.site.session(&target);
    assert!(machine.run("read -P 0x5a 0 4096").contains("read 4096"));
    admin.until(
        "window.stays && document.querySelector('.waterfall').innerText.includes('log-in, first stage')",
    );
    admin.until(
        "window.stays && document.querySelector('.waterfall').innerText.includes('first stage reads')",
    );
    machine.end();
}
