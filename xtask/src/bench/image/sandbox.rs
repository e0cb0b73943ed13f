//! A mount namespace of the bench's own, so that nothing stays mounted however it ends.
//!
//! A mount lives as long as its namespace, and that as long as the processes in it; the loop device under it is freed
//! with it. So neither Ctrl-C nor a kill leaves anything but files in the build folder. The process becomes
//! unshare(1), which becomes this program again.
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Set where the namespace is there already.
const INSIDE: &str = "HEADWATER_BENCH_SANDBOX";

/// Goes on in a mount namespace of its own; returns when it is there.
///
/// # Errors
/// Where there can be none: that takes root.
pub(super) fn enter() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private"]).env(INSIDE, "1");
    let probe = Command::new("unshare").args(["--mount", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        bail!("the bench mounts an XFS of its own, in a mount namespace of its own: run it as root");
    }
    let error = unshare.arg(program).args(std::env::args_os().skip(1)).exec();
    Err(error).context("cannot start unshare")
}
