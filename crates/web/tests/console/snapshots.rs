//! Every page of the sample farm, as it was when somebody last looked at it.
//!
//! What differs from run to run (moments, ages, tokens of forms, room on this machine's disks) is taken out; all else of the
//! page's main part is held to a file. After a change that is meant: `HEADWATER_BLESS=1 cargo test -p web snapshots`, and look
//! at the difference.
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::farm::{Browser, Farm, load};

/// The pages: the name of the file, and where the page is. `{lab-01}` and the like stand for ids.
const PAGES: &[(&str, &str)] = &[
    ("overview", "/"),
    ("devices", "/devices"),
    ("devices-filtered", "/devices?state=ready&kind=production"),
    ("device", "/devices/lab-01"),
    ("device-off", "/devices/lab-02"),
    ("device-edit", "/devices/{devices/lab-01}/edit"),
    ("device-delete", "/devices/{devices/lab-01}/delete"),
    ("device-new", "/devices/new"),
    ("device-profile", "/devices/lab-01/profile"),
    ("boots", "/boots"),
    ("boot", "/boots/b1"),
    ("boot-compared", "/boots/b1?with=b0"),
    ("vdisks", "/vdisks"),
    ("vdisk", "/vdisks/{vdisks/debian}"),
    ("vdisk-edit", "/vdisks/{vdisks/debian}/edit"),
    ("vdisk-profile-none", "/vdisks/{vdisks/win11}/profile"),
    ("vdisk-danger", "/vdisks/{vdisks/debian}/do?what=delete-obsolete"),
    ("vdisk-merge", "/vdisks/{vdisks/debian}/do?what=merge-base"),
    ("stores", "/stores"),
    ("store", "/stores/{stores/images}"),
    ("store-edit", "/stores/{stores/images}/edit"),
    ("servers", "/servers"),
    ("server", "/servers/{servers/one.example.org}"),
    ("server-edit", "/servers/{servers/one.example.org}/edit"),
    ("sites", "/sites"),
    ("site-new", "/sites/new"),
    ("collections", "/collections"),
    ("collection-edit", "/collections/{collections/lab}/edit"),
    ("collection-delete", "/collections/{collections/lab}/delete"),
    ("views", "/views"),
    ("view", "/views/{views/test-devices}"),
    ("view-new", "/views/new"),
    ("devices-in-view", "/devices?view=test-devices"),
    ("users", "/users"),
    ("user-new", "/users/new"),
    ("grants", "/grants"),
    ("grant-new", "/grants/new"),
    ("tokens", "/tokens"),
    ("token-new", "/tokens/new"),
    ("persistent-caches", "/persistent-caches"),
    ("locks", "/locks"),
    ("settings", "/settings"),
    ("doctor", "/doctor"),
    ("device-network", "/devices/lab-01/network"),
    ("tasks", "/tasks"),
    ("search", "/search?q=lab"),
    ("password", "/password"),
    ("nothing-here", "/no-such-page"),
];

/// The same for whoever may look and do nothing.
const REDUCED: &[(&str, &str)] = &[
    ("overview", "/"),
    ("device", "/devices/lab-01"),
    ("device-network", "/devices/lab-01/network"),
    ("vdisk", "/vdisks/{vdisks/debian}"),
    ("servers", "/servers"),
    ("settings", "/settings"),
    ("doctor", "/doctor"),
];

/// With a device that has a vDisk alone, by the first lock that there is.
const LOCKED: &[(&str, &str)] = &[
    ("overview-locked", "/"),
    ("locks-held", "/locks"),
    ("lock", "/locks/1"),
    ("lock-break", "/locks/1/break"),
];

/// With several servers: one that has little to do, one that has too much, one that was not heard of, one that stopped, and one
/// that nobody misses.
const SERVERS: &[(&str, &str)] = &[
    ("overview-servers", "/"),
    ("servers-several", "/servers"),
    ("server-overloaded", "/servers/{servers/two}"),
    ("server-silent", "/servers/{servers/three}"),
    ("server-stopped", "/servers/{servers/four}"),
];

/// Cuts what stands between two marks, again and again.
fn without(text: &str, from: &str, to: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(from) {
        let Some((_, after)) = after.split_once(to) else { break };
        kept.push_str(before);
        kept.push_str(from);
        kept.push('…');
        kept.push_str(to);
        rest = after;
    }
    kept + rest
}

/// Ages: `3 d 4 h ago` becomes `… ago`.
fn without_ages(text: &str) -> String {
    let mut parts: Vec<String> = text.split(" ago").map(str::to_owned).collect();
    let last = parts.len() - 1;
    for part in &mut parts[..last] {
        let kept = before_age(part).len();
        part.truncate(kept);
        part.push('…');
    }
    parts.join(" ago")
}

/// What stands before the numbers with units that a text ends with.
fn before_age(text: &str) -> &str {
    for unit in [" min", " d", " h", " s"] {
        let Some(number) = text.strip_suffix(unit) else { continue };
        let before = number.trim_end_matches(|c: char| c.is_ascii_digit());
        let rest = before_age(before.trim_end_matches(' '));
        return if rest.len() < before.trim_end_matches(' ').len() { rest } else { before };
    }
    text
}

fn main_part(page: &str) -> String {
    let main = page.split_once("<main").and_then(|(_, rest)| rest.split_once("</main>")).unwrap().0;
    let mut text = without(main, "name=\"form_token\" value=\"", "\"");
    text = without(&text, "<time datetime=\"", "</time>");
    text = without(&text, "<title>up for ", "</title>");
    text = without(&text, "<h2>Storage</h2>", "</section>");
    without_ages(&text).replace("><", ">\n<") + "\n"
}

/// What is not as it was when somebody last looked at it, of the pages that somebody sees.
async fn changed(farm: &Farm, who: &mut Browser, prefix: &str, pages: &[(&str, &str)]) -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/console/snapshots");
    let bless = std::env::var_os("HEADWATER_BLESS").is_some();
    let mut changed = Vec::new();
    for (name, path) in pages {
        let path = match path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            Some((before, (object, after))) => {
                let found = farm.root(Method::GET, &format!("/v1/{object}"), &Value::Null).await;
                format!("{before}{}{after}", found["id"])
            }
            None => (*path).to_owned(),
        };
        let seen = who.get(&path).await;
        let expected = if *name == "nothing-here" { StatusCode::NOT_FOUND } else { StatusCode::OK };
        assert_eq!(seen.status, expected, "{path}: {}", seen.text);
        let found = main_part(&seen.text);
        let file = folder.join(format!("{prefix}{name}.html"));
        if bless {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &found).unwrap();
        }
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        if known != found {
            let line = known.lines().zip(found.lines()).find(|(known, found)| known != found);
            changed.push(format!("{prefix}{name} ({path}), first at {line:?}"));
        }
    }
    changed
}

/// Four more servers. Clocks of those that run are ahead: however long the test takes, they were heard of a moment ago.
async fn servers(farm: &Farm) {
    for (name, disabled) in [("two", false), ("three", false), ("four", false), ("five", true)] {
        let body = json!({"name": name, "site": "Main", "max_devices": 40, "disabled": disabled});
        farm.root(Method::POST, "/v1/servers", &body).await;
    }
    let mut overloaded = load();
    for (key, value) in [
        ("devices", json!(38)),
        ("processors_busy", json!(3.87)),
        ("booting", json!(20)),
        ("waiting", json!(3)),
        ("longest_wait_s", json!(12)),
    ] {
        overloaded[key] = value;
    }
    let hour_s = 3600;
    farm.report("one.example.org", Some(load()), hour_s).await;
    farm.report("two", Some(overloaded), hour_s).await;
    farm.report("three", Some(load()), -hour_s).await;
    farm.report("four", None, -hour_s).await;
    farm.report("five", Some(load()), -hour_s).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_looks_as_it_did() {
    let farm = Farm::new().await;
    let mut ann = farm.ann().await;
    let view = json!({"name": "test-devices", "of": "devices", "filter": "kind = test"});
    farm.root(Method::POST, "/v1/views", &view).await;
    // The doctor has looked, and what was said of that was read.
    ann.get("/doctor").await;
    ann.post("/doctor", &[]).await;
    ann.get("/doctor").await;
    let mut all = changed(&farm, &mut ann, "", PAGES).await;
    farm.user("eve", "read-only", None).await;
    let mut eve = farm.browser("eve").await;
    all.extend(changed(&farm, &mut eve, "reduced-", REDUCED).await);
    assert_eq!(farm.lock(), 1);
    all.extend(changed(&farm, &mut ann, "", LOCKED).await);
    all.extend(changed(&farm, &mut eve, "reduced-", LOCKED).await);
    servers(&farm).await;
    all.extend(changed(&farm, &mut ann, "", SERVERS).await);
    assert!(
        all.is_empty(),
        "these pages have changed; if that is meant, run this test once with HEADWATER_BLESS=1 and look at the \
         difference:\n{}",
        all.join("\n")
    );
}

#[test]
fn ages_are_taken_out_and_all_else_stays() {
    assert_eq!(without_ages("<p>began 3 d 4 h ago, ready"), "<p>began … ago, ready");
    assert_eq!(without_ages(">12 min 5 s ago<b>no age</b>"), ">… ago<b>no age</b>");
    assert_eq!(without("a<t x</t>b<t y</t>", "<t ", "</t>"), "a<t …</t>b<t …</t>");
}
