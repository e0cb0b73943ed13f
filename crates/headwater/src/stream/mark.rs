//! Marks: what the catalogue says of a version's file, held against the file.
use std::collections::HashMap;
use std::ffi::OsString;

use control::marks::of_layer;
use diskimage::Image;
use farm::model::{FileMark, Stored, Version};
use farm::rules::files;

/// The marks of a vDisk's files, by their names. A version that is written to has none.
#[derive(Clone, Debug, Default)]
pub struct Marks(HashMap<OsString, FileMark>);

impl Marks {
    /// Those of a vDisk's versions.
    #[must_use]
    pub fn of(versions: &[Stored<Version>]) -> Self {
        let marked =
            versions.iter().filter_map(|version| Some((version.file.as_str().into(), version.mark?)));
        Self(marked.collect())
    }
}

/// Holds every file of an image to its mark.
///
/// # Errors
/// The first file that somebody changed, and what is different.
pub fn check(image: &Image, marks: &Marks) -> anyhow::Result<()> {
    for layer in image.layers() {
        let Some(path) = &layer.path else { continue };
        let expected = path.file_name().and_then(|name| marks.0.get(name));
        let Some(expected) = expected else { continue };
        let found = of_layer(&layer)?;
        let (_, differences) = files::compare(expected, Some(&found));
        anyhow::ensure!(
            differences.is_empty(),
            "{} was changed behind the catalogue's back: {}; bring the file back, or accept it as it is",
            path.display(),
            differences.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use diskimage::OpenOptions;

    #[test]
    fn file_that_is_not_what_its_mark_says_is_refused_with_the_difference() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("golden.raw");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let open = || Image::open(&path, OpenOptions::default()).unwrap();
        let known = of_layer(&open().layers()[0]).unwrap();
        let marks = Marks([("golden.raw".into(), known), ("other.raw".into(), known)].into());
        check(&open(), &marks).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
        let said = check(&open(), &marks).unwrap_err().to_string();
        assert!(said.contains("its length is 2097152 bytes and was 1048576 bytes"), "{said}");
    }
}
