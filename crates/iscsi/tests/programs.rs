//! Real initiators in user space: libiscsi's tools and QEMU.
mod common;

use common::{ALLOWED, Lab, PRIVATE, Rules, TARGET, memory, run, succeed, text};

const LIBISCSI: &str = "libiscsi-bin";
const QEMU: &str = "qemu-utils and qemu-block-extra";

#[test]
fn discovery_shows_what_the_initiator_may_know() {
    let lab = Lab::serve(memory(4), Rules::default());
    let portal = format!("iscsi://{}", lab.address());
    let seen = succeed(LIBISCSI, "iscsi-ls", &[&portal]);
    assert_eq!(seen.trim(), format!("Target:{TARGET} Portal:{},1", lab.address()));
    let seen = succeed(LIBISCSI, "iscsi-ls", &["-i", ALLOWED, &portal]);
    assert!(seen.contains(PRIVATE), "{seen}");
    let seen = succeed(LIBISCSI, "iscsi-ls", &["-s", &portal]);
    assert!(seen.contains("Lun:1    Type:DIRECT_ACCESS"), "{seen}");
}

#[test]
fn inquiry_works_with_and_without_digests() {
    let lab = Lab::serve(memory(4), Rules::default());
    for query in ["", "?header_digest=crc32c", "?header_digest=none"] {
        let seen = succeed(LIBISCSI, "iscsi-inq", &[&format!("{}{query}", lab.url(""))]);
        assert!(seen.contains("Peripheral Device Type:DIRECT_ACCESS"), "{seen}");
    }
    let seen = succeed(LIBISCSI, "iscsi-readcapacity16", &[&lab.url("")]);
    assert!(seen.contains("Total size:4194304"), "{seen}");
}

#[test]
fn chap_lets_in_who_knows_the_secret_and_nobody_else() {
    let lab = Lab::serve(memory(4), Rules { chap: Some(("alice", "secret-of-alice")), ..Rules::default() });
    succeed(LIBISCSI, "iscsi-inq", &[&lab.url("alice%secret-of-alice@")]);
    for wrong in ["alice%secret-of-bob00@", "bob%secret-of-alice@", ""] {
        let output = run(LIBISCSI, "iscsi-inq", &[&lab.url(wrong)]);
        assert!(!output.status.success(), "{wrong}");
        assert!(text(&output).contains("Authentication failure"), "{}", text(&output));
    }
}

#[test]
fn foreign_and_absent_targets_are_refused() {
    let lab = Lab::serve(memory(4), Rules::default());
    let private = format!("iscsi://{}/{PRIVATE}/1", lab.address());
    succeed(LIBISCSI, "iscsi-inq", &["-i", ALLOWED, &private]);
    let output = run(LIBISCSI, "iscsi-inq", &["-i", "iqn.2026-01.lab:other", &private]);
    assert!(text(&output).contains("Authorization failure"), "{}", text(&output));
    let absent = format!("iscsi://{}/iqn.2026-01.lab:absent/1", lab.address());
    let output = run(LIBISCSI, "iscsi-inq", &[&absent]);
    assert!(text(&output).contains("Target not found"), "{}", text(&output));
    let no_lun = format!("iscsi://{}/{TARGET}/2", lab.address());
    assert!(!run(LIBISCSI, "iscsi-inq", &[&no_lun]).status.success());
}

#[test]
fn qemu_reads_what_it_wrote() {
    let lab = Lab::serve(memory(32), Rules::default());
    let commands = [
        "write -P 0x5a 1M 3M",
        "write -P 0x11 512 1536",
        "read -P 0x5a 1M 3M",
        "read -P 0x11 512 1536",
        "read -P 0 0 512",
        "write -z 2M 1M",
        "read -P 0 2M 1M",
        "discard 1M 512k",
        "aio_write -P 7 8M 4M",
        "aio_write -P 8 12M 4M",
        "aio_flush",
        "read -P 7 8M 4M",
        "read -P 8 12M 4M",
        "flush",
    ];
    let url = lab.url("");
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(&url);
    let seen = succeed(QEMU, "qemu-io", &arguments);
    assert!(!seen.contains("Pattern verification failed") && !seen.contains("error"), "{seen}");
}

#[test]
fn qemu_converts_to_the_disk_and_compares_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image.raw");
    let mut rng = mutate::Rng::new(4);
    let bytes: Vec<u8> = (0..24 << 17).flat_map(|_| rng.next().to_le_bytes()).collect();
    std::fs::write(&image, &bytes).unwrap();
    let lab = Lab::serve(memory(24), Rules::default());
    let (image, url) = (image.to_str().unwrap(), lab.url(""));
    succeed(QEMU, "qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &url]);
    succeed(QEMU, "qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &url]);
    // A difference must be seen.
    succeed(QEMU, "qemu-io", &["-f", "raw", "-c", "write -P 1 5M 512", &url]);
    let output = run(QEMU, "qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &url]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
}

#[test]
fn storage_that_is_slow_is_served_by_workers() {
    let device = block::DelayDevice::new(memory(16), std::time::Duration::from_millis(1));
    let lab = Lab::serve(std::sync::Arc::new(device), Rules::default());
    let url = lab.url("");
    let seen = succeed(
        QEMU,
        "qemu-io",
        &[
            "-f",
            "raw",
            "-c",
            "aio_write -P 3 0 4M",
            "-c",
            "aio_write -P 4 4M 4M",
            "-c",
            "aio_flush",
            "-c",
            "read -P 3 0 4M",
            "-c",
            "read -P 4 4M 4M",
            "-c",
            "flush",
            &url,
        ],
    );
    assert!(!seen.contains("failed") && !seen.contains("error"), "{seen}");
}

#[test]
fn target_proves_itself_to_libiscsi_too() {
    let secrets = Rules {
        chap: Some(("lab", "secret-of-lab")),
        target_chap: Some(("disk", "secret-of-disk")),
        ..Rules::default()
    };
    let lab = Lab::serve(memory(4), secrets.clone());
    let url =
        |target: &str| format!("{}?target_user=disk&target_password={target}", lab.url("lab%secret-of-lab@"));
    let seen = succeed(LIBISCSI, "iscsi-inq", &[&url("secret-of-disk")]);
    assert!(seen.contains("HEADWTR"), "{seen}");
    assert!(
        !run(LIBISCSI, "iscsi-inq", &[&url("another-secret")]).status.success(),
        "a wrong proof is noticed"
    );
    let strict = Lab::serve(memory(4), Rules { allows_md5: false, ..secrets });
    let output = run(LIBISCSI, "iscsi-inq", &[&strict.url("lab%secret-of-lab@")]);
    assert!(!output.status.success(), "libiscsi 1.19 knows MD5 alone: {}", text(&output));
}

#[test]
fn redirected_login_goes_on_at_the_other_server() {
    let other = Lab::serve(memory(8), Rules::default());
    let lab = Lab::serve(memory(4), Rules { moved_to: Some(other.address()), ..Rules::default() });
    let seen = succeed(LIBISCSI, "iscsi-readcapacity16", &[&lab.url("")]);
    assert!(seen.contains("Total size:8388608"), "{seen}");
}

#[test]
fn discovery_names_every_portal_with_its_group() {
    let group = |port, group| iscsi::directory::Portal { address: ([127, 0, 0, 1], port).into(), group };
    let listed = vec![group(3260, 1), group(3261, 1), group(3262, 2)];
    let lab = Lab::serve(memory(4), Rules { listed, ..Rules::default() });
    let seen = succeed(LIBISCSI, "iscsi-ls", &[&format!("iscsi://{}", lab.address())]);
    for portal in ["127.0.0.1:3260,1", "127.0.0.1:3261,1", "127.0.0.1:3262,2"] {
        assert!(seen.contains(&format!("Target:{TARGET} Portal:{portal}\n")), "{seen}");
    }
}
