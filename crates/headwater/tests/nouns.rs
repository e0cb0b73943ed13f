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
    assert!(bad.contains("no row of it was taken") && bad.contains("line 3"), "{bad}");
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
