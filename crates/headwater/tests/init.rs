//! `headwater init`: a farm that the server could start on, and what is refused.
//!
//! Needs qemu-img (Debian: qemu-utils).
use std::path::Path;
use std::process::{Command, Output, Stdio};

use farm::catalogue::Catalogue;
use farm::model::{Collection, Server, Store, User, Vdisk, Version};

/// Runs it with all of it below `folder`; the password is on standard input.
fn init(folder: &Path, more: &[&str]) -> Output {
    use std::io::Write;
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let mut child = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args([
            "init",
            "--config",
            &path("headwater.toml"),
            "--state-dir",
            &path("state"),
            "--store",
            &path("images"),
        ])
        .args(["--server", "one"])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"correct horse battery staple\n").unwrap();
    child.wait_with_output().unwrap()
}

fn image(path: &Path) {
    let words = ["create", "-q", "-f", "vhdx", path.to_str().unwrap(), "64M"];
    assert!(Command::new("qemu-img").args(words).status().unwrap().success());
}

#[test]
fn farm_is_made_as_told_and_never_over_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let images = folder.path().join("images");
    std::fs::create_dir(&images).unwrap();
    image(&images.join("golden.vhdx"));
    image(&images.join("other.vhdx"));
    let child = [images.join("golden.vhdx"), images.join("golden.1.avhdx")];
    let snapshot = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(["image", "snapshot"])
        .args(&child)
        .output()
        .unwrap();
    assert!(snapshot.status.success(), "{snapshot:?}");

    let words = [
        "--farm",
        "School",
        "--site",
        "Berlin",
        "--admin",
        "ann",
        "--vdisk",
        "golden.vhdx",
        "--interface",
        "lo",
        "--proxy",
    ];
    let output = init(folder.path(), &words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(
        text.contains("vDisk \"golden\" was taken over.") && text.contains("Administrator \"ann\"."),
        "{text}"
    );
    assert!(text.contains("Next:\n  headwater doctor"), "{text}");

    let catalogue = Catalogue::open_read_only(&folder.path().join("state/farm.db")).unwrap();
    let (farm, server, store, user, vdisks, versions, collections) = catalogue
        .read(|reader| {
            Ok((
                reader.farm()?.unwrap(),
                reader.all::<Server>()?.pop().unwrap(),
                reader.all::<Store>()?.pop().unwrap(),
                reader.all::<User>()?.pop().unwrap(),
                reader.all::<Vdisk>()?,
                reader.all::<Version>()?,
                reader.all::<Collection>()?,
            ))
        })
        .unwrap();
    assert_eq!((farm.value.name.as_str(), server.value.name.as_str()), ("School", "one"));
    assert_eq!(store.value.paths[&server.id].as_str(), images.to_str().unwrap());
    assert!(user.value.name.as_str() == "ann" && user.value.password.is_some());
    assert_eq!(vdisks.iter().map(|vdisk| vdisk.value.name.as_str()).collect::<Vec<_>>(), ["golden"]);
    assert_eq!(versions.len(), 2, "the base and version 1");
    assert_eq!(collections.len(), 1);
    let config = std::fs::read_to_string(folder.path().join("headwater.toml")).unwrap();
    assert!(config.contains("name = \"one\"") && config.contains("mode = \"proxy\""), "{config}");

    let again = init(folder.path(), &[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("there is a farm here already"), "{again:?}");
    assert_eq!(std::fs::read_to_string(folder.path().join("headwater.toml")).unwrap(), config);
}

#[test]
fn farm_that_cannot_be_made_leaves_nothing_in_the_way_of_another_try() {
    let folder = tempfile::tempdir().unwrap();
    let output = init(folder.path(), &["--vdisk", "absent.vhdx"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("absent"), "{output:?}");
    assert!(!folder.path().join("headwater.toml").exists() && !folder.path().join("state/farm.db").exists());
    let output = init(folder.path(), &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("There is no administrator yet"), "{output:?}");
}
