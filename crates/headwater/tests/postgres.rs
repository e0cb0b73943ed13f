//! The server on a catalogue in PostgreSQL: run with the command line, and over a database that goes and comes back.
mod harness;

use std::process::Command;

use harness::{INITIATOR, MAC, Site, target_in, wait_until};
use lab::Cluster;
use serde_json::Value;

const READS_GOLDEN: &str = "read -P 0x5a 0 1M";
const LOST: &str = "the farm's database cannot be used: devices boot from what was known last";
const FOUND: &str = "the farm's database can be used again";

/// A cluster, and a site with its catalogue there that does not run yet; `None` where PostgreSQL is not installed.
fn site() -> Option<(Cluster, Site)> {
    let cluster = Cluster::start().unwrap()?;
    let more = format!("[catalogue]\npostgres = \"{}\"", cluster.address());
    Some((cluster, Site::new("", "", &more)))
}

fn json(site: &Site, words: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(words)
        .args(["--output", "json", "--socket"])
        .arg(site.path("hw.sock"))
        .output()
        .unwrap();
    // What a task writes down while it is waited for goes to standard error.
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Whether a command does what it is asked to, and all that is said.
fn asks(site: &Site, words: &[&str]) -> (bool, String) {
    let socket = site.path("hw.sock");
    let words: Vec<&str> = words.iter().copied().chain(["--socket", socket.to_str().unwrap()]).collect();
    harness::headwater(&words)
}

/// Which version a device runs on.
fn runs(site: &Site) -> Option<u64> {
    let status = json(site, &["device", "status"]);
    let devices = status["items"].as_array().unwrap();
    devices.iter().find(|one| one["name"] == "lab-01").unwrap()["version"].as_u64()
}

#[test]
fn farm_is_run_on_a_database_server() {
    let Some((_cluster, mut site)) = site() else { return };
    site.start();
    assert!(site.log().contains("postgresql://farm@"), "{}", site.log());
    site.headwater(&["version", "create", "debian", "--comment", "updates"]);
    site.headwater(&["version", "promote", "debian/1"]);
    assert!(site.io(&site.new_boot(), &[READS_GOLDEN]).ok);
    assert_eq!(runs(&site), Some(1));
    let task = json(&site, &["vdisk", "merge", "debian", "--base", "--wait"]);
    assert_eq!(task["state"], "done", "{task}");
    // What was changed is there for the next process, and what ran goes on.
    site.kill();
    site.start();
    assert_eq!(json(&site, &["vdisk", "versions", "debian"])["total"], 3);
    assert!(site.io(&site.new_boot(), &[READS_GOLDEN]).ok);
    assert_eq!(runs(&site), Some(2));
    let (status, _) = site.stop();
    assert!(status.success() && !site.log().contains("panicked"), "{}", site.log());
}

#[test]
fn database_that_stops_under_a_server_stops_no_device() {
    let Some((cluster, mut site)) = site() else { return };
    site.start();
    let target = site.new_boot();
    let io = site.io(&target, &[READS_GOLDEN, "write -P 0x11 8M 1M"]);
    assert!(io.ok, "{}", io.text);
    cluster.control("stop").unwrap();
    site.wait_for_log(LOST);

    // What runs goes on, what is known boots, and whoever asks is told.
    let io = site.io(&target, &["read -P 0x11 8M 1M"]);
    assert!(io.ok, "a boot goes on: {}", io.text);
    let another = target_in(&site.script(MAC));
    let io = site.io(&another, &[READS_GOLDEN, "write -P 0x22 8M 1M"]);
    assert!(io.ok, "another begins: {}", io.text);
    assert_eq!(runs(&site), Some(0));
    assert!(site.headwater(&["status"]).contains("the farm's database cannot be used"));
    let (ok, said) = asks(&site, &["site", "create", "Bonn"]);
    assert!(!ok && said.contains("cannot be reached"), "{said}");
    let (ok, said) = asks(&site, &["vdisk", "list"]);
    assert!(!ok && said.contains("cannot be reached"), "{said}");

    // So it is for a server that starts meanwhile.
    site.kill();
    site.start();
    assert!(site.log().contains("known devices boot from the last known state"), "{}", site.log());
    let io = site.io(&another, &["read -P 0x22 8M 1M"]);
    assert!(io.ok, "a boot goes on over the restart: {}", io.text);
    let third = target_in(&site.script(MAC));
    assert!(site.io_as(&third, INITIATOR, None, &[READS_GOLDEN]).ok);

    cluster.control("start").unwrap();
    site.wait_for_log(FOUND);
    wait_until("changes are made again", || asks(&site, &["site", "create", "Bonn"]).0);
    assert!(!site.headwater(&["status"]).contains("database"));
    // The boot of the meantime gets the lease that it had to do without.
    wait_until("the boot has a lease", || json(&site, &["lock", "list"])["total"] == 1);
    let io = site.io(&third, &[READS_GOLDEN]);
    assert!(io.ok, "{}", io.text);
}
