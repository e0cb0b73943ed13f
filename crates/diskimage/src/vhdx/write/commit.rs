//! Commits: what the tables say in memory becomes what the file says for good.
use block::ByteOffset;

use super::VhdxWriter;
use super::pages::Page;
use super::session::Session;
use super::space::Run;
use super::tables::punch;
use crate::storage::{StorageError, WritableStorage};

/// How many changed pages an operation may leave behind before it commits them itself: they fit into one entry of the
/// log.
pub(super) const MAX_CHANGED_PAGES: usize = 96;

/// What one commit takes along.
struct Taken {
    pages: Vec<(u64, Box<Page>)>,
    retired: Vec<Run>,
    /// How long the file was when it was taken.
    file_bytes: u64,
}

impl VhdxWriter {
    /// Makes lasting all that was done before.
    pub(super) fn commit(&self) -> Result<(), StorageError> {
        let mut session = self.session();
        self.commit_in(&mut session)
    }

    /// As [`commit`](Self::commit), and leaves no log behind that a reader would have to replay.
    pub(super) fn finish(&self) -> Result<(), StorageError> {
        let mut session = self.session();
        self.commit_in(&mut session)?;
        self.settle()?;
        if session.is_log_on() {
            self.storage.flush()?;
            session.turn_log_off(&*self.storage)?;
        }
        Ok(())
    }

    fn commit_in(&self, session: &mut Session) -> Result<(), StorageError> {
        // What the last commit could not bring to its place, the log still holds.
        self.settle()?;
        let taken = self.take();
        // Payload before the tables that point at it, and the pages of the last commit before its entries are given
        // up.
        let logged = self.storage.flush().and_then(|()| self.log(session, &taken));
        if let Err(error) = logged {
            let mut tables = self.tables_mut();
            tables.pages.restore();
            tables.space.restore_retired(&taken.retired);
            return Err(error);
        }
        self.reuse(&taken.retired);
        // The commit counts. Where its pages cannot be brought to their places (a full disk under a sparse file), the
        // next commit tries again before it does anything else.
        let _ = self.settle();
        Ok(())
    }

    fn take(&self) -> Taken {
        let mut tables = self.tables_mut();
        let mut pages = tables.pages.capture();
        let bat = tables.shape.bat;
        // Sector bitmaps first: should the log take them in two turns, and only one of them survive, a block is still
        // never said to be partially present before its bits are there.
        pages.sort_by_key(|(at, _)| (bat.at <= *at && *at < bat.end(), *at));
        Taken { pages, retired: tables.space.take_retired(), file_bytes: tables.file_bytes }
    }

    fn log(&self, session: &mut Session, taken: &Taken) -> Result<(), StorageError> {
        let mut rest = taken.pages.as_slice();
        while !rest.is_empty() {
            let logged = session.log(rest, taken.file_bytes, &*self.storage)?;
            let (head, tail) = rest.split_at_checked(logged).unwrap_or((rest, &[]));
            rest = tail;
            if !rest.is_empty() {
                // More than the ring holds: these have to be in the file before the next ones take their room.
                write_pages(head, &*self.storage)?;
                self.storage.flush()?;
                session.turn_log_off(&*self.storage)?;
            }
        }
        Ok(())
    }

    /// Brings the pages that the log holds to their places.
    fn settle(&self) -> Result<(), StorageError> {
        let pages = self.tables().pages.captured();
        write_pages(&pages, &*self.storage)?;
        if !pages.is_empty() {
            self.tables_mut().pages.settled();
        }
        Ok(())
    }

    /// Space that blocks have given up for good is free, and the file system may have it.
    fn reuse(&self, retired: &[Run]) {
        for run in retired {
            let end = run.at.saturating_add(run.length).min(self.storage.len().get());
            // A hint: who takes the space later expects anything in it.
            let _ = punch(run.at, end.saturating_sub(run.at), &*self.storage);
            self.tables_mut().space.give_back(*run);
        }
    }
}

fn write_pages(pages: &[(u64, Box<Page>)], storage: &dyn WritableStorage) -> Result<(), StorageError> {
    pages.iter().try_for_each(|(at, page)| storage.write_at(ByteOffset::new(*at), &**page))
}
