//! `headwater image entries`, on an image that the tools of file systems made.
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn headwater(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater")).args(arguments).output().expect("headwater is started")
}

/// An ext4 without a partition table that holds a kernel and a menu with hostile names.
fn image(scratch: &Path) -> String {
    let root = scratch.join("root");
    fs::create_dir_all(root.join("boot/grub")).expect("a directory");
    fs::write(root.join("boot/vmlinuz-6.1"), vec![1; 5000]).expect("a kernel");
    fs::write(root.join("boot/initrd.img-6.1"), vec![2; 70_000]).expect("an initramfs");
    let menu = "menuentry 'Debian \u{1b}[31mred' --id debian { linux /boot/vmlinuz-6.1 root=LABEL=root ro\n\
                initrd /boot/initrd.img-6.1\n}\n";
    fs::write(root.join("boot/grub/grub.cfg"), menu).expect("a menu");
    let image = scratch.join("disk.raw");
    fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("a file");
    let made =
        Command::new("/usr/sbin/mkfs.ext4").args(["-q", "-L", "root", "-d"]).arg(&root).arg(&image).status();
    assert!(made.expect("mkfs.ext4 is started").success());
    image.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn entries_of_an_image_are_shown_to_people_and_programs() {
    let scratch = tempfile::tempdir().expect("a directory");
    let image = image(scratch.path());
    let output = headwater(&["image", "entries", &image]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("kernel   /boot/vmlinuz-6.1 in partition 0, 4.9 KiB"), "{text}");
    assert!(!text.contains('\u{1b}'), "a name from inside the image steers the terminal: {text:?}");

    let output = headwater(&["image", "entries", &image, "--output", "json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let entry = &answer["entries"][0];
    assert_eq!((&entry["id"], &entry["default"]), (&"debian".into(), &true.into()));
    assert_eq!(entry["initrds"][0]["size_bytes"], 70_000);
    assert_eq!(entry["options"], "root=LABEL=root ro");
    assert_eq!(answer["partitions"][0]["label"], "root");
}

#[test]
fn image_without_boot_files_is_explained() {
    let scratch = tempfile::tempdir().expect("a directory");
    let image = scratch.path().join("empty.raw");
    fs::write(&image, vec![0; 1 << 20]).expect("a file");
    let output = headwater(&["image", "entries", image.to_str().expect("a path in UTF-8")]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("no boot entry found"));
}
