//! A network namespace of the bench's own: nothing but loopback, with a congestion control that is the same for all.
//!
//! Some machines pace TCP by default (BBR). Our server declines that for its own sockets and its peers do not, which on
//! such a machine multiplies every ratio of sequential reads (by four where it was tried). That would measure a setting
//! and not the servers, so that everything here runs with Reno, which loses nothing on loopback.
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::run;

/// Says to the second start of this program that it is inside.
const MARK: &str = "HEADWATER_BENCH_NAMESPACE";

const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Whether this process is the one that was started by hand.
pub(super) fn is_outside() -> bool {
    std::env::var_os(MARK).is_none()
}

/// Starts this program anew inside a namespace, and does not come back; or, there, makes it ready.
///
/// # Errors
/// Where there is none to be had: it takes root.
pub(super) fn enter() -> Result<()> {
    if is_outside() {
        let error = Command::new("unshare")
            .args(["--net", "--"])
            .arg(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(MARK, "1")
            .exec();
        bail!("cannot start unshare: {error}");
    }
    run(Command::new("ip").args(["link", "set", "lo", "up"]))
        .context("a network namespace of its own takes root: run this with sudo")?;
    std::fs::write(CONGESTION_CONTROL, "reno").with_context(|| format!("cannot write {CONGESTION_CONTROL}"))
}
