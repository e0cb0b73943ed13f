//! A file on a store that fails or hangs when it is told to.
//!
//! The kernels that tests run on have no device-mapper to make a disk fail. A file does as well: nbdkit serves it, with
//! its filter `error`, and nbdfuse shows it as a file again. While a trigger file is there, reads of it fail with EIO;
//! while nbdkit is stopped (SIGSTOP), they wait, as on a network store that is gone.
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{bound_to_us, run};
use crate::network::Network;
use crate::service::Service;

/// A file that reads as another one does, on a store that can be made to fail. Read-only.
pub struct FlakyFile {
    path: PathBuf,
    trigger: PathBuf,
    server: Service,
    mount: Service,
    folder: PathBuf,
}

impl FlakyFile {
    /// Shows `file` in a folder of the network's. Servers that are started afterwards see it.
    ///
    /// # Errors
    /// Where nbdkit, nbdfuse or FUSE is not there.
    pub fn begin(network: &Network, file: &Path) -> Result<Self> {
        let folder = network.folder().join("flaky");
        std::fs::create_dir(&folder)?;
        let (socket, trigger) = (network.socket("flaky"), network.folder().join("flaky-fails"));
        let mut command = bound_to_us("nbdkit");
        command.args(["--foreground", "--readonly", "--filter=error", "--unix"]).arg(&socket);
        command.arg("file").arg(format!("file={}", file.display()));
        command.args(["error=EIO", "error-pread-rate=100%"]);
        command.arg(format!("error-file={}", trigger.display()));
        let mut server = network.service("flaky-store", command)?;
        server.wait_for_path(&socket)?;
        // A mount lives in the machine's own namespace: one inside the network's would not reach the server.
        network.run().record_mount(&folder)?;
        let path = folder.join(file.file_name().context("the file has no name")?);
        let mut command = bound_to_us("nbdfuse");
        command.arg("--readonly").arg(&path).arg(format!("nbd+unix:///?socket={}", socket.display()));
        let mut mount = network.service("flaky-mount", command)?;
        mount.wait_for_path(&path)?;
        Ok(Self { path, trigger, server, mount, folder })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes all reads fail with EIO from now on, or no longer.
    ///
    /// # Errors
    /// Where the trigger cannot be made or removed.
    pub fn fail(&self, failing: bool) -> Result<()> {
        if failing {
            File::create(&self.trigger)?;
        } else {
            std::fs::remove_file(&self.trigger)?;
        }
        Ok(())
    }

    /// Makes all reads hang from now on, or go on.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn hang(&self, hanging: bool) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.server.pid())?).context("no process number")?;
        Ok(kill_process(pid, if hanging { Signal::STOP } else { Signal::CONT })?)
    }
}

impl Drop for FlakyFile {
    fn drop(&mut self) {
        // Where one of these fails, the run's clean-up does it.
        let _ = self.hang(false);
        let _ = run("umount", &["--lazy", &self.folder.to_string_lossy()]);
        let _ = self.mount.kill();
    }
}
