//! What a repair does, once the check has said what may be done.
//!
//! The order is that of any writer: the headers first say that the file is changed (which also restores a damaged one),
//! then the log comes to its places and is turned off, and only then the rest changes, which no log entry speaks of any
//! more. A crash in between leaves a file that the next repair mends. The disk's contents stay what they were, and with
//! them the `DataWriteGuid` that children hold on to.
use block::{ByteLength, ByteOffset};

use super::super::header::Header;
use super::super::overlay::Overlay;
use super::super::write::{Session, Touched, replay_into};
use crate::error::Refusal;
use crate::storage::WritableStorage;

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Mending {
    /// The header that counts, and its place. Without one, nothing is touched.
    header: Option<(Header, u64)>,
    /// Whether the other header is damaged.
    is_header_lost: bool,
    /// The log's changes.
    pub(super) overlay: Option<Overlay>,
    /// The place of a damaged copy of the region table, and the sound one's bytes.
    pub(super) region_table: Option<(u64, Vec<u8>)>,
    /// Where the file shall end.
    pub(super) end: Option<u64>,
}

impl Mending {
    /// Allows changes of a file whose header and log are understood.
    pub(super) fn begin(&mut self, header: Header, at: u64, is_header_lost: bool) {
        self.header = Some((header, at));
        self.is_header_lost = is_header_lost;
    }

    pub(super) fn is_begun(&self) -> bool {
        self.header.is_some()
    }

    /// Does it. A file with nothing to mend is not touched.
    pub(super) fn apply(self, storage: &dyn WritableStorage) -> Result<(), Refusal> {
        let Self { header: Some((header, at)), is_header_lost, overlay, region_table, end } = self else {
            return Ok(());
        };
        if !is_header_lost && overlay.is_none() && region_table.is_none() && end.is_none() {
            return Ok(());
        }
        let mut session = Session::new(&header, at)?;
        session.touch(Touched::File, storage)?;
        if let Some(overlay) = &overlay {
            replay_into(storage, overlay, &mut session)?;
        }
        if let Some((at, bytes)) = region_table {
            storage.write_at(ByteOffset::new(at), &bytes)?;
        }
        if let Some(end) = end {
            storage.set_len(ByteLength::new(end))?;
        }
        storage.flush()?;
        Ok(())
    }
}
