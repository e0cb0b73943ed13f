//! Files that an image names beside itself: the extents of a VMDK.
//!
//! The name is a stranger's. It must be that of a regular file in the image's own folder: no other folder, no symbolic
//! link out of it, no device. An image can so reach nothing that does not lie where its owner put it.
use std::path::{Component, Path};

use crate::error::Refusal;
use crate::storage::{FileStorage, FileStorageError, Storage};

/// Opens the file `name` beside the image at `image`. An image that was not opened by its path has nothing beside it.
pub(crate) fn open(image: Option<&Path>, name: &str) -> Result<Box<dyn Storage>, Refusal> {
    let refusal = |problem| Refusal::Beside { name: shown(name), problem };
    let Some(image) = image else {
        return Err(refusal("the image was not opened by its path, so nothing lies beside it"));
    };
    if !is_plain(name) {
        return Err(refusal("only plain names of files in the image's own folder are followed"));
    }
    let path = image.parent().unwrap_or(Path::new("")).join(name);
    match FileStorage::open_regular(&path) {
        Ok(storage) => Ok(Box::new(storage)),
        Err(FileStorageError::NotAFile { .. }) => Err(refusal("it is not a regular file")),
        Err(FileStorageError::Access(source)) => Err(Refusal::BesideAccess { name: shown(name), source }),
    }
}

/// Whether the name is one component of a path, for Windows as well, whose programs write most of these names.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let plain = matches!(components.next(), Some(Component::Normal(only)) if only == name);
    plain && components.next().is_none() && !name.contains(['\\', ':', '\0'])
}

/// Names may be long, and hold what moves a terminal's cursor.
fn shown(name: &str) -> String {
    const MAX_CHARS: usize = 128;
    name.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_folder_are_not_followed() {
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/b",
            "a/",
            "/etc/passwd",
            "..\\x",
            "C:\\x",
            "C:x",
            "\\\\host\\x",
            "a\0b",
        ] {
            let refusal = open(Some(Path::new("/tmp/disk.vmdk")), name).unwrap_err();
            assert!(refusal.to_string().contains("only plain names"), "{name:?}: {refusal}");
        }
        assert!(is_plain("disk 1-f001.vmdk") && is_plain("...") && is_plain("ö.vmdk"));
    }

    #[test]
    fn what_is_no_regular_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("disk.vmdk");
        std::fs::write(folder.path().join("real"), b"x").unwrap();
        std::os::unix::fs::symlink("real", folder.path().join("link")).unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        assert_eq!(open(Some(&image), "real").unwrap().len().get(), 1);
        let refusal = |name| open(Some(&image), name).unwrap_err();
        assert!(matches!(refusal("link"), Refusal::BesideAccess { .. }));
        assert!(matches!(refusal("absent"), Refusal::BesideAccess { .. }));
        assert!(refusal("folder").to_string().contains("not a regular file"));
        assert!(open(None, "real").unwrap_err().to_string().contains("not opened by its path"));
    }
}
