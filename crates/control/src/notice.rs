//! Telling whoever follows the farm that there is news: where to read it, not what it is. Who falls behind loses
//! nothing, since all of it stands in the catalogue.
use farm::model::{ChangeNumber, TaskId};
use tokio::sync::broadcast;

/// How many notices wait for a slow listener; after more, it is told that it missed some, and reads from where it was.
pub const MAX_WAITING_NOTICES: usize = 1024;

/// There is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The catalogue changed: audit entries up to this number are there to be read, and the shared snapshot is no
    /// older.
    Changed(ChangeNumber),
    /// A task got on, or its log has a new line: neither is audited.
    Progress(TaskId),
}

/// What a listener reads from.
pub type Notices = broadcast::Receiver<Notice>;

/// The speaking side.
#[derive(Debug)]
pub(crate) struct Speaker(broadcast::Sender<Notice>);

impl Speaker {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(MAX_WAITING_NOTICES))
    }

    /// Tells those who listen; nobody need.
    pub(crate) fn say(&self, notice: Notice) {
        let _nobody_listens = self.0.send(notice);
    }

    pub(crate) fn listen(&self) -> Notices {
        self.0.subscribe()
    }
}
