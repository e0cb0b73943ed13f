//! `headwater restore`.
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use farm::catalogue::{SCHEMA, look};

use super::archive::{Member, Reader};
use super::contents::{
    CATALOGUE, CONFIG, FORMAT, MANIFEST, MAX_FILES, MAX_MANIFEST_BYTES, Manifest, belongs, outside_files,
    state_files,
};
use super::{beside, sync_directory_of};
use crate::cli::RestoreArgs;
use crate::columns::bytes;
use crate::config::{Config, MAX_FILE_BYTES, parse};

/// A backup that was read to its end, and is what its manifest says.
struct Backup {
    manifest: Manifest,
    config_text: String,
    config: Config,
}

/// Runs the command; what it prints.
///
/// # Errors
/// In words for the administrator.
pub fn run(args: &RestoreArgs) -> anyhow::Result<String> {
    let named = |error: anyhow::Error| error.context(format!("{} cannot be restored", args.file.display()));
    let backup = read(&args.file).map_err(named)?;
    let manifest = &backup.manifest;
    let config_path = args.config.clone().unwrap_or_else(|| manifest.config.clone());
    let length: u64 = manifest.files.iter().map(|file| file.length).fold(0, u64::saturating_add);
    let about = format!(
        "{}: {} files, {}, made at {} on {} by headwater {}\n",
        args.file.display(),
        manifest.files.len(),
        bytes(length),
        manifest.made_at,
        manifest.host,
        manifest.program
    );
    if args.check {
        return Ok(about + "All of it is there and as it was written.\n");
    }
    refuse_while_served(&backup.config, &config_path)?;
    let living = [config_path.clone(), backup.config.state_dir.join(CATALOGUE)];
    if let Some(living) = living.iter().find(|path| path.exists())
        && !args.force
    {
        bail!(
            "{} exists: there is a farm here already. --force moves what is here aside and puts the backup in its place",
            living.display()
        );
    }
    let restored = restore(args, &backup, &config_path).map_err(named)?;
    Ok(about + &restored)
}

/// Reads a backup to its end.
fn read(path: &Path) -> anyhow::Result<Backup> {
    let mut reader = Reader::new(BufReader::new(File::open(path)?));
    let mut found = BTreeMap::new();
    let (mut config_text, mut manifest) = (None, None);
    while let Some(member) = reader.next().map_err(cut_off)? {
        ensure!(manifest.is_none(), "it goes on behind its manifest");
        ensure!(found.len() < MAX_FILES, "it has more than {MAX_FILES} files");
        let text = |limit: u64, reader: &mut Reader<_>| {
            ensure!(
                member.length <= limit,
                "{} has {} bytes, and {limit} is the most",
                member.name,
                member.length
            );
            let mut text = Vec::new();
            let crc = reader.contents(&member, &mut text).map_err(cut_off)?;
            Ok((crc, String::from_utf8(text).with_context(|| format!("{} is not UTF-8", member.name))?))
        };
        let crc = match member.name.as_str() {
            MANIFEST => {
                let (_, text) = text(MAX_MANIFEST_BYTES, &mut reader)?;
                let read: Manifest = serde_json::from_str(&text).context("its manifest cannot be read")?;
                manifest = Some(read);
                continue;
            }
            CONFIG => {
                let (crc, text) = text(MAX_FILE_BYTES, &mut reader)?;
                config_text = Some(text);
                crc
            }
            _ => reader.contents(&member, io::sink()).map_err(cut_off)?,
        };
        let before = found.insert(member.name.clone(), (member.length, crc));
        ensure!(before.is_none(), "it has {} twice", member.name);
    }
    let manifest = manifest.context("it has no manifest: it is no backup of headwater")?;
    let config_text = config_text.context("it has no configuration")?;
    let config = parse(&config_text, Path::new(CONFIG))?;
    check(&manifest, &found, &config)?;
    Ok(Backup { manifest, config_text, config })
}

fn cut_off(error: io::Error) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => anyhow::anyhow!("it was cut off: take another backup"),
        _ => error.into(),
    }
}

/// Compares what is there with what should be, and where it wants to go with where it may.
fn check(manifest: &Manifest, found: &BTreeMap<String, (u64, u32)>, config: &Config) -> anyhow::Result<()> {
    ensure!(
        manifest.format == FORMAT,
        "it is in the format \"{}\", and this program reads \"{FORMAT}\"",
        manifest.format
    );
    ensure!(
        manifest.files.len() == found.len(),
        "it has {} files, and should have {}",
        found.len(),
        manifest.files.len()
    );
    let outside = outside_files(config);
    for file in &manifest.files {
        let (length, crc) = found.get(&file.name).with_context(|| format!("{} is not in it", file.name))?;
        ensure!(
            (*length, *crc) == (file.length, file.crc32c),
            "{} in it is damaged: take another backup",
            file.name
        );
        let allowed = match (file.name.split_once('/'), &file.place) {
            (None, None) => [CONFIG, CATALOGUE].contains(&file.name.as_str()),
            (Some(("state", path)), None) => belongs(config, Path::new(path)),
            (Some(("files", _)), Some(place)) => outside.contains(place),
            _ => false,
        };
        ensure!(allowed, "{} in it belongs nowhere", file.name);
    }
    ensure!(
        manifest.has_catalogue == found.contains_key(CATALOGUE),
        "its manifest disagrees with it about the catalogue"
    );
    Ok(())
}

/// A server that runs would write over what is restored, and go on with what it has in memory.
fn refuse_while_served(config: &Config, config_path: &Path) -> anyhow::Result<()> {
    let present = Config::load(config_path).ok();
    let sockets = std::iter::once(config).chain(&present).map(|config| &config.admin_socket);
    for socket in sockets {
        if UnixStream::connect(socket).is_ok() {
            bail!(
                "a server runs here (it answers on {}): stop it first (systemctl stop headwater)",
                socket.display()
            );
        }
    }
    Ok(())
}

fn restore(args: &RestoreArgs, backup: &Backup, config_path: &Path) -> anyhow::Result<String> {
    let state = &backup.config.state_dir;
    let stamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let staged = state.join(format!("restoring-{stamp}"));
    let aside = state.join(format!("before-restore-{stamp}"));
    fs::create_dir_all(&staged).with_context(|| format!("{} cannot be made", staged.display()))?;
    let result = stage(&args.file, backup, &staged).and_then(|()| {
        let moved = swap(backup, config_path, &staged, &aside)?;
        Ok(moved)
    });
    // Best effort; backups leave such directories out.
    let _ = fs::remove_dir_all(&staged);
    let moved = result?;
    let mut text = format!("restored to {} and {}\n", config_path.display(), state.display());
    if moved > 0 {
        text.push_str(&format!("What was there was moved to {}: {moved} files.\n", aside.display()));
    }
    if !backup.manifest.has_catalogue {
        text.push_str("The catalogue was not in it: restore the PostgreSQL database.\n");
    }
    text.push_str(
        "Versions made since the backup are not in the catalogue; \"headwater doctor\" lists their files.\n\
         Next: headwater doctor; systemctl start headwater (and restart the farm's other servers)\n",
    );
    Ok(text)
}

/// Unpacks all of it beside where it is to go, on the disk.
fn stage(file: &Path, backup: &Backup, staged: &Path) -> anyhow::Result<()> {
    let expected: BTreeMap<&str, u32> =
        backup.manifest.files.iter().map(|file| (file.name.as_str(), file.crc32c)).collect();
    let mut reader = Reader::new(BufReader::new(File::open(file)?));
    while let Some(member) = reader.next().map_err(cut_off)?.filter(|member| member.name != MANIFEST) {
        let Some(crc) = expected.get(member.name.as_str()) else { bail!("it has changed meanwhile") };
        let path = staged.join(&member.name);
        let written = unpack(&mut reader, &member, &path);
        let found = written.with_context(|| format!("{} cannot be written", path.display()))?;
        ensure!(found == *crc, "it has changed meanwhile");
    }
    if backup.manifest.has_catalogue {
        let looked = look(&staged.join(CATALOGUE))?;
        ensure!(looked.faults.is_empty(), "the catalogue in it is damaged: {}", looked.faults.join("; "));
        ensure!(
            looked.schema <= SCHEMA,
            "the catalogue in it has schema {}, and this program knows schemas up to {SCHEMA}: restore it with the \
             version of headwater that made it ({})",
            looked.schema,
            backup.manifest.program
        );
    }
    Ok(())
}

fn unpack(reader: &mut Reader<impl io::Read>, member: &Member, path: &Path) -> io::Result<u32> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::options().write(true).create_new(true).mode(member.mode).open(path)?;
    let crc = reader.contents(member, &mut file)?;
    file.flush()?;
    file.sync_all()?;
    Ok(crc)
}

/// Moves what is there aside, and the backup in its place; how many files were moved aside. The catalogue comes last:
/// without it, no server starts on half a restore.
fn swap(backup: &Backup, config_path: &Path, staged: &Path, aside: &Path) -> anyhow::Result<usize> {
    let state = &backup.config.state_dir;
    let mut moves: Vec<(PathBuf, PathBuf)> = Vec::new();
    for name in [CATALOGUE.to_owned(), format!("{CATALOGUE}-wal"), format!("{CATALOGUE}-shm")] {
        moves.push((state.join(&name), aside.join(name)));
    }
    for path in state_files(&backup.config)? {
        moves.push((state.join(&path), aside.join("state").join(path)));
    }
    moves.push((config_path.to_owned(), aside.join(CONFIG)));
    let placed: Vec<_> =
        backup.manifest.files.iter().filter_map(|file| Some((file, file.place.as_ref()?))).collect();
    for (file, place) in &placed {
        moves.push(((*place).clone(), aside.join(&file.name)));
    }
    let mut moved = 0_usize;
    for (from, to) in moves.iter().filter(|(from, _)| from.exists()) {
        carry(from, to)?;
        moved = moved.saturating_add(1);
    }
    for file in backup.manifest.files.iter().filter(|file| file.name.starts_with("state/")) {
        carry(&staged.join(&file.name), &state.join(file.name.trim_start_matches("state/")))?;
    }
    for (file, place) in &placed {
        carry(&staged.join(&file.name), place)?;
    }
    // What it says is what was checked; a copy, since the two may lie on different file systems.
    write_config(config_path, &backup.config_text)?;
    if backup.manifest.has_catalogue {
        carry(&staged.join(CATALOGUE), &state.join(CATALOGUE))?;
    }
    Ok(moved)
}

fn write_config(path: &Path, text: &str) -> anyhow::Result<()> {
    let write = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let half = beside(path, ".new");
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&half)?;
        file.write_all(text.as_bytes())?;
        super::publish(&half, path)
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

/// Moves a file, to another file system if need be.
fn carry(from: &Path, to: &Path) -> anyhow::Result<()> {
    let carry = || {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        match fs::rename(from, to) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                let half = beside(to, ".new");
                fs::copy(from, &half)?;
                super::publish(&half, to)?;
                fs::remove_file(from)
            }
            other => other.and_then(|()| sync_directory_of(to)),
        }
    };
    carry().with_context(|| format!("{} cannot be moved to {}", from.display(), to.display()))
}
