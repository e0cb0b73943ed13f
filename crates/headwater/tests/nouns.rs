//! The farm on the command line, against a server that runs.
mod harness;

use std::process::{Command, Output, Stdio};

use harness::Site;
use serde_json::Value;

fn run(site: &Site, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(words).arg("--socket").arg(site.path("hw.sock")).stdin(Stdio::null()).output().unwrap()
}

/// What is said of a command that is refused.
fn refused(site: &Site, words: &[&str]) -> String {
    let output = run(site, words);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn json(site: &Site, words: &[&str]) -> Value {
    let words: Vec<&str> = words.iter().copied().chain(["--output", "json"]).collect();
    let output = run(site, &words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    // What a task writes down while it is waited for goes to standard error.
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn places_are_made_changed_listed_and_taken_away() {
    let site = Site::running();
    let here = json(&site, &["site", "create", "Berlin", "description=the first"]);
    assert_eq!((here["name"].as_str(), here["description"].as_str()), (Some("Berlin"), Some("the first")));
    site.headwater(&["collection", "create", "Berlin/Lab", "newcomers=lab-###"]);
    let list = site.headwater(&[
        "collection",
        "list",
        "--filter",
        "site = Berlin",
        "--columns",
        "name,site,newcomers",
    ]);
    assert_eq!(list, "NAME  SITE    NEWCOMERS\nLab   Berlin  lab-###\n");
    let csv = site.headwater(&[
        "collection",
        "list",
        "--filter",
        "name = Lab",
        "--columns",
        "name,site",
        "--output",
        "csv",
    ]);
    assert_eq!(csv, "name,site\nLab,Berlin\n");
    let changed = json(&site, &["site", "set", "Berlin", "name=Bonn", "disabled=yes"]);
    assert_eq!((changed["name"].as_str(), changed["disabled"].as_bool()), (Some("Bonn"), Some(true)));
    let used = refused(&site, &["site", "delete", "Bonn", "--yes"]);
    assert!(used.contains("is in use by 1 collection") && used.contains("Lab"), "{used}");
    let asked = refused(&site, &["collection", "delete", "Bonn/Lab"]);
    assert!(asked.contains("Delete collection \"Lab\"?") && asked.contains("--yes"), "{asked}");
    site.headwater(&["collection", "delete", "Bonn/Lab", "--yes"]);
    site.headwater(&["site", "delete", "Bonn", "--yes"]);
    let gone = refused(&site, &["site", "show", "Bonn"]);
    assert!(gone.contains("there is no site \"Bonn\""), "{gone}");
    let audit = site.headwater(&[
        "audit",
        "list",
        "--filter",
        "kind = site",
        "--sort",
        "number",
        "--columns",
        "action,name,actor",
    ]);
    assert!(audit.ends_with("create  Berlin  root\nupdate  Bonn    root\ndelete  Bonn    root\n"), "{audit}");
}

#[test]
fn devices_come_from_a_table_whole_or_not_at_all() {
    let site = Site::running();
    let table = site.path("devices.csv");
    let write = |rows: &str| std::fs::write(&table, rows).unwrap();
    let file = table.to_str().unwrap();
    let header = site.headwater(&["device", "export"]).lines().next().unwrap().to_owned();
    assert!(header.starts_with("name,") && header.contains(",mac"), "{header}");
    write(
        "name,site,collection,mac\nlab-11,site,Room 1,52:54:00:77:00:21\nlab-12,site,Room 1,52:54:00:77:00:2\n",
    );
    let bad = refused(&site, &["device", "import", file, "--make-collections"]);
    assert!(bad.contains("nothing of it was imported") && bad.contains("line 3"), "{bad}");
    write(
        "name,site,collection,mac\nlab-11,site,Room 1,52:54:00:77:00:21\nlab-12,site,Room 1,52:54:00:77:00:22\n",
    );
    let plan = json(&site, &["device", "import", file, "--make-collections", "--dry-run"]);
    assert_eq!(plan["made"], 2, "{plan}");
    assert_eq!(json(&site, &["device", "list", "--filter", "name ~ lab-1*"])["total"], 0, "only rehearsed");
    site.headwater(&["device", "import", file, "--make-collections"]);
    site.headwater(&["device", "set", "lab-11", "kind=test", "disks=debian", "personality.Printer=hall"]);
    site.headwater(&["device", "copy-profile", "lab-11", "lab-12"]);
    let copied = json(&site, &["device", "show", "lab-12"]);
    assert_eq!(
        (copied["kind"].as_str(), copied["personality"]["Printer"].as_str()),
        (Some("test"), Some("hall"))
    );
    let exported = site.headwater(&["device", "export", "--filter", "name ~ lab-1*"]);
    assert_eq!(exported.lines().count(), 3, "{exported}");
}

#[test]
fn version_goes_through_its_life_and_a_merge_is_watched_to_its_end() {
    let site = Site::running();
    let made = json(&site, &["version", "create", "debian", "--comment", "updates"]);
    assert_eq!((made["number"].as_u64(), made["access"].as_str()), (Some(1), Some("maintenance")));
    site.headwater(&["version", "promote", "debian/1", "--to", "test"]);
    let promoted = json(&site, &["version", "promote", "debian/1"]);
    assert_eq!(promoted["access"], "production");
    let held = json(&site, &["vdisk", "hold", "debian", "0"]);
    assert_eq!(held["held_at"], 0);
    let refusal = refused(&site, &["version", "delete", "debian/0", "--yes"]);
    assert!(refusal.contains("is the parent of version 1"), "{refusal}");
    site.headwater(&["vdisk", "release", "debian"]);
    let task = json(&site, &["vdisk", "merge", "debian", "--base", "--wait"]);
    assert_eq!(task["state"], "done", "{task}");
    let versions = site.headwater(&["vdisk", "versions", "debian", "--columns", "number,kind,access"]);
    assert!(versions.contains("2  merged-base"), "{versions}");
    let tasks = site.headwater(&["task", "list"]);
    assert!(tasks.contains("merge") && tasks.contains("done"), "{tasks}");
}

#[test]
fn people_get_roles_and_tokens_whose_secret_is_shown_once() {
    let site = Site::running();
    site.headwater(&["user", "create", "ann", "description=runs the lab"]);
    site.headwater(&["user", "grant", "ann", "operator"]);
    let roles = site.headwater(&["user", "roles", "--columns", "user,role"]);
    assert!(roles.contains("ann    operator"), "{roles}");
    let secret = site.headwater(&["token", "create", "ann", "monitoring"]);
    assert!(secret.starts_with("hwt_") && secret.lines().count() == 1, "{secret}");
    let listed = site.headwater(&["token", "list", "--output", "json"]);
    assert!(listed.contains("monitoring") && !listed.contains(secret.trim()), "{listed}");
    site.headwater(&["token", "delete", "ann/monitoring", "--yes"]);
}

#[test]
fn wrong_words_are_told_before_the_server_is_asked() {
    let site = Site::new("", "", "");
    let wrong = refused(&site, &["vdisk", "create", "x", "storr=images"]);
    assert!(wrong.contains("did you mean \"store\"?"), "{wrong}");
    let nobody = refused(&site, &["vdisk", "list"]);
    assert!(nobody.contains("no server answers on"), "{nobody}");
}

#[test]
fn versions_are_named_as_people_name_them_and_what_is_not_there_is_told_with_what_is() {
    let site = Site::running();
    site.headwater(&["version", "create", "debian", "--comment", "updates"]);
    site.headwater(&["version", "promote", "debian", "1", "--to", "test"]);
    site.headwater(&["version", "promote", "debian@1", "--at", "2100-01-01T00:00:00Z"]);
    let moved = site.headwater(&["version", "schedule", "debian", "1", "2101-01-01T00:00:00Z"]);
    assert!(moved.contains("2101-01-01T00:00:00.000Z"), "{moved}");
    site.headwater(&["version", "comment", "images/debian@1", "later"]);
    let list = site.headwater(&["version", "list", "debian", "--columns", "number,comment"]);
    assert_eq!(list.lines().skip(1).count(), 2, "{list}");
    assert!(list.starts_with("VERSION  COMMENT") && list.contains("      1  later"), "{list}");
    let vague = refused(&site, &["version", "promote", "debian"]);
    assert!(vague.contains("which version of vDisk \"debian\"? Write debian/NUMBER"), "{vague}");
    let absent = refused(&site, &["version", "show", "debian", "9"]);
    assert!(absent.contains("vDisk \"debian\" has no version 9: it has 0, 1"), "{absent}");
    assert_eq!(json(&site, &["vdisk", "hold", "debian@0"])["held_at"], 0);
}

#[test]
fn what_is_made_and_changed_is_shown_in_a_line_and_wrong_columns_are_refused() {
    let site = Site::running();
    site.headwater(&["site", "create", "Berlin"]);
    let made = site.headwater(&["device", "create", "pc1", "mac=52:54:00:77:00:31", "vdisk=debian"]);
    assert!(made.starts_with("NAME  COLLECTION") && made.lines().count() == 2, "{made}");
    let changed = site.headwater(&["device", "set", "pc1", "kind=test", "cache=memory"]);
    assert_eq!(changed, "NAME  KIND  WRITE_CACHE.KIND\npc1   test  server-memory\n");
    let nowhere = refused(&site, &["collection", "create", "Lab"]);
    assert!(nowhere.contains("say in which site the collection is to be, site=NAME"), "{nowhere}");
    let wrong = refused(&site, &["device", "list", "--columns", "name,kinb"]);
    assert!(wrong.contains("no property \"kinb\" to show; did you mean \"kind\"?"), "{wrong}");
    let store = site.headwater(&["store", "create", "more", &format!("path={}", site.dir.path().display())]);
    assert!(store.contains(&format!(":{}", site.dir.path().display())), "{store}");
    let latest = json(&site, &["audit", "list", "--limit", "1"]);
    assert_eq!(latest["items"][0]["name"], "more", "{latest}");
}

#[test]
fn device_that_runs_is_neither_deleted_nor_renamed_and_is_asked_about_before_it_is_cut_off() {
    let site = Site::running();
    let mut session = site.session(&site.new_boot());
    assert!(session.run("read -P 0x5a 0 1M").contains("1 MiB"));
    let refusal = refused(&site, &["device", "delete", "lab-01", "--yes"]);
    assert!(
        refusal.contains("device lab-01 runs, since") && refusal.contains("device reset lab-01"),
        "{refusal}"
    );
    let refusal = refused(&site, &["device", "set", "lab-01", "name=other"]);
    assert!(refusal.contains("device lab-01 runs"), "{refusal}");
    site.headwater(&["device", "set", "lab-01", "description=by the door"]);
    let asked = refused(&site, &["device", "reset", "lab-01"]);
    assert!(asked.contains("Device \"lab-01\" runs. End its boot"), "{asked}");
    site.headwater(&["device", "reset", "lab-01", "--yes"]);
    site.headwater(&["device", "set", "lab-01", "name=other"]);
    site.headwater(&["device", "delete", "other", "--yes"]);
}

#[test]
fn obsolete_versions_are_named_before_they_go() {
    let site = Site::running();
    site.headwater(&["version", "create", "debian"]);
    site.headwater(&["version", "promote", "debian/1"]);
    let none = site.headwater(&["vdisk", "delete-obsolete", "debian"]);
    assert_eq!(none, "vDisk \"debian\" needs all its versions.\n");
    site.headwater(&["vdisk", "merge", "debian", "--base", "--result", "production", "--wait"]);
    let asked = refused(&site, &["vdisk", "delete-obsolete", "debian"]);
    assert!(asked.contains("vDisk \"debian\"") && asked.contains("needs any more: 1, 0?"), "{asked}");
    assert_eq!(site.headwater(&["vdisk", "delete-obsolete", "debian", "--yes"]), "Deleted: 1, 0\n");
}

#[test]
fn chains_are_taken_over_after_a_look_and_travel_with_what_was_added() {
    let site = Site::running();
    let there = site.path("there");
    std::fs::create_dir(&there).unwrap();
    let image = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_headwater")).arg("image").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let path = |name: &str| there.join(name).to_str().unwrap().to_owned();
    image(&["create", &path("old.vhdx"), "--size", "8M"]);
    image(&["snapshot", &path("old.vhdx"), &path("old.1.avhdx")]);
    std::fs::write(path("old.pvp"), "<properties/>").unwrap();
    site.headwater(&["store", "create", "there", &format!("path={}", there.display())]);
    let plan = site.headwater(&["store", "adopt", "there", "--dry-run"]);
    assert!(plan.contains("1 vDisk would be taken over by: headwater store adopt there"), "{plan}");
    assert!(plan.contains("old.pvp: properties of another program"), "{plan}");
    assert!(site.headwater(&["store", "adopt", "there"]).contains("1 vDisk taken over."));
    // To a second store of the same farm, as to another farm.
    let here = site.path("here");
    std::fs::create_dir(&here).unwrap();
    site.headwater(&["store", "create", "here", &format!("path={}", here.display())]);
    assert_eq!(json(&site, &["vdisk", "export", "there/old", "first", "--wait"])["state"], "done");
    assert_eq!(json(&site, &["store", "import", "here", "first", "--wait"])["state"], "done");
    let again = refused(&site, &["store", "import", "here", "first"]);
    assert!(again.contains("has all versions of the export already"), "{again}");
    site.headwater(&["version", "create", "there/old"]);
    site.headwater(&["version", "promote", "there/old", "2"]);
    assert_eq!(json(&site, &["vdisk", "export", "there/old", "second", "--wait"])["state"], "done");
    assert_eq!(json(&site, &["store", "import", "here", "second", "--in-test", "--wait"])["state"], "done");
    let versions = site.headwater(&["version", "list", "here/old", "--columns", "number,access"]);
    assert!(versions.ends_with("      1  production\n      2  test\n"), "{versions}");
    let taken = refused(&site, &["store", "import", "here", "second", "--name", "other"]);
    assert!(taken.contains("is that of vDisk \"old\", version 0 here"), "{taken}");
}

#[test]
fn chap_secret_of_a_device_of_the_catalogue_is_proved_and_told_nowhere() {
    let mut site = Site::running();
    let keep = |secret: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.args(["secret", "set", "lab", "--socket"]).arg(site.path("hw.sock"));
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), secret.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    assert!(String::from_utf8_lossy(&keep("short\n").stderr).contains("12 to 255 bytes"));
    assert!(keep("three-walnut-boats\n").status.success());
    let (mac, own) = ("52:54:00:77:00:41", "iqn.2026-11.org.headwater:pc1:initiator");
    site.headwater(&["device", "create", "pc1", &format!("mac={mac}"), "vdisk=debian"]);
    site.headwater(&["device", "set", "pc1", "chap.user=pc1", "chap.secret=lab"]);
    assert_eq!(site.headwater(&["secret", "list"]), "NAME  KEPT HERE  DEVICES\nlab   yes        pc1\n");
    site.kill();
    site.start();
    let target = harness::target_in(&site.script(mac));
    let login = |secret: Option<(&str, &str)>| site.io_as(&target, own, secret, &["read -P 0x5a 0 1M"]).ok;
    assert!(!login(None) && !login(Some(("pc1", "four-walnut-boats"))));
    assert!(login(Some(("pc1", "three-walnut-boats"))), "{}", site.log());
    for words in [
        ["device", "show", "pc1", "--output", "json"].as_slice(),
        &["device", "export"],
        &["audit", "export"],
        &["secret", "list", "--output", "json"],
    ] {
        assert!(!site.headwater(words).contains("walnut"), "{words:?}");
    }
    assert!(!site.log().contains("walnut"), "{}", site.log());
    let used = refused(&site, &["secret", "delete", "lab", "--yes"]);
    assert!(used.contains("these devices prove: pc1"), "{used}");
    site.headwater(&["device", "set", "pc1", "chap="]);
    site.headwater(&["secret", "delete", "lab", "--yes"]);
}

#[test]
fn boots_of_a_name_that_nothing_can_have_are_not_found() {
    let site = Site::running();
    let said = refused(&site, &["boots", "show", "PC-1"]);
    assert!(!said.contains("cannot be read"), "{said}");
    assert!(!site.log().contains("request failed"), "{}", site.log());
}
