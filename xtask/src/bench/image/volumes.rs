//! Where the images lie: the file system of the build folder, and an XFS of our own.
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{output, run};

/// A folder on a file system.
pub(super) struct Volume {
    /// What it is, for the name of a measure.
    pub(super) name: String,
    /// Whether the file system can clone.
    pub(super) clones: bool,
    folder: PathBuf,
    mounted: bool,
}

impl Volume {
    /// The build folder.
    pub(super) fn here(folder: &Path, _: u64) -> Result<Self> {
        let folder = folder.join("here");
        std::fs::create_dir_all(&folder)?;
        let kind = output(Command::new("stat").args(["-f", "-c", "%T"]).arg(&folder))?;
        // stat(1) cannot tell the three ext file systems apart.
        let name = kind.trim().replace("ext2/ext3", "ext4");
        let clones = matches!(name.as_str(), "xfs" | "btrfs" | "bcachefs");
        Ok(Self { name, clones, folder, mounted: false })
    }

    /// A fresh XFS with reflink, in a file that has no name any more once it is mounted.
    pub(super) fn xfs(folder: &Path, filled_gib: u64) -> Result<Self> {
        let (image, mount) = (folder.join("xfs.img"), folder.join("xfs"));
        std::fs::create_dir_all(&mount)?;
        let file = std::fs::File::create(&image)?;
        file.set_len((filled_gib * 5 + 16) << 30)?;
        run(Command::new("mkfs.xfs").args(["-q", "-f", "-m", "reflink=1"]).arg(&image))?;
        let mounted = run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount));
        std::fs::remove_file(&image)?;
        if mounted.is_err() {
            bail!(
                "the XFS of the bench cannot be mounted: that takes root, loop devices and XFS in the kernel"
            );
        }
        Ok(Self { name: "xfs".into(), clones: true, folder: mount, mounted: true })
    }

    /// A file on it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg(&self.folder).status();
        }
    }
}

/// Says so before anything is made, where the bench's files would not fit.
pub(super) fn check_room(folder: &Path, filled_gib: u64, difference_mib: u64) -> Result<()> {
    let free = output(Command::new("stat").args(["-f", "-c", "%a %S"]).arg(folder))?;
    let mut numbers = free.split_whitespace().filter_map(|number| number.parse::<u64>().ok());
    let (Some(blocks), Some(block)) = (numbers.next(), numbers.next()) else {
        return Err(anyhow::anyhow!("{free:?}")).context("stat(1) does not say how much room there is");
    };
    // What is kept on this volume (raw image, base, difference), and what the other one holds at most: that, a base and
    // a difference as VHD, and the results of both sides.
    let needed_gib = 7 * filled_gib + (5 * difference_mib).div_ceil(1024) + 2;
    let free_gib = blocks.saturating_mul(block) >> 30;
    if free_gib < needed_gib {
        bail!(
            "the bench takes up to {needed_gib} GiB in {}, and {free_gib} GiB are free: make room, or give a smaller \
             --filled-gib",
            folder.display()
        );
    }
    Ok(())
}
