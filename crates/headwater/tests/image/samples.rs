//! Images that other programs made, with the hashes of what they hold, through the program.
//!
//! Sources: qemu's test images (`tests/qemu-iotests/sample_images`), DiscUtils' (`Tests/LibraryTests`) and dfvfs'
//! (`test_data`). The hashes are those on which qemu-img and 7-Zip agree; of the file with a dirty log, qemu-img's after
//! it replayed the log into a copy.
use std::process::Command;

use crate::bench::{Bench, assert_same_files, qemu_img, run, shared};

/// A sample.
struct Sample {
    /// Of the packed file.
    name: &'static str,
    format: &'static str,
    size: u64,
    /// Of the disk's bytes, where it is known.
    sha256: Option<&'static str>,
    /// What a check finds besides notes.
    findings: &'static [&'static str],
}

const SAMPLES: [Sample; 8] = [
    Sample {
        name: "iotest-dynamic-1G.vhdx.bz2",
        format: "VHDX",
        size: 1 << 30,
        sha256: Some("d3d112d8dab7fd360609f7d5a7b769904b7a2a7d7b6b8c535f65a23293c05478"),
        findings: &[],
    },
    Sample {
        name: "test-disk2vhd.vhdx.bz2",
        format: "VHDX",
        size: 256 << 20,
        sha256: Some("96d964042be9b58dda1725567abfb0cf9fd8380e2118754afa979c2ad445938a"),
        findings: &[],
    },
    Sample {
        name: "swap.vhdx.gz",
        format: "VHDX",
        size: 10 << 30,
        sha256: Some("60dd30b4c74361427d1089510cabb36e2eeda0cc4747f467ea43173acd358c49"),
        findings: &[],
    },
    Sample {
        name: "iotest-dirtylog-10G-4M.vhdx.bz2",
        format: "VHDX",
        size: 10 << 30,
        sha256: Some("179cefe8b0587f123393eedf2aa7aa8d25798591178e6bc3950a09762f38f96f"),
        findings: &["vhdx-log-dirty"],
    },
    Sample {
        name: "d2v-zerofilled.vhd.bz2",
        format: "VHD",
        size: 263_454_720,
        sha256: Some("1ba076be94a8a64541c25aae8d5a5f8b0da758c3797af597e03acb431ff8d143"),
        findings: &[],
    },
    // Both say 136365211648 bytes and the same geometry; Virtual PC means the geometry.
    Sample {
        name: "hyperv2012r2-dynamic.vhd.bz2",
        format: "VHD",
        size: 136_365_211_648,
        sha256: None,
        findings: &[],
    },
    Sample {
        name: "virtualpc-dynamic.vhd.bz2",
        format: "VHD",
        size: 136_363_130_880,
        sha256: None,
        findings: &[],
    },
    Sample { name: "iotest-version3.vmdk.bz2", format: "VMDK", size: 16 << 30, sha256: None, findings: &[] },
];

/// Unpacks a sample; its name.
fn unpack(bench: &Bench, packed: &str) -> Option<String> {
    let source = shared("samples")?.join(packed);
    let name = source.file_stem().unwrap().to_str().unwrap().to_owned();
    let script = "import bz2,gzip,shutil,sys\n\
        opener=bz2.open if sys.argv[1].endswith('bz2') else gzip.open\n\
        shutil.copyfileobj(opener(sys.argv[1]),open(sys.argv[2],'wb'))";
    run(Command::new("python3").args(["-c", script]).arg(source).arg(bench.path(&name)), "python3");
    Some(name)
}

/// What qemu-img makes of it, as a raw file.
fn by_qemu(bench: &Bench, sample: &Sample, name: &str) -> &'static str {
    let format = match sample.format {
        "VHD" => "vpc",
        "VMDK" => "vmdk",
        _ => "vhdx",
    };
    // qemu-img reads no image whose log is not replayed, and replays it into the file.
    std::fs::copy(bench.path(name), bench.path("copy")).unwrap();
    if sample.findings.contains(&"vhdx-log-dirty") {
        assert!(qemu_img(&["check", "-q", "-r", "all", "-f", format, "copy"], bench.folder.path()));
    }
    assert!(qemu_img(&["convert", "-f", format, "-O", "raw", "copy", "qemu.raw"], bench.folder.path()));
    "qemu.raw"
}

#[test]
fn every_sample_is_told_checked_and_converted_to_what_its_hash_says() {
    for sample in SAMPLES {
        let bench = Bench::new();
        let Some(name) = unpack(&bench, sample.name) else { return };
        println!("{name}");
        let before = std::fs::read(bench.path(&name)).unwrap();
        let info = bench.json(&["info", &name]);
        assert_eq!(info["virtual_size_bytes"], sample.size);
        assert_eq!(info["log_replayed"], sample.findings.contains(&"vhdx-log-dirty"));
        assert!(bench.ok(&["info", &name]).contains(&format!("{}, dynamic", sample.format)));
        if sample.format == "VMDK" {
            assert!(bench.refused(&["check", &name]).contains("it is VMDK, and only"));
        } else {
            let check = bench.json(&["check", &name]);
            let findings = check["findings"].as_array().unwrap().iter();
            let codes: Vec<_> = findings
                .filter(|finding| finding["severity"] != "note")
                .map(|finding| finding["code"].as_str().unwrap())
                .collect();
            assert_eq!((codes.as_slice(), &check["errors"]), (sample.findings, &0.into()), "{check}");
        }
        bench.ok(&["convert", &name, "ours.raw"]);
        assert_same_files(&bench.path("ours.raw"), &bench.path(by_qemu(&bench, &sample, &name)));
        if let Some(expected) = sample.sha256 {
            let hashed = run(Command::new("sha256sum").arg(bench.path("ours.raw")), "coreutils");
            assert_eq!(hashed.split_whitespace().next(), Some(expected));
        }
        for target in ["new.vhdx", "new.vhd"] {
            bench.ok(&["convert", &name, target]);
            assert!(bench.ok(&["check", target]).ends_with("sound\n"), "{target}");
            bench.ok(&["compare", &name, target, "--strict"]);
        }
        assert!(std::fs::read(bench.path(&name)).unwrap() == before, "the sample was changed");
    }
}

#[test]
fn differencing_vhd_of_windows_is_checked_alone_and_opened_only_with_its_parent() {
    let bench = Bench::new();
    let Some(name) = unpack(&bench, "dfvfs-fat-differential.vhd.gz") else { return };
    let check = bench.json(&["check", &name]);
    assert_eq!((&check["errors"], &check["warnings"]), (&0.into(), &0.into()), "{check}");
    for words in
        [&["info", &name][..], &["map", &name], &["convert", &name, "a.raw"], &["compare", &name, &name]]
    {
        let refused = bench.refused(words);
        assert!(refused.contains("fat-parent.vhd"), "{refused}");
    }
    bench.ok(&["create", "fat-parent.vhd", "--size", "4M"]);
    let refused = bench.refused(&["info", &name]);
    assert!(refused.contains("5fa2"), "says which parent it wants: {refused}");
    assert_eq!(bench.names(), ["dfvfs-fat-differential.vhd", "fat-parent.vhd"]);
}
