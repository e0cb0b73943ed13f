//! Images that come in parts.
use std::path::PathBuf;
use std::time::SystemTime;

use control::upload::{ABANDONED_AFTER, MAX_PART_BYTES, append, begin, cancel, finish};
use control::{Code, ControlError, adopt};
use diskimage::Format;
use farm::model::FileName;
use sha2::{Digest, Sha256};

use crate::sample::{Farm, blank, text, write};

/// An image that lies elsewhere.
fn image(farm: &Farm) -> Vec<u8> {
    let path: PathBuf = farm.root().join("elsewhere.vhdx");
    blank(&path, Format::Vhdx);
    write(&path, 1 << 20, 7);
    std::fs::read(path).unwrap()
}

fn send(farm: &Farm, name: &FileName, offset: usize, part: &[u8]) -> Result<u64, ControlError> {
    let digest = Sha256::digest(part).into();
    append(&farm.control, &farm.by(), farm.store, name, offset as u64, part, digest)
}

fn code<T: std::fmt::Debug>(done: Result<T, ControlError>) -> Code {
    done.unwrap_err().code
}

#[test]
fn upload_that_was_broken_off_goes_on_where_it_was_and_can_be_adopted() {
    let farm = Farm::new();
    let (bytes, name) = (image(&farm), text("win11.vhdx"));
    let (control, by, store, length) = (&farm.control, farm.by(), farm.store, bytes.len() as u64);
    assert_eq!(begin(control, &by, store, &name, length).unwrap(), 0);
    let half = bytes.len() / 2;
    assert_eq!(send(&farm, &name, 0, &bytes[..half]).unwrap(), half as u64);
    assert_eq!(code(finish(control, &by, store, &name, length, None)), Code::Conflict);
    assert_eq!(farm.files(), ["win11.vhdx.upload"], "nothing has the image's name before it is whole");
    // Another browser, after a restart, asks again.
    assert_eq!(begin(control, &by, store, &name, length).unwrap(), half as u64);
    assert_eq!(code(send(&farm, &name, 0, &bytes[..10])), Code::Conflict, "a part that is there already");
    assert_eq!(send(&farm, &name, half, &bytes[half..]).unwrap(), length);
    assert_eq!(code(finish(control, &by, store, &name, length, Some([0; 32]))), Code::FileDamaged);
    let digest = Sha256::digest(&bytes).into();
    finish(control, &by, store, &name, length, Some(digest)).unwrap();
    assert_eq!(std::fs::read(farm.path("win11.vhdx")).unwrap(), bytes);
    assert_eq!(code(begin(control, &by, store, &name, length)), Code::Conflict, "the name is taken");
    let plan = adopt::plan(control, &by, store).unwrap();
    assert_eq!((plan.chains.len(), plan.findings.len()), (1, 0));
}

#[test]
fn parts_that_are_damaged_or_too_long_or_of_nothing_are_refused() {
    let farm = Farm::new();
    let (name, by) = (text("win11.vhdx"), farm.by());
    assert_eq!(code(send(&farm, &name, 0, b"x")), Code::NotFound);
    begin(&farm.control, &by, farm.store, &name, 100 << 20).unwrap();
    let damaged = append(&farm.control, &by, farm.store, &name, 0, b"part", [0; 32]);
    assert_eq!(code(damaged), Code::BadValue);
    assert_eq!(code(send(&farm, &name, 0, &vec![0; MAX_PART_BYTES + 1])), Code::BadValue);
    assert_eq!(code(send(&farm, &name, 1, b"x")), Code::Conflict, "a hole");
    for bad in ["debian.qcow2", "notes.txt"] {
        let begun = begin(&farm.control, &by, farm.store, &text(bad), 10);
        assert_eq!(code(begun), Code::BadValue, "{bad}");
    }
}

#[test]
fn file_that_is_no_image_never_gets_its_name() {
    let farm = Farm::new();
    let (name, by, junk) = (text("win11.vhdx"), farm.by(), [7; 5000]);
    begin(&farm.control, &by, farm.store, &name, 5000).unwrap();
    send(&farm, &name, 0, &junk).unwrap();
    assert_eq!(code(finish(&farm.control, &by, farm.store, &name, 5000, None)), Code::FileDamaged);
    cancel(&farm.control, &by, farm.store, &name).unwrap();
    assert_eq!(farm.files(), Vec::<String>::new());
}

#[test]
fn abandoned_upload_is_removed_when_the_next_one_begins() {
    let farm = Farm::new();
    let by = farm.by();
    for name in ["old.vhdx", "new.vhdx"] {
        begin(&farm.control, &by, farm.store, &text(name), 100).unwrap();
    }
    let old = std::fs::File::options().write(true).open(farm.path("old.vhdx.upload")).unwrap();
    old.set_modified(SystemTime::now() - ABANDONED_AFTER * 2).unwrap();
    begin(&farm.control, &by, farm.store, &text("third.vhdx"), 100).unwrap();
    assert_eq!(farm.files(), ["new.vhdx.upload", "third.vhdx.upload"]);
}
