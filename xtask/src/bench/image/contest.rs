//! Two programs, run in turns.
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::super::{Aim, Measure, median};
use super::stopwatch::time;
use super::volumes::Volume;
use crate::run::run;

/// Our program, and how often both sides run.
pub(super) struct Contest<'a> {
    pub(super) program: &'a Path,
    pub(super) rounds: usize,
    /// The peer's name and version.
    pub(super) qemu: String,
}

/// The medians of both sides.
pub(super) struct Medians {
    pub(super) ours: f64,
    pub(super) peer: f64,
}

impl Contest<'_> {
    /// Ours against qemu-img, in turns; lower is better. Each side writes a file of its own with this ending, if any;
    /// before each of its runs its last one is removed, and `prepare` called.
    pub(super) fn against_qemu(
        &self,
        measure: String,
        volume: &Volume,
        ending: &str,
        prepare: &dyn Fn() -> Result<()>,
        [ours, peer]: [&dyn Fn(&Path) -> Command; 2],
    ) -> Result<Measure> {
        let (our_out, peer_out) =
            (volume.path("ours").with_extension(ending), volume.path("peer").with_extension(ending));
        let timed = |out: &Path, command: &dyn Fn(&Path) -> Command| {
            clean(out)?;
            prepare()?;
            time(&mut command(out))
        };
        let medians = self.in_turns(&measure, || timed(&our_out, ours), || timed(&peer_out, peer))?;
        clean(&our_out)?;
        clean(&peer_out)?;
        Ok(seconds(measure, &medians, self.qemu.clone(), Aim::AtMost(1.0)))
    }

    /// Both sides in turns, each first once without being counted: that brings the sources into memory, and is when a
    /// virtual machine gets from its host the memory that both then use. Says how far the runs lie apart.
    pub(super) fn in_turns(
        &self,
        measure: &str,
        ours: impl Fn() -> Result<f64>,
        peer: impl Fn() -> Result<f64>,
    ) -> Result<Medians> {
        let (mut of_ours, mut of_peer) = (Vec::new(), Vec::new());
        ours()?;
        peer()?;
        for _ in 0..self.rounds.max(1) {
            of_ours.push(ours()?);
            of_peer.push(peer()?);
        }
        eprintln!("{measure}: ours {}, peer {}", spread(&of_ours), spread(&of_peer));
        Ok(Medians { ours: median(of_ours), peer: median(of_peer) })
    }

    pub(super) fn ours(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments);
        command
    }
}

/// Lets a command be built in one expression.
pub(super) trait Take {
    fn take(&mut self) -> Command;
}

impl Take for Command {
    fn take(&mut self) -> Command {
        std::mem::replace(self, Command::new("true"))
    }
}

pub(super) fn seconds(measure: String, medians: &Medians, peer_name: String, aim: Aim) -> Measure {
    Measure { measure, ours: medians.ours, peer: medians.peer, peer_name, unit: "s", aim }
}

pub(super) fn qemu_img(arguments: &[&str]) -> Command {
    let mut command = Command::new("qemu-img");
    command.args(arguments);
    command
}

/// Removes what an earlier run left, and waits until nothing of it is being written any more.
pub(super) fn clean(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    run(&mut Command::new("sync"))
}

/// Takes a file's pages out of memory, all of which are on stable storage.
pub(super) fn evict(path: &Path) -> Result<()> {
    let mut dd = Command::new("dd");
    dd.args(["iflag=nocache", "count=0", "status=none"]).arg(format!("if={}", path.display()));
    run(&mut dd)
}

/// The least and the most of the values.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{least:.3} to {most:.3}")
}
