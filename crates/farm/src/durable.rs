//! Files that are there whole or not at all, whenever the power fails.
use std::fs::File;
use std::io;
use std::path::Path;

/// Gives a finished file its name: it is on the disk before the name is, and the name before this returns.
pub(crate) fn publish(finished: &Path, name: &Path) -> io::Result<()> {
    File::open(finished)?.sync_all()?;
    std::fs::rename(finished, name)?;
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
