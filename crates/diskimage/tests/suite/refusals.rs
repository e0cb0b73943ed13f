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
    for (format, name) in [("qcow2", "qcow2"), ("vmdk", "VMDK"), ("vdi", "VDI")] {
        for ending in [format, "vhdx", "bin"] {
            let path = directory.path().join(format!("{format}.{ending}"));
            qemu_img(&["create", "-q", "-f", format], &[&path, "10M".as_ref()]);
            let refusal = refusal(&path);
            assert!(refusal.starts_with(&format!("this is a {name} image")), "{refusal}");
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

#[test]
fn ending_without_the_signature_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (name, expected) in [("a.vhdx", "not a vhdx image"), ("a.vhd", "not a vhd image")] {
        let path = directory.path().join(name);
        std::fs::write(&path, [1; 4096]).unwrap();
        assert!(refusal(&path).contains(expected));
    }
}

#[test]
fn given_format_without_the_signature_is_refused() {
    for format in [Format::Vhd, Format::Vhdx] {
        for bytes in [&[][..], &[1; 700], &[0; 70_000]] {
            let options = OpenOptions { format: Some(format) };
            let result = Image::from_storage(Box::new(MemoryStorage::new(bytes)), options);
            let refusal = result.map(|image| image.info()).unwrap_err().refusal.to_string();
            assert!(refusal.contains(&format!("not a {format} image")), "{refusal}");
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
