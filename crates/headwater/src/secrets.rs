//! The CHAP secrets of devices that stand in the catalogue alone, by their names.
//!
//! The catalogue has no secrets, and so have neither its audit, nor tables of devices, nor what a PostgreSQL server keeps: a
//! device says under which name its secret is kept. The secrets themselves lie in the state directory of each server that
//! serves such devices, in a file that its owner alone may read; `headwater backup` saves it.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The file in the state directory.
const FILE: &str = "chap-secrets.json";

/// The largest file that is read: ten thousand secrets of the longest kind.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// The secrets of this server.
pub struct Secrets {
    path: PathBuf,
    known: Mutex<BTreeMap<String, String>>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Secrets {
    /// Those below a state directory; none where there is no file.
    ///
    /// # Errors
    /// What the operating system said, or `InvalidData`, with the file's name.
    pub fn load(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join(FILE);
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let known = match File::open(&path) {
            Ok(file) => {
                let mut text = Vec::new();
                file.take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(named)?;
                serde_json::from_slice(&text).map_err(|error| named(error.into()))?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(named(error)),
        };
        Ok(Self { path, known: Mutex::new(known) })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The secret of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        self.known().get(name).cloned()
    }

    /// The names of all of them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.known().keys().cloned().collect()
    }

    /// Keeps a secret under a name, or with `None` forgets it; whether there was one. When this returns it survives a crash
    /// of the host.
    ///
    /// # Errors
    /// What the operating system said: all is as before.
    pub fn keep(&self, name: &str, secret: Option<&str>) -> io::Result<bool> {
        let mut known = self.known();
        let mut new = known.clone();
        let old = match secret {
            Some(secret) => new.insert(name.to_owned(), secret.to_owned()),
            None => new.remove(name),
        };
        let temporary = self.path.with_extension("json.new");
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&serde_json::to_vec(&new)?)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &self.path)?;
        if let Some(folder) = self.path.parent() {
            File::open(folder)?.sync_all()?;
        }
        *known = new;
        Ok(old.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_outlive_the_server_and_nobody_else_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::load(folder.path()).unwrap();
        assert!(!secrets.keep("lab", Some("three walnut boats")).unwrap());
        assert!(secrets.keep("lab", Some("four walnut boats")).unwrap());
        assert!(!secrets.keep("hall", Some("five walnut boats")).unwrap());
        let again = Secrets::load(folder.path()).unwrap();
        assert_eq!((again.get("lab").as_deref(), again.names().len()), (Some("four walnut boats"), 2));
        assert!(again.keep("lab", None).unwrap() && !again.keep("lab", None).unwrap());
        assert_eq!(Secrets::load(folder.path()).unwrap().names(), ["hall"]);
        let path = folder.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!format!("{again:?}").contains("walnut"));
        std::fs::write(&path, "nonsense").unwrap();
        assert!(Secrets::load(folder.path()).unwrap_err().to_string().contains(FILE));
    }
}
