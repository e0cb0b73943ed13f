//! What is not an image, or not one that is read here: the right words for each.
use std::path::Path;

use diskimage::storage::MemoryStorage;
use diskimage::{Format, Image, OpenOptions};

use crate::builder::{MIB, Vhdx};
use crate::tools::{open, open_as, qemu_img, save};

fn refusal(path: &Path) -> String {
    let error = Image::open(path, OpenOptions::default()).map(|image| image.info()).unwrap_err();
    assert!(error.to_string().contains(&format!("{path:?}")), "{error}");
    error.refusal.to_string()
}

#[test]
fn foreign_formats_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    for ending in ["vdi", "vhdx", "bin"] {
        let path = directory.path().join(format!("disk.{ending}"));
        qemu_img(&["create", "-q", "-f", "vdi"], &[&path, "10M".as_ref()]);
        let refusal = refusal(&path);
        assert!(refusal.starts_with("this is a VDI image"), "{refusal}");
    }
}

#[test]
fn formats_are_recognised_whatever_the_ending_says() {
    let directory = tempfile::tempdir().unwrap();
    for format in ["qcow2", "vmdk"] {
        for ending in [format, "vhdx", "bin"] {
            let path = directory.path().join(format!("{format}.{ending}"));
            qemu_img(&["create", "-q", "-f", format], &[&path, "10M".as_ref()]);
            assert_eq!(open(&path).format().to_string(), format);
        }
    }
}

#[test]
fn raw_needs_its_ending_or_to_be_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    std::fs::write(&path, [1; 4096]).unwrap();
    assert!(refusal(&path).contains("the format is not recognised"));
    assert_eq!(open_as(&path, Some(Format::Raw)).format(), Format::Raw);
    let named = directory.path().join("disk.IMG");
    std::fs::rename(&path, &named).unwrap();
    assert_eq!(open(&named).format(), Format::Raw);
}

#[test]
fn raw_file_that_looks_like_another_format_is_not_guessed_at() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.raw");
    save(&Vhdx::new(4 * MIB, 0).build(), &path);
    assert!(refusal(&path).contains("its contents look like VHDX"));
    assert_eq!(open_as(&path, Some(Format::Raw)).format(), Format::Raw);
    assert_eq!(open_as(&path, Some(Format::Vhdx)).format(), Format::Vhdx);
    let subformat = "subformat=fixed";
    qemu_img(&["create", "-q", "-f", "vpc", "-o", subformat], &[&path, "10M".as_ref()]);
    assert!(refusal(&path).contains("its contents look like VHD;"));
    qemu_img(&["create", "-q", "-f", "qcow2"], &[&path, "10M".as_ref()]);
    assert!(refusal(&path).contains("its contents look like qcow2"));
}

/// The guest of a fixed VHD can write a header of another format into the first sector of its disk.
#[test]
fn fixed_vhd_whose_disk_begins_as_another_format_is_not_guessed_at() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    qemu_img(&["create", "-q", "-f", "vpc", "-o", "subformat=fixed"], &[&path("disk.vhd"), "10M".as_ref()]);
    for (format, start) in
        [("VHDX", &b"vhdxfile"[..]), ("qcow2", b"QFI\xFB"), ("VMDK", b"# Disk DescriptorFile")]
    {
        let file = std::fs::File::options().write(true).open(path("disk.vhd")).unwrap();
        rustix::io::pwrite(&file, start, 0).unwrap();
        assert_eq!(open(&path("disk.vhd")).format(), Format::Vhd);
        for ending in ["bin", "raw"] {
            let other = path(&format!("disk.{ending}"));
            std::fs::copy(path("disk.vhd"), &other).unwrap();
            let refusal = refusal(&other);
            assert!(
                refusal.contains(&format!("begins as a {format} image and ends with a VHD")),
                "{refusal}"
            );
            assert_eq!(open_as(&other, Some(Format::Vhd)).format(), Format::Vhd);
        }
        rustix::io::pwrite(&file, &[0; 32], 0).unwrap();
    }
}

#[test]
fn ending_without_the_signature_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (name, expected) in [
        ("a.vhdx", "not a VHDX image"),
        ("a.vhd", "not a VHD image"),
        ("a.qcow2", "not a qcow2 image"),
        ("a.vmdk", "not a VMDK image"),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, [1; 4096]).unwrap();
        assert!(refusal(&path).contains(expected));
    }
}

#[test]
fn given_format_without_the_signature_is_refused() {
    for format in [Format::Vhd, Format::Vhdx, Format::Qcow2, Format::Vmdk] {
        for bytes in [&[][..], &[1; 700], &[0; 70_000]] {
            let options = OpenOptions { format: Some(format), ..OpenOptions::default() };
            let result = Image::from_storage(Box::new(MemoryStorage::new(bytes)), options);
            let refusal = result.map(|image| image.info()).unwrap_err().refusal.to_string();
            assert!(refusal.contains(&format!("not a {} image", format.title())), "{refusal}");
        }
    }
}

#[test]
fn paths_without_an_image_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(refusal(&directory.path().join("absent.vhdx")), "the file cannot be opened");
    assert_eq!(refusal(directory.path()), "this is a directory, not a file or block device");
    let empty = directory.path().join("empty.raw");
    std::fs::write(&empty, []).unwrap();
    assert_eq!(refusal(&empty), "the disk is empty: it has no block");
}
