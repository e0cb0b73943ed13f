//! The files of boots: `<state>/boots/<device>/<boot>.json`, one for each, written whole and swapped in.
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::record::BootRecord;
use crate::state::write_atomically;

/// The largest file that is read: a record with all its steps has some 20 KB.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The most devices whose boots are listed.
const MAX_DEVICES: usize = 50_000;

/// The stored boots.
#[derive(Clone, Debug)]
pub struct BootStore {
    directory: PathBuf,
    kept: usize,
}

impl BootStore {
    /// The store below a state directory, which keeps `kept` boots for each device.
    #[must_use]
    pub fn new(state_dir: &Path, kept: usize) -> Self {
        Self { directory: state_dir.join("boots"), kept }
    }

    /// Where recorded traces are kept.
    pub(super) fn traces(&self) -> PathBuf {
        self.directory.with_file_name("traces")
    }

    /// Stores a boot; the device's oldest ones go.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn save(&self, record: &BootRecord) -> io::Result<()> {
        let directory = self.directory.join(file_name(&record.device)?);
        let path = directory.join(format!("{}.json", file_name(&record.id)?));
        let is_new = !path.exists();
        if is_new {
            fs::create_dir_all(&directory)?;
        }
        let mut text = serde_json::to_vec(record)?;
        text.push(b'\n');
        write_atomically(&path, &text)?;
        if is_new {
            let ids = self.ids(&record.device)?;
            for id in ids.iter().skip(self.kept) {
                fs::remove_file(directory.join(format!("{id}.json")))?;
            }
        }
        Ok(())
    }

    /// The ids of a device's boots, latest first.
    ///
    /// # Errors
    /// What the operating system said, but for a device without boots.
    pub fn ids(&self, device: &str) -> io::Result<Vec<String>> {
        let mut ids: Vec<String> = names(&self.directory.join(file_name(device)?))?
            .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
            .filter(|id| file_name(id).is_ok())
            .collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        Ok(ids)
    }

    /// The devices that have boots.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn devices(&self) -> io::Result<Vec<String>> {
        let mut devices: Vec<String> =
            names(&self.directory)?.filter(|name| file_name(name).is_ok()).take(MAX_DEVICES).collect();
        devices.sort_unstable();
        Ok(devices)
    }

    /// One boot; `None` where there is none.
    ///
    /// # Errors
    /// What the operating system said, or `InvalidData` for a file that holds no boot.
    pub fn load(&self, device: &str, id: &str) -> io::Result<Option<BootRecord>> {
        let path = self.directory.join(file_name(device)?).join(format!("{}.json", file_name(id)?));
        let file = match fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut text)?;
        let damaged =
            |error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()));
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// A device's boots, latest first; files that hold none are left out.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn boots(&self, device: &str) -> io::Result<Vec<BootRecord>> {
        let ids = self.ids(device)?;
        Ok(ids.iter().filter_map(|id| self.load(device, id).ok().flatten()).collect())
    }

    /// The boot with this id, of whatever device.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn find(&self, id: &str) -> io::Result<Option<BootRecord>> {
        for device in self.devices()? {
            if let Some(record) = self.load(&device, id)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

/// `name`, if it can be a file's: names come from command lines and requests, too.
fn file_name(name: &str) -> io::Result<&str> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=100).contains(&name.len()) && name.chars().all(legal) {
        return Ok(name);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{name:?} is neither a device's name nor a boot's id"),
    ))
}

fn names(directory: &Path) -> io::Result<impl Iterator<Item = String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => Some(entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Moment;

    fn record(device: &str, id: &str) -> BootRecord {
        BootRecord::begin(id, device, "debian", "iqn.2026-11.org.headwater:x", Moment::from_unix_us(7))
    }

    #[test]
    fn stored_boots_come_back_latest_first_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let store = BootStore::new(dir.path(), 2);
        for id in ["a1", "a2", "a3"] {
            store.save(&record("lab-01", id)).unwrap();
        }
        assert_eq!(store.ids("lab-01").unwrap(), ["a3", "a2"]);
        assert_eq!(store.find("a2").unwrap().unwrap(), record("lab-01", "a2"));
        assert_eq!(store.load("lab-01", "a1").unwrap(), None);
        assert_eq!(store.devices().unwrap(), ["lab-01"]);
    }

    #[test]
    fn names_that_would_leave_the_store_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = BootStore::new(dir.path(), 2);
        for name in ["..", "../x", "a/b", ""] {
            assert!(store.boots(name).is_err(), "{name}");
            assert!(store.load("lab-01", name).is_err(), "{name}");
        }
    }

    #[test]
    fn damaged_file_is_an_error_that_names_it_and_hides_no_other_boot() {
        let dir = tempfile::tempdir().unwrap();
        let store = BootStore::new(dir.path(), 9);
        store.save(&record("lab-01", "a1")).unwrap();
        fs::write(dir.path().join("boots/lab-01/a2.json"), "{").unwrap();
        assert!(store.load("lab-01", "a2").unwrap_err().to_string().contains("a2.json"));
        assert_eq!(store.boots("lab-01").unwrap().len(), 1);
    }
}
