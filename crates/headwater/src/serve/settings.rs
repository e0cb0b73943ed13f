//! Settings that were given other values than the configuration file says: kept over restarts, and put to work at once where
//! that can be.
//!
//! They lie in `settings.json` of the state directory, by their keys. What is there stands above the file; a value that the
//! server does not take any more (an interface that is gone) is left out with a warning, and never keeps it from starting.
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use api::host::{Effect, NewSettings, SettingStatus, SettingsStatus};
use control::{Code, ControlError};
use serde::{Deserialize, Serialize};

use super::logging;
use crate::config::{Config, Settable, SettingKey};
use crate::state::write_atomically;
use crate::stream::admission::Admission;
use crate::stream::devices::Devices;

/// The file in the state directory.
const FILE: &str = "settings.json";

/// The largest file that is read: all settings with the longest values.
const MAX_FILE_BYTES: u64 = 256 << 10;

/// The settings of a server.
pub struct Settings {
    path: PathBuf,
    /// What the configuration file and the command line say.
    configured: Settable,
    /// What the server started with.
    started: Settable,
    kept: Mutex<Kept>,
    targets: OnceLock<Targets>,
}

/// What new values are told to.
pub struct Targets {
    /// Who boots and who waits.
    pub admission: Arc<Admission>,
    /// The devices.
    pub devices: Arc<Devices>,
}

/// What is kept over restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    revision: i64,
    values: BTreeMap<String, String>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { revision: 1, values: BTreeMap::new() }
    }
}

impl Settings {
    /// The settings of a configuration, with what is kept in its state directory.
    #[must_use]
    pub fn open(config: Config) -> Self {
        let path = config.state_dir.join(FILE);
        let mut kept = read(&path).unwrap_or_else(|error| {
            tracing::warn!(file = %path.display(), %error, "settings cannot be read: the configuration file's count");
            Kept::default()
        });
        let configured = Settable { config, log: logging::configured() };
        let mut started = configured.clone();
        let keys = SettingKey::all(&configured.config);
        kept.values.retain(|name, value| {
            let Some(key) = keys.iter().find(|key| key.name() == *name) else {
                tracing::warn!(setting = name, "a setting is left out: there is no such key any more");
                return false;
            };
            key.put(&mut started, value)
                .inspect_err(|why| tracing::warn!(setting = name, why, "a setting is left out"))
                .is_ok()
        });
        logging::set(&started.log);
        Self { path, configured, started, kept: Mutex::new(kept), targets: OnceLock::new() }
    }

    /// What the server starts with.
    #[must_use]
    pub fn config(&self) -> Config {
        self.started.config.clone()
    }

    /// Who is told of new values from now on.
    pub fn tell(&self, targets: Targets) {
        // Nobody else sets it.
        let _ = self.targets.set(targets);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    #[must_use]
    pub fn status(&self) -> SettingsStatus {
        let kept = self.kept().clone();
        self.with(&kept).map_or_else(|_| SettingsStatus::default(), |values| self.told(&kept, &values))
    }

    /// Gives some other values, all or none; what they are then. With `dry_run` what they would be.
    ///
    /// # Errors
    /// [`Code::Stale`] where `expected` is not their revision, [`Code::BadValue`], [`Code::FileFailed`].
    pub fn change(
        &self,
        new: &NewSettings,
        expected: Option<i64>,
        dry_run: bool,
    ) -> Result<SettingsStatus, ControlError> {
        let mut kept = self.kept();
        if expected.is_some_and(|expected| expected != kept.revision) {
            let why = "somebody changed the settings since they were looked at";
            return Err(ControlError::new(Code::Stale, why).hint("read them again"));
        }
        let mut changed = kept.clone();
        for (key, value) in new {
            match value {
                Some(value) => changed.values.insert(key.clone(), value.trim().to_owned()),
                None => changed.values.remove(key),
            };
        }
        let known = SettingKey::all(&self.configured.config);
        if let Some(key) = new.keys().find(|key| !known.iter().any(|known| known.name() == **key)) {
            return Err(ControlError::bad_value(key, "there is no such setting"));
        }
        let values = self.with(&changed)?;
        if changed.values == kept.values {
            return Ok(self.told(&kept, &values));
        }
        changed.revision = changed.revision.saturating_add(1);
        if !dry_run {
            let failed = |error: io::Error| {
                ControlError::new(
                    Code::FileFailed,
                    format!("{} cannot be written: {error}", self.path.display()),
                )
            };
            let text = serde_json::to_vec_pretty(&changed).map_err(|error| failed(error.into()))?;
            write_atomically(&self.path, &text).map_err(failed)?;
            *kept = changed.clone();
            self.put_to_work(&values);
        }
        Ok(self.told(&changed, &values))
    }

    /// What the file says, with what is kept above it.
    fn with(&self, kept: &Kept) -> Result<Settable, ControlError> {
        let mut values = self.configured.clone();
        for key in SettingKey::all(&self.configured.config) {
            let name = key.name();
            if let Some(value) = kept.values.get(&name) {
                key.put(&mut values, value).map_err(|why| ControlError::bad_value(&name, why))?;
            }
        }
        Ok(values)
    }

    fn put_to_work(&self, values: &Settable) {
        logging::set(&values.log);
        if let Some(Targets { admission, devices }) = self.targets.get() {
            admission.queue().set_rules(values.config.admission);
            devices.set_limits(values.config.limits);
        }
    }

    fn told(&self, kept: &Kept, values: &Settable) -> SettingsStatus {
        let item = |key: SettingKey| {
            let (name, value, effect) = (key.name(), key.get(values), key.effect());
            let running = if effect == Effect::NextStart { key.get(&self.started) } else { value.clone() };
            SettingStatus {
                changed: kept.values.contains_key(&name),
                key: name,
                value,
                configured: key.get(&self.configured),
                running,
                effect,
                says: key.says().to_owned(),
            }
        };
        let items = SettingKey::all(&self.configured.config).into_iter().map(item).collect();
        SettingsStatus { revision: kept.revision, items }
    }
}

fn read(path: &Path) -> io::Result<Kept> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(error) => return Err(error),
        Ok(about) if about.len() > MAX_FILE_BYTES => {
            return Err(io::Error::other(format!(
                "it has {} bytes; the limit is {MAX_FILE_BYTES}",
                about.len()
            )));
        }
        Ok(_) => {}
    }
    let kept: Kept = serde_json::from_slice(&std::fs::read(path)?)?;
    // Revisions begin with 1.
    Ok(Kept { revision: kept.revision.max(1), ..kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, text: &str) -> Settings {
        let text = format!("state_dir = {:?}\n{text}", folder.display().to_string());
        Settings::open(crate::config::parse(&text, Path::new("headwater.toml")).unwrap())
    }

    fn new(pairs: &[(&str, Option<&str>)]) -> NewSettings {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect()
    }

    fn item(status: &SettingsStatus, key: &str) -> SettingStatus {
        status.items.iter().find(|item| item.key == key).unwrap().clone()
    }

    #[test]
    fn value_stands_above_the_file_over_a_restart_until_it_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = "boots_kept = 20\n[admission]\nat_once = 5\n";
        let settings = open(folder.path(), file);
        let changed = settings.change(
            &new(&[("admission.at_once", Some("7")), ("boots_kept", Some("30"))]),
            Some(1),
            false,
        );
        let changed = changed.unwrap();
        assert_eq!(changed.revision, 2);
        let kept = item(&changed, "boots_kept");
        assert_eq!(
            (kept.value.as_str(), kept.running.as_str(), kept.configured.as_str()),
            ("30", "20", "20")
        );
        let places = item(&changed, "admission.at_once");
        assert_eq!((places.value.as_str(), places.running.as_str(), places.changed), ("7", "7", true));

        let again = open(folder.path(), file);
        assert_eq!(again.config().boots_kept, 30);
        assert_eq!(item(&again.status(), "boots_kept").running, "30");
        again.change(&new(&[("boots_kept", None)]), None, false).unwrap();
        assert_eq!(open(folder.path(), file).config().boots_kept, 20);
    }

    #[test]
    fn change_for_another_revision_or_with_one_bad_value_does_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let settings = open(folder.path(), "");
        let good = new(&[("admission.at_once", Some("7"))]);
        assert_eq!(settings.change(&good, Some(9), false).unwrap_err().code, Code::Stale);
        let half = new(&[("admission.at_once", Some("7")), ("boots_kept", Some("none"))]);
        let refused = settings.change(&half, None, false).unwrap_err();
        assert_eq!((refused.code, refused.field.as_deref()), (Code::BadValue, Some("boots_kept")));
        let strange = settings.change(&new(&[("state_dir", Some("/tmp"))]), None, false).unwrap_err();
        assert_eq!(strange.field.as_deref(), Some("state_dir"));
        let rehearsed = settings.change(&good, Some(1), true).unwrap();
        assert_eq!(item(&rehearsed, "admission.at_once").value, "7");
        assert_eq!((settings.status().revision, folder.path().join(FILE).exists()), (1, false));
    }

    #[test]
    fn damaged_file_or_value_does_not_keep_the_server_from_starting() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), "nonsense").unwrap();
        assert_eq!(open(folder.path(), "").status().revision, 1);
        let text = r#"{"revision":5,"values":{"boots_kept":"-3","admission.at_once":"4","gone":"1"}}"#;
        std::fs::write(folder.path().join(FILE), text).unwrap();
        let status = open(folder.path(), "").status();
        assert_eq!(item(&status, "boots_kept").value, "50");
        assert_eq!((item(&status, "admission.at_once").value.as_str(), status.revision), ("4", 5));
    }
}
