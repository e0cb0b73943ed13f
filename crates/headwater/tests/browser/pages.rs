//! Every page in both themes and on a narrow screen: held to axe-core's rules, and pictured where somebody wants to look.
use std::path::PathBuf;

use farm::catalogue::Catalogue;
use farm::model::{Actor, ServerName, Timestamp, UserName};
use serde_json::{Value, json};

use crate::driver::Browser;
use crate::harness::{MAC, target_in};
use crate::place::Place;

/// axe-core, which is run in the page.
const AXE: &str = include_str!("axe.min.js");

/// Name of the picture, and address. ID stands for the only device or vDisk, BOOT for its boot.
const PAGES: &[(&str, &str)] = &[
    ("overview", "/"),
    ("devices", "/devices"),
    ("device", "/devices/lab-01"),
    ("device-edit", "/devices/DEVICE/edit"),
    ("device-delete", "/devices/DEVICE/delete"),
    ("device-new", "/devices/new"),
    ("device-network", "/devices/DEVICE/network"),
    ("devices-import", "/devices/import"),
    ("boots", "/boots"),
    ("boot", "/boots/BOOT"),
    ("vdisks", "/vdisks"),
    ("vdisk", "/vdisks/VDISK"),
    ("vdisk-merge", "/vdisks/VDISK/do?what=merge-base"),
    ("vdisk-new", "/vdisks/new"),
    ("vdisk-upload", "/vdisks/upload"),
    ("vdisk-adopt", "/vdisks/adopt?store=STORE"),
    ("tasks", "/tasks"),
    ("locks", "/locks"),
    ("stores", "/stores"),
    ("servers", "/servers"),
    ("server", "/servers/SERVER"),
    ("server-silent", "/servers/stream-3"),
    ("settings", "/settings"),
    ("doctor", "/doctor"),
    ("sites", "/sites"),
    ("collections", "/collections"),
    ("collection-new", "/collections/new"),
    ("views", "/views"),
    ("view-new", "/views/new"),
    ("write-caches", "/persistent-caches"),
    ("users", "/users"),
    ("grants", "/grants"),
    ("tokens", "/tokens"),
    ("audit", "/audit"),
    ("search", "/search?q=lab"),
    ("password", "/password"),
    ("first-run", "/first-run"),
    ("nothing", "/nothing"),
];

/// How high the window is.
const HEIGHT: u64 = 900;

/// How a page is looked at.
struct Look {
    name: &'static str,
    width: u32,
    scheme: &'static str,
}

const LOOKS: &[Look] = &[
    Look { name: "light", width: 1280, scheme: "light" },
    Look { name: "dark", width: 1280, scheme: "dark" },
    Look { name: "narrow", width: 360, scheme: "light" },
];

#[test]
fn every_page_is_accessible_in_both_themes_and_fits_a_narrow_screen() {
    let place = Place::new();
    let admin = place.admin();
    std::fs::write(place.site.path("notes.vhdx"), "no image").unwrap();
    place.site.headwater(&["version", "create", "debian", "--comment", "November updates"]);
    place.site.headwater(&["version", "promote", "debian/1"]);
    let mut machine = place.site.session(&target_in(&place.site.script(MAC)));
    machine.run("read -P 0x5a 0 4096");
    admin.go("/boots");
    admin.until("document.querySelector('td.strip')");
    other_servers(&place);
    let id_at = |page: &str, kind: &str| {
        admin.go(page);
        let find = "return [...document.querySelectorAll('main a')].map((one) => one.pathname.split('/')).find((parts) => \
             parts[1] === arguments[0] && parts.length === 3 && !['new', 'import', 'export'].includes(parts[2]))[2];";
        admin.script(find, &[json!(kind)]).as_str().unwrap().to_owned()
    };
    let ids = [
        ("DEVICE", id_at("/devices", "devices")),
        ("VDISK", id_at("/vdisks", "vdisks")),
        ("STORE", id_at("/stores", "stores")),
        ("SERVER", id_at("/servers", "servers")),
        ("BOOT", id_at("/boots", "boots")),
    ];
    let pictures = std::env::var_os("HEADWATER_SCREENSHOTS").map(PathBuf::from);
    let mut wrong = Vec::new();
    for (name, path) in PAGES {
        let path = ids.iter().fold((*path).to_owned(), |path, (word, id)| path.replace(word, id));
        for look in LOOKS {
            wrong.extend(looked_at(&admin, &path, look));
            if let Some(folder) = &pictures {
                std::fs::create_dir_all(folder).unwrap();
                // As high as the page is, so that what stays at the foot of the window is at the foot of the picture.
                let height =
                    admin.script("return document.documentElement.scrollHeight;", &[]).as_u64().unwrap();
                shown_as(&admin, look, height.max(HEIGHT));
                std::fs::write(folder.join(format!("{name}-{}.png", look.name)), admin.picture()).unwrap();
            }
        }
    }
    machine.end();
    assert!(wrong.is_empty(), "{} finding(s):\n{}", wrong.len(), wrong.join("\n"));
}

/// Servers beside the one that runs, and what they said of themselves: one has too much to do, one was not heard of for a
/// minute, one has stopped.
fn other_servers(place: &Place) {
    let load = json!({
        "version": env!("CARGO_PKG_VERSION"), "uptime_s": 86_400, "devices": 38, "sessions": 38, "booting": 20, "at_once": 20, "waiting": 3,
        "longest_wait_s": 12, "processors_busy": 3.87, "processors": 4, "memory_bytes": 812_u64 << 20, "cache_memory_bytes": 0,
        "cache_memory_limit_bytes": 0, "read_bytes_per_second": 310_u64 << 20, "written_bytes_per_second": 4 << 20,
        "requests_per_second": 12_480, "hit_share": 0.97,
    })
    .to_string();
    let now: Timestamp = std::time::SystemTime::now().into();
    let catalogue = Catalogue::open_file(&place.site.path("state/farm.db")).unwrap();
    let by =
        Actor { user: UserName::new("test").unwrap(), token: None, origin: String::new(), request: None };
    // The clock of the one that runs is ahead: it is not missed while pages are looked at.
    for (name, load, from_now_s) in
        [("stream-2", Some(&load), 3600), ("stream-3", Some(&load), -60), ("stream-4", None, -3600)]
    {
        place.site.headwater(&["server", "create", name, "max_devices=40"]);
        let at = Timestamp::from_ms(now.ms() + from_now_s * 1000);
        let load = load.map(String::as_str);
        let told = catalogue.change(&by, at, |change| {
            let server = change.server(&ServerName::new(name)?)?;
            change.report_server(server.id, load)
        });
        told.unwrap();
    }
}

/// Gives the window a look.
fn shown_as(browser: &Browser, look: &Look, height: u64) {
    let mobile = look.width < 500;
    let metrics = json!({ "width": look.width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
    browser.chromium("Emulation.setDeviceMetricsOverride", &metrics);
    let scheme = json!([{ "name": "prefers-color-scheme", "value": look.scheme }]);
    browser.chromium("Emulation.setEmulatedMedia", &json!({ "features": scheme }));
}

/// Looks at a page: what is wrong with it.
fn looked_at(browser: &Browser, path: &str, look: &Look) -> Vec<String> {
    shown_as(browser, look, HEIGHT);
    browser.go(path);
    browser.until("document.readyState === 'complete' && document.querySelector('h1')");
    let mut wrong = Vec::new();
    let wide = browser.script("return document.documentElement.scrollWidth;", &[]).as_u64().unwrap();
    if wide > u64::from(look.width) {
        wrong.push(format!("{path} ({}): {wide} px wide", look.name));
    }
    let run = "const done = arguments[arguments.length - 1]; \
        axe.run(document, { resultTypes: ['violations'] }).then((told) => done(told.violations.map((one) => ({ \
        id: one.id, impact: one.impact, at: one.nodes.slice(0, 3).map((node) => node.target.join(' ') + ': ' + node.failureSummary).join('; ') }))));";
    browser.script(&format!("{AXE}\nwindow.axe = axe;"), &[]);
    let found = browser.script_later(run, &[]);
    for one in found.as_array().into_iter().flatten() {
        if ["serious", "critical"].contains(&one["impact"].as_str().unwrap_or_default()) {
            wrong.push(format!("{path} ({}): {}", look.name, plain(one)));
        }
    }
    wrong
}

fn plain(finding: &Value) -> String {
    let text = |name: &str| finding[name].as_str().unwrap_or_default().replace('\n', " ");
    format!("{} ({}): {}", text("id"), text("impact"), text("at"))
}

#[test]
fn vendored_rules_are_what_their_package_holds() {
    let list: toml::Table = include_str!("vendored.toml").parse().unwrap();
    let digest = <sha2::Sha256 as sha2::Digest>::digest(AXE);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(list["file"][0]["sha256"].as_str(), Some(digest.as_str()));
}
