//! What must outlive a restart of the server: small files, written whole and swapped in.
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::DeviceName;
use crate::stream::boot_disk::BootDisk;
use crate::stream::menu::Picked;

/// The largest state file that is read.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// What is remembered of a device: which of its boots counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    /// The boot that its write cache belongs to.
    pub current: Option<String>,
    /// Boots whose scripts were handed out since, and that nobody has logged in to, oldest first.
    pub handed_out: Vec<String>,
    /// What was picked in the boot menu for those of them that are not what boots without a choice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub picked: BTreeMap<String, Picked>,
    /// What the current boot runs on. None: it began before that was remembered.
    #[serde(default)]
    pub disk: Option<BootDisk>,
    /// The current boot writes its vDisk itself, and what it wrote last may be in the server's memory alone.
    #[serde(default)]
    pub unsettled: bool,
    /// The boot that has been told its secrets.
    #[serde(default)]
    pub secrets_told: Option<String>,
}

/// The devices' files, `<state>/devices/<device>.json`.
#[derive(Clone, Debug)]
pub struct DeviceStates {
    directory: PathBuf,
}

impl DeviceStates {
    /// The files below a state directory.
    #[must_use]
    pub fn new(state_dir: &Path) -> Self {
        Self { directory: state_dir.join("devices") }
    }

    /// What is remembered of a device; nothing where there is no file.
    ///
    /// # Errors
    /// What the operating system said, or `InvalidData`, with the file's name.
    pub fn load(&self, device: &DeviceName) -> io::Result<DeviceState> {
        let path = self.path(device);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DeviceState::default()),
            Err(error) => return Err(named(error)),
        };
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(named)?;
        serde_json::from_slice(&text).map_err(|error| named(error.into()))
    }

    /// Remembers it; when this returns it survives a crash of the host.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn save(&self, device: &DeviceName, state: &DeviceState) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        write_atomically(&self.path(device), &serde_json::to_vec(state)?)
    }

    fn path(&self, device: &DeviceName) -> PathBuf {
        self.directory.join(format!("{device}.json"))
    }
}

/// Writes a file so that a crash at any point leaves either the old contents or the new: a temporary file beside it,
/// made lasting, then renamed, then the directory made lasting.
///
/// # Errors
/// What the operating system said.
pub fn write_atomically(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let mut file = File::create(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_survives_a_restart_and_damage_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let states = DeviceStates::new(dir.path());
        let device = DeviceName::parse("lab-01").unwrap();
        assert_eq!(states.load(&device).unwrap(), DeviceState::default());
        let picked = Picked { vdisk: farm::model::Id::new(7).unwrap(), version: None };
        let state = DeviceState {
            current: Some("b1".into()),
            handed_out: vec!["b2".into()],
            picked: BTreeMap::from([("b2".into(), picked)]),
            disk: None,
            unsettled: true,
            secrets_told: Some("b1".into()),
        };
        states.save(&device, &state).unwrap();
        assert_eq!(DeviceStates::new(dir.path()).load(&device).unwrap(), state);
        fs::write(dir.path().join("devices/lab-01.json"), "nonsense").unwrap();
        let error = states.load(&device).unwrap_err();
        assert!(error.to_string().contains("devices/lab-01.json"), "{error}");
    }
}
