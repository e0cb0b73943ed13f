//! The console without a mouse: where Tab leads, what keys do, and that what renews itself takes the focus from nobody.
use serde_json::{Value, json};

use crate::driver::{Browser, key};
use crate::harness::{MAC, target_in};
use crate::place::{PASSWORD, Place};

/// Pages that have something of every kind that takes the focus. ID stands for the only device or vDisk, BOOT for its boot.
const PAGES: &[&str] = &[
    "/",
    "/devices",
    "/devices/lab-01",
    "/devices/new",
    "/vdisks/VDISK",
    "/boots/BOOT",
    "/audit",
    "/settings",
];

/// What has the focus: whether it follows what had it before, is seen, and how much its outline stands out; `null`: nothing.
const STOP: &str = "const one = document.activeElement; if (one === document.body) { return null; } \
    const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number); \
    const light = (colour) => { const [r, g, b] = colour.slice(0, 3).map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; }; \
    const behind = () => { for (let at = one.parentElement; at; at = at.parentElement) { const colour = rgb(getComputedStyle(at).backgroundColor); if (colour.length === 3 || colour[3] > 0) { return colour; } } return [255, 255, 255]; }; \
    const style = getComputedStyle(one); \
    const [a, b] = [light(rgb(style.outlineColor)), light(behind())]; \
    const before = window.before; window.before = one; \
    const box = one.getClientRects()[0]; \
    const middle = (from, to, most) => (Math.max(from, 0) + Math.min(to, most)) / 2; \
    const hit = document.elementFromPoint(middle(box.left, box.right, innerWidth), middle(box.top, box.bottom, innerHeight)); \
    return { what: one.outerHTML.slice(0, 120), skip: one.matches('.skip'), wide: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth), \
        contrast: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), seen: Boolean(hit) && (one.contains(hit) || hit.contains(one)), \
        follows: !before || one.matches('.skip') || !before.isConnected || before === one || Boolean(before.compareDocumentPosition(one) & Node.DOCUMENT_POSITION_FOLLOWING), \
        right: box.left, below: box.top, height: box.height, top: Boolean(one.closest('.top')) };";

/// The stops of Tab on a page, from its start to its end.
fn stops(browser: &Browser, page: &str) -> Vec<Value> {
    let next = || {
        browser.key(key::TAB);
        browser.script(STOP, &[])
    };
    browser.go(page);
    browser.until("document.readyState === 'complete' && document.querySelector('h1')");
    let mut stops: Vec<Value> = Vec::new();
    // A form's first field has the focus at once: what stands before it is looked at, too.
    if browser.script("return Boolean(document.querySelector('[autofocus]'));", &[]) == true {
        browser.until("document.activeElement !== document.body");
        stops.extend(std::iter::repeat_with(next).take_while(|stop| !stop.is_null()).find(is_skip));
    }
    // Behind the last one comes the browser itself, or the first one again.
    while let Some(stop) = Some(next()).filter(|stop| !stop.is_null()) {
        if is_skip(&stop) && !stops.is_empty() {
            break;
        }
        stops.push(stop);
        assert!(stops.len() < 300, "Tab does not come to the end of {page}");
    }
    stops
}

fn is_skip(stop: &Value) -> bool {
    stop["skip"] == true
}

#[test]
fn tab_leads_through_pages_as_they_are_read_and_is_seen_wherever_it_is() {
    let place = Place::new();
    let admin = place.admin();
    let machine = place.site.session(&target_in(&place.site.script(MAC)));
    let id_at = |page: &str, kind: &str| {
        admin.go(page);
        admin.until(&format!("document.querySelector('main table a[href^=\"/{kind}/\"]')"));
        let find = "return [...document.querySelectorAll('main table a')].map((one) => one.pathname.split('/')).find((parts) => parts[1] === arguments[0])[2];";
        admin.script(find, &[json!(kind)]).as_str().unwrap().to_owned()
    };
    let (vdisk, boot) = (id_at("/vdisks", "vdisks"), id_at("/boots", "boots"));
    let mut wrong = Vec::new();
    for scheme in ["light", "dark"] {
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        admin.chromium("Emulation.setEmulatedMedia", &json!({ "features": feature }));
        for page in PAGES {
            let page = page.replace("VDISK", &vdisk).replace("BOOT", &boot);
            let stops = stops(&admin, &page);
            if !stops.first().is_some_and(is_skip) {
                wrong.push(format!(
                    "{page}: the first stop is not the way past the navigation, but {:?}",
                    stops.first()
                ));
            }
            for stop in &stops {
                let (what, contrast) = (&stop["what"], stop["contrast"].as_f64().unwrap());
                if stop["wide"].as_f64().unwrap() < 2.0 || contrast < 3.0 {
                    wrong.push(format!(
                        "{page} ({scheme}): its outline is not seen ({contrast:.1} to 1): {what}"
                    ));
                }
                if stop["seen"] != true {
                    wrong.push(format!("{page} ({scheme}): something lies above it: {what}"));
                }
                if stop["follows"] != true {
                    wrong.push(format!(
                        "{page} ({scheme}): it stands before what had the focus before: {what}"
                    ));
                }
            }
        }
    }
    let metrics = json!({ "width": 360, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    admin.chromium("Emulation.setDeviceMetricsOverride", &metrics);
    let stops = stops(&admin, "/devices");
    let top: Vec<_> = stops.iter().filter(|stop| stop["top"] == true).collect();
    assert!(top.len() > 4, "{top:?}");
    for pair in top.windows(2) {
        let number = |stop: &Value, name: &str| stop[name].as_f64().unwrap();
        let down = number(pair[1], "below") - number(pair[0], "below");
        let row = number(pair[0], "height") / 2.0;
        if down < -row || (down < row && number(pair[1], "right") <= number(pair[0], "right")) {
            wrong.push(format!("on a narrow screen {} comes before {}", pair[0]["what"], pair[1]["what"]));
        }
    }
    machine.end();
    assert!(wrong.is_empty(), "{} finding(s):\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn administrator_runs_a_farm_with_nothing_but_keys() {
    let place = Place::new();
    drop(place.admin());
    let admin = place.browser();
    admin.go("/log-in");
    admin.keys("admin");
    admin.tab_to("Password");
    admin.keys(PASSWORD);
    admin.key(key::ENTER);
    admin.sees(&["Overview"]);

    admin.tab_to("+ Device");
    admin.key(key::ENTER);
    admin.arrives_at("/devices/new");
    admin.until("document.activeElement.name === 'name'");
    admin.keys("lab-02");
    admin.tab_to("MAC addresses");
    admin.keys("52:54:00:77:00:11");
    admin.key(key::ENTER);
    admin.sees(&["Made device lab-02."]);

    admin.tab_to("Devices");
    admin.key(key::ENTER);
    admin.arrives_at("/devices");
    admin.sees(&["lab-01", "lab-02"]);
    admin.tab_to("Mark lab-01");
    admin.key(key::SPACE);
    admin.tab_to("Mark lab-02");
    admin.key(key::SPACE);
    admin.back_to("What to do");
    admin.keys("disable");
    admin.tab_to("Go on…");
    admin.key(key::ENTER);
    admin.sees(&["Is this meant?", "2 devices will not boot any more"]);
    assert_eq!(admin.focused(), "Cancel");
    admin.key(key::TAB);
    assert_eq!(admin.focused(), "Do it to 2 devices");
    admin.key(key::ENTER);
    admin.sees(&["Done: 2 devices."]);
    for device in ["lab-01", "lab-02"] {
        let told = place.site.headwater(&["device", "show", device, "--output", "json"]);
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["disabled"], true, "{told}");
        assert_eq!(
            told["disks"][0]["vdisk"]["name"], "images/debian",
            "the only vDisk is what a new device boots: {told}"
        );
    }

    admin.tab_to("admin");
    admin.key(key::ENTER);
    admin.tab_to("Log out");
    admin.key(key::ENTER);
    admin.arrives_at("/log-in");
}

#[test]
fn search_and_menus_are_opened_and_left_by_keys() {
    let place = Place::new();
    let admin = place.admin();
    admin.go("/devices");
    admin.key('/');
    assert_eq!(admin.focused(), "Search the farm");
    admin.keys("10/8");
    let typed = "return document.activeElement.value;";
    assert_eq!(admin.script(typed, &[]), "10/8", "whoever types it writes it");
    admin.key(key::ENTER);
    admin.arrives_at("/search?q=10%2F8");

    admin.tab_to("admin");
    admin.key(key::ENTER);
    admin.until("document.querySelector('.account').open");
    admin.tab_to("Key / goes to the search");
    admin.key(key::SPACE);
    admin.key(key::ESCAPE);
    admin.until("!document.querySelector('.account').open");
    assert_eq!(admin.focused(), "admin");
    admin.key('/');
    assert_eq!(admin.focused(), "admin", "the key is left alone by those who say so");
    admin.key(key::SPACE);
    admin.until("document.querySelector('.account').open");
    admin.tab_to("Overview");
    admin.until("!document.querySelector('.account').open");

    admin.go("/devices");
    admin.tab_to("More filters");
    admin.key(key::ENTER);
    admin.tab_to("Enabled");
    admin.key(key::ESCAPE);
    admin.until("!document.querySelector('.filters details').open");
    assert_eq!(admin.focused(), "More filters");

    let metrics = json!({ "width": 360, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    admin.chromium("Emulation.setDeviceMetricsOverride", &metrics);
    admin.go("/vdisks");
    let open = "document.getElementById('menu').checkVisibility()";
    admin.tab_to("Menu");
    admin.key(key::ENTER);
    admin.until(open);
    admin.key(key::TAB);
    assert_eq!(admin.focused(), "Close menu");
    admin.key(key::ESCAPE);
    admin.until(&format!("!{open}"));
    assert_eq!(admin.focused(), "Menu");
    admin.key(key::ENTER);
    admin.tab_to("Clear");
    admin.until(&format!("!{open}"));
}

#[test]
fn dialog_is_left_by_escape_as_by_its_cancel() {
    let place = Place::new();
    let admin = place.admin();
    for key in [key::ESCAPE, key::ENTER] {
        admin.go("/devices");
        admin.tab_to("lab-01");
        admin.key(key::ENTER);
        admin.arrives_at("/devices/");
        let device = admin.place();
        admin.tab_to("Delete…");
        admin.key(key::ENTER);
        admin.sees(&["Is this meant?", "unknown to the farm"]);
        assert_eq!(admin.focused(), "Cancel", "what is safe is what Enter does");
        admin.key(key);
        admin.arrives_at(&device);
        admin.sees(&["Last 24 hours"]);
    }
    admin.go("/vdisks");
    admin.tab_to("debian");
    admin.key(key::ENTER);
    admin.tab_to("New version…");
    admin.key(key::ENTER);
    admin.sees(&["One maintenance device boots it"]);
    admin.back_to("Remark");
    admin.keys("not that");
    admin.key(key::ESCAPE);
    admin.sees(&["Versions, newest first"]);
    assert!(!admin.text().contains("Version 1"));
}

/// Has a part renewed by something that happens, and waits until it is.
fn renewed(browser: &Browser, part: &str, happens: impl FnOnce()) {
    let old = format!("document.querySelector({part:?}).dataset.old");
    browser.script(&format!("{old} = 'yes';"), &[]);
    happens();
    browser.until(&format!("!{old}"));
}

#[test]
fn what_is_renewed_takes_the_focus_the_marks_and_the_place_from_nobody() {
    let place = Place::new();
    place.site.headwater(&["device", "create", "lab-02", "collection=imported", "macs=52:54:00:77:00:11"]);
    let admin = place.admin();
    let boots = || drop(place.site.script(MAC));
    admin.go("/devices");
    admin.sees(&["lab-01"]);
    for stop in [
        "What to do",
        "Go on…",
        "Mark all on this page",
        "Name ▲",
        "Mark lab-01",
        "lab-01",
        "Mark lab-02",
        "lab-02",
    ] {
        admin.tab_to(stop);
        if stop == "Mark lab-02" {
            admin.key(key::SPACE);
        }
        if stop != "What to do" {
            renewed(&admin, "#device-table", boots);
        }
        assert_eq!(admin.focused(), stop);
    }
    let marked = "return [...document.querySelectorAll('[name=id]')].map((box) => box.checked);";
    assert_eq!(admin.script(marked, &[]), json!([false, true]));
    let address = "return document.getElementById('device-table').getAttribute('hx-get');";
    assert_eq!(admin.script(address, &[]), "/devices/table", "what is chosen in the form is no filter");

    // Whoever chooses or types is not disturbed; what was held back comes when they go on.
    admin.back_to("What to do");
    admin.script(COUNT_HELD, &[]);
    admin.keys("show");
    admin.tab_to("Message to show");
    boots();
    admin.until("window.held > 0");
    admin.keys("Back soon");
    assert_eq!(admin.script("return document.querySelector('#device-table').dataset.old;", &[]), "yes");
    admin.key(key::TAB);
    admin.until("!document.querySelector('#device-table').dataset.old");
    assert_eq!(admin.focused(), "Go on…");
    let typed = "return [document.querySelector('.bulk [name=what]').value, document.querySelector('.bulk [name=text]').value];";
    assert_eq!(admin.script(typed, &[]), json!(["message", "Back soon"]));

    // What is gone leaves the focus to what stands there now.
    admin.tab_to("lab-02");
    renewed(&admin, "#device-table", || drop(place.site.headwater(&["device", "delete", "lab-02", "--yes"])));
    admin.until("!document.querySelector('#device-table tbody').innerText.includes('lab-02')");
    assert_eq!(admin.focused(), "lab-01");

    admin.tab_to("Tasks");
    admin.tab_to("Tasks");
    renewed(&admin, "#task-log", || drop(place.site.headwater(&["device", "set", "lab-01", "kind=test"])));
    assert_eq!(admin.focused(), "Tasks");

    // How far somebody has scrolled, the page and within it.
    let metrics = json!({ "width": 600, "height": 300, "deviceScaleFactor": 1, "mobile": false });
    admin.chromium("Emulation.setDeviceMetricsOverride", &metrics);
    admin.go("/devices");
    admin.tab_to("Mark lab-01");
    let at =
        "const table = document.querySelector('#device-table .table'); return [table.scrollLeft, scrollY];";
    admin.script("document.querySelector('#device-table .table').scrollLeft = 90; scrollTo(0, 120);", &[]);
    let before = admin.script(at, &[]);
    assert_eq!(before, json!([90, 120]));
    renewed(&admin, "#device-table", boots);
    assert_eq!(admin.script(at, &[]), before);
    assert_eq!(admin.focused(), "Mark lab-01");
}

/// Counts what is held back, of a page that then is not renewed.
const COUNT_HELD: &str = "document.querySelector('#device-table').dataset.old = 'yes'; window.held = 0; \
    document.addEventListener('htmx:beforeRequest', (event) => { if (event.defaultPrevented) { window.held += 1; } });";

#[test]
fn what_a_finger_is_on_is_not_renewed_away() {
    let place = Place::new();
    let admin = place.admin();
    admin.go("/devices");
    admin.sees(&["lab-01"]);
    admin.script(COUNT_HELD, &[]);
    let at = "const box = document.querySelector('#device-table th[scope=row] a').getBoundingClientRect(); return [box.x + 5, box.y + 5];";
    let at = admin.script(at, &[]);
    let mouse = |what: &str| {
        let told = json!({ "type": what, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
        admin.chromium("Input.dispatchMouseEvent", &told);
    };
    mouse("mousePressed");
    drop(place.site.script(MAC));
    admin.until("window.held > 0");
    mouse("mouseReleased");
    admin.arrives_at("/devices/");
    admin.sees(&["Last 24 hours"]);
}

#[test]
fn parts_that_renew_themselves_are_read_out_by_nobody() {
    let place = Place::new();
    let admin = place.admin();
    drop(place.site.script(MAC));
    for page in [
        "/",
        "/devices",
        "/devices?filter=name+~",
        "/devices/lab-01",
        "/boots",
        "/vdisks",
        "/tasks",
        "/audit",
    ] {
        admin.go(page);
        admin.until("document.querySelector('h1')");
        let loud = "return [...document.querySelectorAll(\"[hx-trigger*='from:body']\")].flatMap((part) => \
            [part, ...part.querySelectorAll('*')]).filter((one) => one.matches('[aria-live], [role=status], [role=alert], [role=log]') && \
            !one.closest('[hx-preserve]')).map((one) => one.outerHTML.slice(0, 120));";
        assert_eq!(admin.script(loud, &[]), json!([]), "{page}");
    }
}

#[test]
fn chart_tells_its_figures_and_moves_to_a_moment_by_arrows() {
    let place = Place::new();
    let admin = place.admin();
    admin.go("/");
    let chart = "document.querySelector('.chart[tabindex]')";
    admin.until(&format!("{chart} && {chart}.getAttribute('aria-label').startsWith('Chart: read')"));
    while admin.script(&format!("return document.activeElement !== {chart};"), &[]) == true {
        admin.key(key::TAB);
    }
    let shown = "document.querySelector('.chart .u-legend').innerText.match(/\\d\\d:\\d\\d:\\d\\d/)";
    admin.until(&format!("!{shown}"));
    admin.key(key::LEFT);
    admin.until(shown);
}
