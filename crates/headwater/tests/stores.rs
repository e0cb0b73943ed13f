//! Stores that vanish, and files of versions that do: told, refused in words, and good again when they are back.
mod harness;

use std::path::PathBuf;
use std::process::Command;

use harness::{MAC, Site, wait_until};
use serde_json::Value;

const READS_GOLDEN: &str = "read -P 0x5a 0 1M";

/// A site that runs, with its images in a store of their own, and the store's folder.
fn site() -> (Site, PathBuf) {
    let mut site = Site::new("", "", "");
    let (file, store) = (site.path("headwater.toml"), site.path("store"));
    let text = std::fs::read_to_string(&file).unwrap();
    let own = format!("images = \"{}\"", site.dir.path().display());
    assert!(text.contains(&own), "{text}");
    std::fs::write(&file, text.replace(&own, &format!("images = \"{}\"", store.display()))).unwrap();
    std::fs::create_dir(&store).unwrap();
    std::fs::rename(site.path("golden.vhdx"), store.join("golden.vhdx")).unwrap();
    site.start();
    (site, store)
}

/// Whether a command does what it is asked to, and all that is said.
fn asks(site: &Site, words: &[&str]) -> (bool, String) {
    let socket = site.path("hw.sock");
    let words: Vec<&str> = words.iter().copied().chain(["--socket", socket.to_str().unwrap()]).collect();
    harness::headwater(&words)
}

fn refused(site: &Site, words: &[&str]) -> String {
    let (ok, said) = asks(site, words);
    assert!(!ok, "{words:?}: {said}");
    said
}

fn json(site: &Site, words: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(words).args(["--output", "json", "--socket"]).arg(site.path("hw.sock"));
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The state of the vDisk's newest version.
fn state(site: &Site) -> String {
    let versions = json(site, &["vdisk", "versions", "debian", "--sort", "-number"]);
    versions["items"][0]["state"].as_str().unwrap().to_owned()
}

#[test]
fn store_that_vanishes_is_told_and_condemns_nothing() {
    let (site, store) = site();
    let running = site.new_boot();
    assert!(site.io(&running, &[READS_GOLDEN]).ok);
    let away = site.path("away");
    std::fs::rename(&store, &away).unwrap();
    let io = site.io(&running, &[READS_GOLDEN, "write -P 1 8M 1M"]);
    assert!(io.ok, "who runs has its files open: {}", io.text);

    // Nothing is made of it, and nothing is begun that could not end.
    let said = refused(&site, &["version", "create", "debian"]);
    assert!(said.contains(store.to_str().unwrap()), "{said}");
    let (_, said) = asks(&site, &["store", "inspect", "images"]);
    assert!(said.contains("No such file"), "{said}");
    assert_eq!(
        (state(&site).as_str(), json(&site, &["vdisk", "versions", "debian"])["total"].clone()),
        ("ready", 1.into())
    );
    // A boot that begins now has no disk, and the log says why.
    site.headwater(&["device", "reset", "lab-01", "--yes"]);
    assert!(!site.io(&site.new_boot(), &[READS_GOLDEN]).ok);
    site.wait_for_log("golden.vhdx");

    std::fs::rename(&away, &store).unwrap();
    let io = site.io(&site.new_boot(), &[READS_GOLDEN]);
    assert!(io.ok, "{}", io.text);
    site.headwater(&["version", "create", "debian"]);
}

#[test]
fn version_whose_file_is_gone_is_refused_on_the_screen_of_its_machine_until_it_is_back() {
    let (site, store) = site();
    let (file, away) = (store.join("golden.vhdx"), site.path("away.vhdx"));
    // Another file is still there: the store is, and its file system.
    std::fs::copy(&file, store.join("other.vhdx")).unwrap();
    std::fs::rename(&file, &away).unwrap();
    let (_, said) = asks(&site, &["store", "inspect", "images"]);
    assert!(said.contains("missing"), "{said}");
    assert_eq!(state(&site), "missing");
    let script = site.script(MAC);
    assert!(
        script.contains("Headwater gives lab-01 nothing to boot") && script.contains("missing"),
        "{script}"
    );

    std::fs::rename(&away, &file).unwrap();
    site.headwater(&["store", "inspect", "images"]);
    assert_eq!(state(&site), "ready");
    wait_until("it boots again", || site.script(MAC).contains(":iqn."));
    assert!(site.io(&site.new_boot(), &[READS_GOLDEN]).ok);
}

#[test]
fn version_whose_file_was_changed_is_refused_until_it_is_accepted() {
    let (site, store) = site();
    let file = store.join("golden.vhdx");
    let file = file.to_str().unwrap();
    harness::run("qemu-io", &["-f", "vhdx", "-c", "write -P 0x77 16M 1M", file]);
    let (_, said) = asks(&site, &["store", "inspect", "images"]);
    assert!(said.contains("changed") && said.contains("DataWriteGuid"), "{said}");
    let script = site.script(MAC);
    assert!(
        script.contains("Headwater gives lab-01 nothing to boot") && script.contains("changed"),
        "{script}"
    );
    let said = refused(&site, &["version", "create", "debian"]);
    assert!(said.contains("version 0"), "{said}");

    site.headwater(&["version", "accept", "debian/0", "--yes"]);
    let io = site.io(&site.new_boot(), &[READS_GOLDEN, "read -P 0x77 16M 1M"]);
    assert!(io.ok, "{}", io.text);
}
