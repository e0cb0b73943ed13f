//! `headwater backup` and `headwater restore`: the farm as one file.
//!
//! In it are the catalogue, the configuration, the certificates and keys that it names, and what the server remembers in
//! its state directory: the last known state, which boot of each device counts, DHCP leases, timelines. Not in it are the
//! images and the write caches, which are large and lie in places of their own. The file holds secrets: its mode is 0600.
//!
//! A backup is made while the server works: the catalogue is copied in one transaction, and the server writes its small files
//! whole. A restore needs the server stopped; what was there is moved aside, and nothing is given its place before all of the
//! backup is on the disk and was compared with the manifest.
mod archive;
mod contents;
pub mod restore;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use farm::catalogue::Catalogue;

use crate::cli::BackupArgs;
use crate::columns::bytes;
use crate::config::Config;
use archive::{Member, Writer};
use contents::{CATALOGUE, CONFIG, Entry, FORMAT, MANIFEST, Manifest};

/// Runs the command; what it prints.
///
/// # Errors
/// In words for the administrator. No file is left then.
pub fn run(args: &BackupArgs) -> anyhow::Result<String> {
    let config = Config::load(&args.config)?;
    anyhow::ensure!(!args.file.exists(), "{} exists: a backup needs a new file", args.file.display());
    // The next backup would take it along, and the one after that both.
    anyhow::ensure!(
        !std::path::absolute(&args.file)?.starts_with(&config.state_dir),
        "{} lies in the state directory, which is what is saved: put the backup elsewhere, best on another machine",
        args.file.display()
    );
    let half = beside(&args.file, ".part");
    let made = make(&config, args, &half).and_then(|manifest| {
        publish(&half, &args.file).with_context(|| format!("{} cannot be made", args.file.display()))?;
        Ok(manifest)
    });
    if made.is_err() {
        // Best effort: its name says that it is none.
        let _ = std::fs::remove_file(&half);
    }
    let manifest = made?;
    let length = std::fs::metadata(&args.file).map_or(0, |facts| facts.len());
    let mut text = format!(
        "{}: {} files, {}; \"headwater restore {0} --check\" reads it again\n",
        args.file.display(),
        manifest.files.len(),
        bytes(length)
    );
    if !manifest.has_catalogue {
        text.push_str("The catalogue is not in it: back the PostgreSQL database up with pg_dump.\n");
    }
    Ok(text)
}

fn make(config: &Config, args: &BackupArgs, half: &Path) -> anyhow::Result<Manifest> {
    let now = SystemTime::now();
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(half);
    let file = file.with_context(|| format!("{} cannot be made", half.display()))?;
    let time = now.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut taker = Taker { writer: Writer::new(BufWriter::new(file), time), files: Vec::new() };
    taker.take(CONFIG, &args.config, None)?;
    let catalogue = config.state_dir.join(CATALOGUE);
    let has_catalogue = catalogue.exists();
    if has_catalogue {
        let copy = beside(half, ".farm.db");
        let taken = Catalogue::open_read_only(&catalogue)
            .and_then(|catalogue| catalogue.backup(&copy))
            .map_err(anyhow::Error::from)
            .and_then(|()| taker.take(CATALOGUE, &copy, None));
        // Best effort: it is a copy.
        let _ = std::fs::remove_file(&copy);
        taken?;
    }
    for path in contents::state_files(config)? {
        let name = format!("state/{}", path.display());
        // What has gone since was not needed: the files of a device that was deleted.
        taker.take_if_there(&name, &config.state_dir.join(path), None)?;
    }
    for (number, place) in contents::outside_files(config).into_iter().enumerate() {
        let base = place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        taker.take(&format!("files/{number}-{base}"), &place, Some(place.clone()))?;
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let manifest = Manifest {
        format: FORMAT.to_owned(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        made_at: humantime::format_rfc3339_seconds(now).to_string(),
        host: host.trim().to_owned(),
        config: std::path::absolute(&args.config)?,
        state_dir: config.state_dir.clone(),
        has_catalogue,
        files: taker.files,
    };
    let text = serde_json::to_vec_pretty(&manifest)?;
    let member = Member { name: MANIFEST.to_owned(), mode: 0o600, length: length_of(&text) };
    taker.writer.add(&member, text.as_slice())?;
    taker.writer.finish()?;
    Ok(manifest)
}

/// Takes files into an archive, and notes what it took.
struct Taker<W> {
    writer: Writer<W>,
    files: Vec<Entry>,
}

impl<W: Write> Taker<W> {
    fn take(&mut self, name: &str, path: &Path, place: Option<PathBuf>) -> anyhow::Result<()> {
        let taken = self.take_if_there(name, path, place)?;
        anyhow::ensure!(taken, "{} is not there", path.display());
        Ok(())
    }

    fn take_if_there(&mut self, name: &str, path: &Path, place: Option<PathBuf>) -> anyhow::Result<bool> {
        let failed = || format!("{} cannot be taken into the backup", path.display());
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error).with_context(failed),
        };
        // Of the open file: another may have been put in its place since.
        let facts = file.metadata().with_context(failed)?;
        let member = Member { name: name.to_owned(), mode: facts.permissions().mode(), length: facts.len() };
        let crc32c = self.writer.add(&member, file).with_context(failed)?;
        self.files.push(Entry { name: member.name, length: member.length, crc32c, place });
        Ok(true)
    }
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// `PATH` with something behind its name.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Gives a finished file its name; both are on the disk when this returns.
fn publish(finished: &Path, name: &Path) -> io::Result<()> {
    File::open(finished)?.sync_all()?;
    std::fs::rename(finished, name)?;
    sync_directory_of(name)
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
