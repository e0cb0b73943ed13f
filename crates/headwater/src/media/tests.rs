//! Whole media, seen by others: the reader of partitions and FAT of the crate `guest`, and the programs of other people.
use std::path::Path;
use std::process::Command;

use super::bytes::Bytes;
use super::*;

/// A kernel and a UEFI application by their headers, with bodies of odd sizes.
fn content() -> Content {
    let mut bios = Bytes::zeros(100_001);
    bios.put(0x1f1, &[4]);
    bios.put(0x202, b"HdrS\x07\x02");
    bios.put(0x211, &[1]);
    let mut uefi = Bytes::zeros(300_003);
    uefi.put(0, b"MZ");
    uefi.put_u32(0x3c, 0x80);
    uefi.put(0x80, b"PE\0\0\x64\x86");
    for at in 0x100..300_003 {
        uefi.put(at, &[u8::try_from(at % 251).unwrap()]);
    }
    Content {
        bios: bios.into_vec(),
        uefi: uefi.into_vec(),
        script: "#!ipxe\necho here\n".to_owned(),
        readme: "what this is\r\n".to_owned(),
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).env("LC_ALL", "C").args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}:\n{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Every file of the volume as mtools reads it.
fn assert_volume_is_sound(folder: &Path, volume: &[u8], content: &Content) {
    let file = write(folder, "volume", volume);
    run("fsck.fat", &["-n", &file]);
    let read = |path: &str| {
        let out = folder.join("out");
        run("mcopy", &["-n", "-o", "-i", &file, &format!("::/{path}"), out.to_str().unwrap()]);
        std::fs::read(out).unwrap()
    };
    assert_eq!(read("autoexec.ipxe"), content.script.as_bytes());
    assert_eq!(read("README.TXT"), content.readme.as_bytes());
    assert_eq!(read("EFI/BOOT/IPXE.EFI"), content.uefi);
    assert_eq!(read("EFI/BOOT/BOOTX64.EFI"), include_bytes!("loader/uefi.bin"));
}

#[test]
fn partition_tables_and_volumes_of_stick_disk_and_cd_are_sound_to_other_programs() {
    let content = content();
    let folder = tempfile::tempdir().unwrap();
    for (kind, label) in [(Kind::Usb, "dos"), (Kind::Disk, "gpt"), (Kind::Iso, "dos")] {
        let image = build(kind, &content).unwrap();
        let file = write(folder.path(), "image", &image);
        let table: serde_json::Value = serde_json::from_str(&run("sfdisk", &["--json", &file])).unwrap();
        let table = &table["partitiontable"];
        assert_eq!(table["label"], label);
        assert!(run("sfdisk", &["--verify", &file]).contains("No errors detected"));
        let number = |key: &str| {
            usize::try_from(table["partitions"][0][key].as_u64().unwrap()).unwrap() * SECTOR_BYTES
        };
        let (start, size) = (number("start"), number("size"));
        assert_volume_is_sound(folder.path(), &image[start..start + size], &content);
        assert_eq!(image.len() % MIB, 0);
    }
}

#[test]
fn cd_has_a_file_system_and_two_boot_images_to_other_programs() {
    let content = content();
    let folder = tempfile::tempdir().unwrap();
    let image = build(Kind::Iso, &content).unwrap();
    let file = write(folder.path(), "boot.iso", &image);
    let out = folder.path().join("files");
    run("7z", &["x", "-y", &format!("-o{}", out.display()), &file]);
    assert_eq!(std::fs::read(out.join("README.TXT")).unwrap(), content.readme.as_bytes());
    // El Torito's BIOS image is our boot sector for CDs, its EFI image the same bytes as the file.
    let bios = std::fs::read(out.join("[BOOT]/1-Boot-NoEmul.img")).unwrap();
    assert_eq!((bios.len(), bios[0x198], &bios[510..512]), (2048, 16, &[0x55, 0xaa][..]));
    let efi = std::fs::read(out.join("[BOOT]/2-Boot-NoEmul.img")).unwrap();
    assert_eq!(efi, std::fs::read(out.join("EFI.IMG")).unwrap());
    assert_volume_is_sound(folder.path(), &efi, &content);
}

#[test]
fn volume_of_files_beyond_32_mib_has_larger_clusters_and_beyond_40_mib_there_is_none() {
    let large: Vec<u8> = (0..36 << 20).map(|at: u32| at.to_le_bytes()[2]).collect();
    let folder = tempfile::tempdir().unwrap();
    let volume = fat::volume(&[("README.TXT", b"small"), ("EFI/BOOT/LARGE.EFI", &large)], 0).unwrap();
    let file = write(folder.path(), "volume", &volume);
    run("fsck.fat", &["-n", &file]);
    let out = folder.path().join("large");
    run("mcopy", &["-n", "-i", &file, "::/EFI/BOOT/LARGE.EFI", out.to_str().unwrap()]);
    assert!(std::fs::read(out).unwrap() == large, "the large file differs");
    let twice = [("A.EFI", &large[..]), ("B.EFI", &large[..])];
    assert_eq!(fat::volume(&twice, 0).unwrap_err(), MediaError::TooLarge { size_bytes: 72 << 20 });
}

#[test]
fn same_content_gives_the_same_bytes_and_another_script_another_identity() {
    let (one, mut other) = (content(), content());
    assert_eq!(build(Kind::Disk, &one).unwrap(), build(Kind::Disk, &one).unwrap());
    other.script.push_str("echo more\n");
    let disk_guid = |content: &Content| build(Kind::Disk, content).unwrap()[512 + 56..512 + 72].to_owned();
    assert_ne!(disk_guid(&one), disk_guid(&other));
    other.script = "x".repeat(MAX_SCRIPT_BYTES + 1);
    assert!(matches!(build(Kind::Disk, &other), Err(MediaError::Script { .. })));
}

#[test]
fn loaders_are_what_the_assembler_makes_of_their_sources() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/media/loader");
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, bits, machine, address) in
        [("bios", "--32", "elf_i386", "0x7c00"), ("uefi", "--64", "elf_x86_64", "0")]
    {
        let source = sources.join(format!("{name}.S"));
        run("as", &[bits, source.to_str().unwrap(), "-o", &place("object")]);
        run(
            "ld",
            &[
                "-m",
                machine,
                "-Ttext",
                address,
                "--oformat",
                "binary",
                &place("object"),
                "-o",
                &place("binary"),
            ],
        );
        let (made, kept) =
            (std::fs::read(place("binary")), std::fs::read(sources.join(format!("{name}.bin"))));
        assert_eq!(made.unwrap(), kept.unwrap(), "assemble {name}.S anew, as its head says");
    }
}
