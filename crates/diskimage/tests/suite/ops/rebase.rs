//! Parents that were moved, and files that are none.
use std::path::Path;

use diskimage::ops::{ConvertOptions, OpError, Trust, convert, rebase};
use diskimage::{Format, Image, OpenOptions, Subtype, Watch};

use crate::chains::generate;
use crate::tools::{assert_same, open};

const MIB: u64 = 1 << 20;

fn rebased(child: &Path, parent: &Path, trust: Trust) -> Result<(), OpError> {
    rebase(child, parent, trust, &OpenOptions::default(), &Watch::default())
}

#[test]
fn moved_parent_is_named_anew() {
    let directory = tempfile::tempdir().unwrap();
    let shapes = [(8 * MIB, 2 * MIB); 3];
    let Some((leaf, raw)) = generate(Format::Vhdx, 512, 9, &shapes, directory.path()) else { return };
    let [base, middle] = ["0.vhdx", "1.vhdx"].map(|name| directory.path().join(name));
    std::fs::create_dir(directory.path().join("golden")).unwrap();
    let moved = directory.path().join("golden/base of all.vhdx");
    std::fs::rename(&base, &moved).unwrap();
    assert!(Image::open(&leaf, OpenOptions::default()).is_err());
    rebased(&middle, &moved, Trust::Linkage).unwrap();
    // The file in the middle has a child, which must know it still.
    assert_same(&open(&leaf), &raw);
}

#[test]
fn other_file_is_taken_only_if_it_holds_the_same_or_the_caller_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let shapes = [(8 * MIB, 2 * MIB); 2];
    let Some((leaf, raw)) = generate(Format::Vhdx, 512, 9, &shapes, directory.path()) else { return };
    let path = |name: &str| directory.path().join(name);
    let copy = |from: &Path, name: &str| {
        let options = ConvertOptions { subtype: Subtype::Dynamic, ..ConvertOptions::to(Format::Vhdx) };
        convert(&open(from), &path(name), &options).unwrap().run(&Watch::default()).unwrap();
        path(name)
    };
    let (same, other) = (copy(&path("0.vhdx"), "same.vhdx"), copy(&leaf, "other.vhdx"));
    let before = std::fs::read(&leaf).unwrap();
    for (parent, trust) in
        [(&same, Trust::Linkage), (&other, Trust::Linkage), (&other, Trust::Contents), (&leaf, Trust::Caller)]
    {
        let result = rebased(&leaf, parent, trust);
        assert!(matches!(result, Err(OpError::Unfit { .. })), "{result:?}");
    }
    let result = rebased(&path("0.vhdx"), &same, Trust::Caller);
    assert!(matches!(result, Err(OpError::Unfit { .. })), "it has no parent: {result:?}");
    assert!(std::fs::read(&leaf).unwrap() == before, "the child was changed");
    rebased(&leaf, &same, Trust::Contents).unwrap();
    std::fs::remove_file(path("0.vhdx")).unwrap();
    assert_same(&open(&leaf), &raw);
    rebased(&leaf, &other, Trust::Caller).unwrap();
    assert_eq!(open(&leaf).layers()[0].path, Some(other.canonicalize().unwrap()));
}
