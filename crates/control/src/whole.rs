//! The one object that everything goes through: the catalogue, the snapshot that follows it, and whom it tells.
use std::fmt;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use farm::catalogue::{Catalogue, CatalogueError, Change, Reader};
use farm::model::{ServerId, Timestamp};
use farm::rules::permission::Place;
use farm::snapshot::{SharedSnapshot, Snapshot};

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::notice::{Notice, Notices, Speaker};
use crate::room::Rooms;
use crate::tasks::{Board, Runner};
use crate::usage::Usages;

/// What tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How many tasks one server works on at once where nothing is said: they share one disk, as a rule.
const TASKS_AT_ONCE: NonZeroUsize = NonZeroUsize::new(2).unwrap();

/// What a server's [`Control`] is told.
#[derive(Clone)]
pub struct Options {
    /// Which server of the catalogue this one is.
    pub server: ServerId,
    /// The folder below which exports are made and imports are found; `None`: root alone can name folders.
    pub exchange: Option<PathBuf>,
    /// The folder of the write caches that it keeps; `None`: it is not told, and makes no versions of them.
    pub caches: Option<PathBuf>,
    /// How many tasks it works on at once.
    pub tasks_at_once: NonZeroUsize,
    /// The most bytes that one task moves in a second at first; `None`: as many as it can.
    pub task_rate: Option<NonZeroU64>,
    /// What tells the time.
    pub clock: Clock,
}

impl Options {
    /// As they are where nothing is said.
    #[must_use]
    pub fn of(server: ServerId) -> Self {
        let clock: Clock = Arc::new(|| SystemTime::now().into());
        Self { server, exchange: None, caches: None, tasks_at_once: TASKS_AT_ONCE, task_rate: None, clock }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, exchange, caches, tasks_at_once, task_rate, clock: _ } = self;
        let mut shown = f.debug_struct("Options");
        shown.field("server", server).field("exchange", exchange).field("tasks_at_once", tasks_at_once);
        shown.field("caches", caches).field("task_rate", task_rate);
        shown.finish_non_exhaustive()
    }
}

/// A server's hold on the farm. There is one for each server, for all threads. Its calls wait for disks and must not be
/// made on a thread that drives asynchronous work.
#[derive(Debug)]
pub struct Control {
    catalogue: Catalogue,
    snapshot: Arc<SharedSnapshot>,
    options: Options,
    speaker: Speaker,
    board: Board,
    rooms: Rooms,
    usages: Usages,
}

impl Control {
    /// On a catalogue and the snapshot that follows it, which boots are decided from.
    #[must_use]
    pub fn open(catalogue: Catalogue, snapshot: Arc<SharedSnapshot>, options: Options) -> Arc<Self> {
        let (speaker, board, rooms) = (Speaker::new(), Board::default(), Rooms::default());
        Arc::new(Self { catalogue, snapshot, options, speaker, board, rooms, usages: Usages::default() })
    }

    /// Begins to work on tasks and to keep house, on threads of its own. First it takes up what the last start of this
    /// server left behind. There is one runner of a server at a time.
    ///
    /// # Errors
    /// Threads cannot be made.
    pub fn start(self: &Arc<Self>) -> std::io::Result<Runner> {
        Runner::start(self)
    }

    /// The catalogue. Who changes it past [`change`](Self::change) must [`refresh`](Self::refresh).
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The present snapshot, which stays what it is for as long as it is held.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.get()
    }

    /// Which server of the catalogue this one is.
    #[must_use]
    pub fn server(&self) -> ServerId {
        self.options.server
    }

    /// Where this server stands, as far as rights go.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::of_site(self.snapshot().server(self.server()).map(|server| server.site))
    }

    /// What it was told.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    /// The news from now on.
    #[must_use]
    pub fn changes(&self) -> Notices {
        self.speaker.listen()
    }

    pub(crate) fn say(&self, notice: Notice) {
        self.speaker.say(notice);
    }

    pub(crate) fn known_rooms(&self) -> &Rooms {
        &self.rooms
    }

    pub(crate) fn known_usages(&self) -> &Usages {
        &self.usages
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    /// What this server does by itself, it does in this name.
    #[must_use]
    pub fn system(&self) -> Caller {
        let snapshot = self.snapshot();
        let name = snapshot.server(self.server()).map_or("this server", |server| server.name.as_str());
        Caller::system(name, self.now())
    }

    /// Reads one state of everything.
    ///
    /// # Errors
    /// What `work` says, or the database's.
    pub fn read<R>(
        &self,
        mut work: impl FnMut(&mut Reader<'_>) -> Result<R, ControlError>,
    ) -> Result<R, ControlError> {
        let mut said = None;
        let result = self.catalogue.read(|reader| keep(&mut said, work(reader)));
        told(said, result)
    }

    /// Changes what `work` says in the caller's name, all of it or nothing. When this returns, the shared snapshot has
    /// the change, and those who listen to [`changes`](Self::changes) were told.
    ///
    /// # Errors
    /// What `work` says, and nothing was changed; or the database's.
    pub fn change<R>(
        &self,
        by: &Caller,
        mut work: impl FnMut(&mut Change<'_>) -> Result<R, ControlError>,
    ) -> Result<R, ControlError> {
        let mut said = None;
        let result = self.catalogue.change(by.actor(), self.now(), |change| keep(&mut said, work(change)));
        let result = told(said, result)?;
        // The change is made. Where the database went just behind it, the snapshot follows when it is back.
        if let Err(error) = self.refresh() {
            tracing::warn!(%error, "the snapshot of the farm could not be refreshed after a change");
        }
        Ok(result)
    }

    /// As [`change`](Self::change), but nothing becomes true: tells what a change would do, or why it would fail.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn rehearse<R>(
        &self,
        by: &Caller,
        mut work: impl FnMut(&mut Change<'_>) -> Result<R, ControlError>,
    ) -> Result<R, ControlError> {
        let mut said = None;
        let result = self.catalogue.rehearse(by.actor(), self.now(), |change| keep(&mut said, work(change)));
        told(said, result)
    }

    /// Lets the snapshot follow what changed in the catalogue, by other servers as well; says whether anything did.
    ///
    /// # Errors
    /// The database's.
    pub fn refresh(&self) -> Result<bool, ControlError> {
        let Some(next) = self.snapshot.get().refreshed(&self.catalogue)? else { return Ok(false) };
        let change = next.change();
        self.snapshot.put(Arc::new(next));
        self.speaker.say(Notice::Changed(change));
        Ok(true)
    }
}

/// Keeps aside what the work said, where that is more than an error of the catalogue; any error undoes a transaction.
fn keep<R>(said: &mut Option<ControlError>, result: Result<R, ControlError>) -> Result<R, CatalogueError> {
    *said = None;
    result.map_err(|error| {
        *said = Some(error);
        CatalogueError::Rehearsed
    })
}

fn told<R>(said: Option<ControlError>, result: Result<R, CatalogueError>) -> Result<R, ControlError> {
    match (said, result) {
        (Some(error), Err(CatalogueError::Rehearsed)) => Err(error),
        (_, Err(CatalogueError::Rehearsed)) => {
            Err(ControlError::new(Code::Internal, "the change was undone without a reason"))
        }
        (_, result) => Ok(result?),
    }
}
