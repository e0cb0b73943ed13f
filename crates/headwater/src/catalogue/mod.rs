//! The server's end of the farm's catalogue: opened, filled with what the configuration names, followed, and done without
//! while it is gone.
//!
//! Boots are decided from a [snapshot](farm::snapshot) in memory. It follows the catalogue within a second, and is written to
//! a file whenever it changed; where the database cannot be had at the start, that file is what is served from. Meanwhile
//! nothing can be changed or leased exclusively, and it is tried again and again to come back.
pub mod import;
mod kept_out;
pub mod leases;
pub mod local;
mod open;
pub mod survey;

pub use open::server_name;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use control::tasks::Runner;
use control::{Control, Options};
use farm::catalogue::{Catalogue, CatalogueError, Change, DatabaseError};
use farm::model::{ChangeNumber, ServerId, Timestamp};
use farm::snapshot::{SharedSnapshot, Snapshot, stored};

use crate::config::Config;

/// How often a database that is gone is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// How often the last known state is written at most.
const STORE_EVERY: Duration = Duration::from_secs(5);

/// The farm's catalogue as this server has it.
pub struct FarmLink {
    config: Arc<Config>,
    server: ServerId,
    snapshot: Arc<SharedSnapshot>,
    /// `None` while the database could not be opened.
    control: RwLock<Option<Arc<Control>>>,
    /// Works on tasks.
    runner: Mutex<Option<Runner>>,
    follower: Mutex<Follower>,
    /// Why the database cannot be used; `None`: it can.
    trouble: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Follower {
    /// What the file of the last known state holds.
    stored: ChangeNumber,
    stored_at: Option<Instant>,
    tried_at: Option<Instant>,
}

/// The time as the farm counts it.
#[must_use]
pub fn now() -> Timestamp {
    SystemTime::now().into()
}

impl FarmLink {
    /// Opens the catalogue, makes this server's place in it and imports what the configuration names; or, where the
    /// database cannot be had, takes the last known state.
    ///
    /// # Errors
    /// An image of the configuration that cannot be used; or there is neither the database nor a last known state.
    pub fn open(config: Arc<Config>) -> anyhow::Result<Arc<Self>> {
        let found = survey::survey(&config)?;
        let link = match open::open(&config, &found) {
            Ok((catalogue, server)) => {
                let snapshot = Snapshot::load(&catalogue)?;
                Self::new(config, server, snapshot, Some(catalogue), None)
            }
            Err(error) => {
                let (snapshot, server) = open::last_known(&config, &error)?;
                let trouble = format!("{error:#}");
                tracing::error!(
                    error = trouble,
                    last_change = %snapshot.change(),
                    "the farm's database cannot be used: known devices boot from the last known state, nothing can be changed"
                );
                Self::new(config, server, snapshot, None, Some(trouble))
            }
        };
        link.store(true);
        Ok(Arc::new(link))
    }

    fn new(
        config: Arc<Config>,
        server: ServerId,
        snapshot: Snapshot,
        catalogue: Option<Catalogue>,
        trouble: Option<String>,
    ) -> Self {
        let snapshot = Arc::new(SharedSnapshot::new(snapshot));
        let control = catalogue.map(|catalogue| in_control(&config, catalogue, &snapshot, server));
        Self {
            config,
            server,
            snapshot,
            control: RwLock::new(control),
            runner: Mutex::default(),
            follower: Mutex::default(),
            trouble: Mutex::new(trouble),
        }
    }

    /// What boots are decided from now.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.get()
    }

    /// This server.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.server
    }

    /// Why the database cannot be used; `None`: it can.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What administrators do goes through it; `None` while the database could not be opened.
    #[must_use]
    pub fn control(&self) -> Option<Arc<Control>> {
        self.control.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins to work on tasks, as soon as there is a catalogue.
    fn work(&self) {
        let mut runner = self.runner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(control) = self.control().filter(|_| runner.is_none()) else { return };
        match control.start() {
            Ok(started) => *runner = Some(started),
            Err(error) => tracing::error!(%error, "tasks cannot be worked on"),
        }
    }

    /// Changes the catalogue in the name of this server. The snapshot knows of it when this returns. Waits for the database.
    ///
    /// # Errors
    /// What `work` says, or the database's.
    pub fn change<R>(
        &self,
        work: impl FnMut(&mut Change<'_>) -> Result<R, CatalogueError>,
    ) -> Result<R, CatalogueError> {
        let control = self.control().ok_or_else(|| DatabaseError::Unavailable {
            database: "of the farm".to_owned(),
            why: self.trouble().unwrap_or_else(|| "it is not open".to_owned()),
        })?;
        let done = control.catalogue().change(control.system().actor(), control.now(), work)?;
        // The change is made. Where the database went just behind it, the snapshot follows when it is back.
        if let Err(error) = control.refresh() {
            tracing::warn!(%error, "the snapshot of the farm could not be refreshed after a change");
        }
        Ok(done)
    }

    /// Follows what was changed by others, tries a database again that was gone, sees to it that tasks are worked on, and
    /// stores the last known state. To be called about once a second; waits for the database.
    pub fn tick(&self) {
        let outcome = match self.control() {
            Some(control) => control.refresh().map(drop).map_err(anyhow::Error::from),
            None => self.try_again(),
        };
        let trouble = outcome.err().map(|error| format!("{error:#}"));
        let before = {
            let mut present = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *present, trouble.clone())
        };
        match (before, trouble) {
            (None, Some(error)) => tracing::error!(
                error,
                "the farm's database cannot be used: devices boot from what was known last, nothing can be changed"
            ),
            (Some(_), None) => tracing::info!("the farm's database can be used again"),
            _ => {}
        }
        self.work();
        self.store(false);
    }

    /// Opens a database that could not be opened at the start.
    fn try_again(&self) -> anyhow::Result<()> {
        {
            let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
            if follower.tried_at.is_some_and(|at| at.elapsed() < TRY_AGAIN) {
                anyhow::bail!(self.trouble().unwrap_or_default());
            }
            follower.tried_at = Some(Instant::now());
        }
        let (catalogue, server) = open::open(&self.config, &survey::survey(&self.config)?)?;
        anyhow::ensure!(
            server == self.server,
            "it is another farm's, which does not know this server: restart"
        );
        let control = in_control(&self.config, catalogue, &self.snapshot, server);
        control.refresh()?;
        *self.control.write().unwrap_or_else(PoisonError::into_inner) = Some(control);
        Ok(())
    }

    /// Writes the last known state, where it is another than the one that was written.
    fn store(&self, at_once: bool) {
        let snapshot = self.snapshot();
        let mut follower = self.follower.lock().unwrap_or_else(PoisonError::into_inner);
        let early = follower.stored_at.is_some_and(|at| at.elapsed() < STORE_EVERY);
        if follower.stored == snapshot.change() || (early && !at_once) {
            return;
        }
        follower.stored_at = Some(Instant::now());
        match stored::save(&snapshot, &last_known_path(&self.config)) {
            Ok(()) => follower.stored = snapshot.change(),
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, source, "boots could not be decided without the database");
            }
        }
    }

    /// Ends the work on tasks, which the next start takes up again, and stores the last known state.
    pub fn close(&self) {
        drop(self.runner.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.store(true);
    }
}

impl std::fmt::Debug for FarmLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FarmLink").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Where the last known state lies.
fn last_known_path(config: &Config) -> PathBuf {
    config.state_dir.join("farm.last")
}

fn in_control(
    config: &Config,
    catalogue: Catalogue,
    snapshot: &Arc<SharedSnapshot>,
    server: ServerId,
) -> Arc<Control> {
    let exchange = Some(config.state_dir.join("exchange"));
    let caches = Some(config.write_cache.directory.clone());
    Control::open(catalogue, Arc::clone(snapshot), Options { exchange, caches, ..Options::of(server) })
}
