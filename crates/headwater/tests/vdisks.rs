//! vDisks in several versions, and what iSCSI logins must prove, from the outside: the real program on loopback.
mod harness;

use std::path::Path;

use block::{BlockDevice as _, ByteOffset, Patience};
use diskimage::storage::EditLock;
use diskimage::{Childless, Image, MutableImage, OpenOptions};
use harness::{INITIATOR, MAC, Site, headwater, outcome, target_in};

const READS_GOLDEN: &str = "read -P 0x5a 0 1M";

/// Replaces text in the configuration.
fn reconfigure(site: &Site, from: &str, to: &str) {
    let path = site.path("headwater.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from:?} is not in:\n{text}");
    std::fs::write(&path, text.replace(from, to)).unwrap();
}

/// Makes a version of an image with 1 MiB of `byte` at `mebibyte`.
fn make_version(parent: &Path, child: &Path, byte: u8, mebibyte: u64) {
    let (ok, said) = headwater(&["image", "snapshot", parent.to_str().unwrap(), child.to_str().unwrap()]);
    assert!(ok, "{said}");
    let below = Image::open_parent_of(child, OpenOptions::default()).unwrap().unwrap();
    let image = MutableImage::open(child, None, Some(std::sync::Arc::new(below)), &Childless).unwrap();
    image.write(ByteOffset::new(mebibyte << 20), &vec![byte; 1 << 20], Patience::Blocking).unwrap();
    image.close().unwrap();
}

#[test]
fn versions_of_a_vdisk_are_booted_side_by_side_and_cannot_be_changed_meanwhile() {
    let other = "[[device]]\nname = \"lab-02\"\nmac = \"52:54:00:77:00:11\"\nvdisk = \"debian@1\"\n\
                 [nbd]\nunix_socket = \"DIR/nbd.sock\"";
    let mut site = Site::new("", "", other);
    let (base, one, two) =
        (site.path("golden.vhdx"), site.path("golden.1.avhdx"), site.path("golden.2.avhdx"));
    make_version(&base, &one, 0x11, 8);
    make_version(&one, &two, 0x22, 9);
    reconfigure(&site, "file = \"golden.vhdx\"", "file = \"golden.vhdx\"\nversions = [1, 2]\nversion = 2");
    site.start();
    // The one that is current, and the one that the device names.
    let io = site
        .io(&site.new_boot(), &[READS_GOLDEN, "read -P 0x11 8M 1M", "read -P 0x22 9M 1M", "write -P 9 0 1M"]);
    assert!(io.ok, "{}", io.text);
    let target = target_in(&site.script("52:54:00:77:00:11"));
    let initiator = "iqn.2026-11.org.headwater:lab-02:initiator";
    let io = site.io_as(&target, initiator, None, &[READS_GOLDEN, "read -P 0x11 8M 1M", "read -P 0 9M 1M"]);
    assert!(io.ok, "{}", io.text);
    // All of them over NBD.
    let read = |vdisk: &str, command: &str| {
        let uri = format!("nbd+unix:///vdisk/{vdisk}?socket={}", site.path("nbd.sock").display());
        outcome("qemu-io", &["-r", "-f", "raw", &uri, "-c", command])
    };
    for (vdisk, command) in [
        ("debian", "read -P 0x22 9M 1M"),
        ("debian@2", "read -P 0x22 9M 1M"),
        ("debian@1", "read -P 0 9M 1M"),
        ("debian@0", "read -P 0 8M 1M"),
    ] {
        let io = read(vdisk, command);
        assert!(io.ok && !io.text.contains("failed"), "{vdisk}: {}", io.text);
    }
    assert!(!read("debian@3", READS_GOLDEN).ok);
    for file in [&base, &one, &two] {
        let (ok, said) = headwater(&["image", "resize", file.to_str().unwrap(), "128M"]);
        assert!(!ok && said.contains("a server serves it"), "{said}");
    }
}

#[test]
fn image_that_is_being_changed_or_whose_parent_lies_outside_its_store_is_not_served() {
    let site = Site::new("", "", "");
    let config = site.path("headwater.toml");
    let check = || headwater(&["serve", "--check-config", "--config", config.to_str().unwrap()]);
    let lock = EditLock::take(&site.path("golden.vhdx")).unwrap();
    let (ok, said) = check();
    assert!(!ok && said.contains("vDisk \"debian\"") && said.contains("is changing this image"), "{said}");
    drop(lock);
    assert!(check().0);
    std::fs::create_dir(site.path("store")).unwrap();
    let (parent, child) = (site.path("golden.vhdx"), site.path("store/update.avhdx"));
    let (ok, said) = headwater(&["image", "snapshot", parent.to_str().unwrap(), child.to_str().unwrap()]);
    assert!(ok, "{said}");
    reconfigure(&site, "file = \"golden.vhdx\"", "file = \"update.avhdx\"");
    reconfigure(
        &site,
        &format!("images = \"{}\"", site.dir.path().display()),
        &format!("images = \"{}\"", site.path("store").display()),
    );
    let (ok, said) = check();
    assert!(!ok && said.contains("vDisk \"debian\"") && said.contains("out of the store"), "{said}");
    // A version whose file is missing is a mistake of the configuration.
    reconfigure(&site, "file = \"update.avhdx\"", "file = \"update.avhdx\"\nversions = [7]");
    let (ok, said) = check();
    assert!(!ok && said.contains("update.7.avhdx: No such file"), "{said}");
}

#[test]
fn mutual_chap_is_answered_and_md5_is_refused_where_it_is_not_allowed() {
    let chap = "chap_user = \"lab\"\nchap_secret = \"a-good-secret\"\n\
                chap_target_user = \"server\"\nchap_target_secret = \"another-secret\"";
    let mut site = Site::new("", chap, "");
    site.start();
    let script = site.script(MAC);
    assert!(script.contains("set reverse-username:hexraw 736572766572\n"), "{script}");
    let target = target_in(&script);
    let inquiry = |site: &Site, query: &str| {
        let port = site.iscsi_port;
        let uri = format!("iscsi://lab%a-good-secret@127.0.0.1:{port}/{target}/0{query}");
        outcome("iscsi-inq", &["-i", INITIATOR, &uri])
    };
    let both = inquiry(&site, "?target_user=server&target_password=another-secret");
    assert!(both.ok, "{}", both.text);
    assert!(inquiry(&site, "").ok, "a device that asks for no proof needs none");
    let wrong = inquiry(&site, "?target_user=server&target_password=a-wrong-secret");
    assert!(!wrong.ok, "{}", wrong.text);
    site.stop();
    reconfigure(&site, "[iscsi]\n", "[iscsi]\nchap_md5 = false\n");
    site.start();
    let md5 = inquiry(&site, "");
    assert!(!md5.ok, "libiscsi knows MD5 alone: {}", md5.text);
    site.wait_for_log("iSCSI");
}

#[test]
fn logins_are_sent_on_to_another_server() {
    let there = Site::running();
    let mut here = Site::new("", "", "");
    reconfigure(&here, "[iscsi]\n", &format!("[iscsi]\nredirect = \"127.0.0.1:{}\"\n", there.iscsi_port));
    here.start();
    let target = there.new_boot();
    let io = here.io(&target, &[READS_GOLDEN]);
    assert!(io.ok, "{}", io.text);
    assert!(there.headwater(&["boots", "show", "lab-01"]).contains("login, first stage"));
    assert!(!here.headwater(&["boots", "list"]).contains("first stage"));
}

#[test]
fn version_without_a_kernel_is_told_on_the_screen_of_its_machine_and_stops_no_other() {
    let other = "[[vdisk]]\nname = \"plain\"\nfile = \"golden.vhdx\"\n\
                 [[device]]\nname = \"lab-02\"\nmac = \"52:54:00:77:00:11\"\nvdisk = \"plain\"";
    let mut site = Site::new("", "", other);
    reconfigure(&site, "name = \"debian\"", "name = \"debian\"\nboot = \"kernel\"");
    site.start();
    site.wait_for_log("there is no boot entry in the image");
    let script = site.script(MAC);
    let why = "the kernel of version 0 of vDisk debian cannot be had: there is no boot entry in the image";
    assert!(script.contains(why), "{script}");
    target_in(&site.script("52:54:00:77:00:11"));
}
