//! Opening a file for writing: what a reader checks, what only a writer has to know, and the replay of a log into the
//! file.
use std::sync::Arc;

use block::{ByteLength, ByteOffset, Patience};

use super::super::header::{self, Header};
use super::super::log::SECTOR_BYTES;
use super::super::overlay::{Overlaid, Overlay, Piece};
use super::super::region::RegionTable;
use super::super::{MIB, Metadata, Owned, check_disjoint, file_type, replay};
use super::pages::{Pages, page_of};
use super::session::{Session, Touched};
use super::shape::Shape;
use super::space::Space;
use super::tables::{Entry, State, Tables, punch};
use crate::error::{Damage, Refusal};
use crate::mutable::Below;
use crate::storage::{Storage, StorageError, WritableStorage};
use crate::table::claims_overlap;

/// Tables up to this size are read through when a file is opened for writing, to find the space that is free and
/// blocks that lie over each other: 128 TiB in blocks of 32 MiB. Into a file with a larger one space is only appended.
const MAX_SCANNED_BYTES: u64 = 32 << 20;
const NAME: &str = "BAT entry";

/// A file, opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) creator: String,
    pub(super) metadata: Metadata,
    pub(super) regions: RegionTable,
    pub(super) tables: Tables,
    pub(super) session: Session,
    pub(super) is_replayed: bool,
}

/// Opens the file in `storage`. It is changed only if it has a log to replay, and is otherwise sound.
pub(super) fn open(storage: &Arc<dyn WritableStorage>, below: &Below) -> Result<Opened, Refusal> {
    let creator = file_type::read(&**storage)?;
    let (header, header_at) = header::read_current_with_place(&**storage)?;
    let mut session = Session::new(&header, header_at)?;
    let overlay = match header.log_guid.non_nil() {
        None => None,
        Some(_) => Some(Arc::new(replay::replay(&**storage, &header)?)),
    };
    let view: Box<dyn Storage> = match &overlay {
        None => Box::new(Arc::clone(storage)),
        Some(overlay) => Box::new(Overlaid::new(Box::new(Arc::clone(storage)), Arc::clone(overlay))),
    };
    let (regions, owned) = read_regions(&*view, &header)?;
    let metadata = Metadata::read(&*view, regions.metadata)?;
    check_parent(&metadata, below)?;
    let shape = Shape::new(&metadata, regions.bat);
    if shape.table_bytes() > regions.bat.length {
        let problem = format!(
            "a table of {} entries does not fit into {} bytes",
            shape.layout.entries(),
            regions.bat.length
        );
        return Err(Damage::new("BAT region", regions.bat.at, "[MS-VHDX] §2.5", problem).into());
    }
    let file_bytes = view.len().get();
    let mut tables =
        Tables { shape, pages: Pages::default(), space: Space::behind(file_bytes), owned, file_bytes };
    tables.space = find_space(&mut tables, &*view)?;
    drop(view);
    if let Some(overlay) = &overlay {
        replay_into(&**storage, overlay, &mut session)?;
    }
    Ok(Opened { creator, metadata, regions, tables, session, is_replayed: overlay.is_some() })
}

/// A differencing file needs its parent's contents, in the same logical sectors; another one has no use for any.
fn check_parent(metadata: &Metadata, below: &Below) -> Result<(), Refusal> {
    let rule = "[MS-VHDX] §2.6.2.6";
    match (metadata.parent.is_some(), below.is_some()) {
        (true, false) => Err(Refusal::unsupported(rule, "a differencing image without its parent")),
        (false, true) => {
            Err(Refusal::unsupported(rule, "a parent under an image that is no differencing one"))
        }
        _ => below.check(metadata.logical_block),
    }
}

fn read_regions(view: &dyn Storage, header: &Header) -> Result<(RegionTable, Vec<Owned>), Refusal> {
    let regions = RegionTable::read(view)?;
    let mut owned = vec![Owned { what: "the header section", start: 0, end: MIB }];
    owned.extend(header.log());
    owned.extend(regions.owned());
    check_disjoint(&owned, view.len().get())?;
    Ok((regions, owned))
}

/// Reads the table through, checks it, and gives the space that nothing has taken.
fn find_space(tables: &mut Tables, view: &dyn Storage) -> Result<Space, Refusal> {
    let shape = tables.shape;
    if shape.table_bytes() > MAX_SCANNED_BYTES {
        // A last block that ends with the disk may want more room later.
        return Ok(Space::behind(tables.file_bytes.saturating_add(shape.layout.block_bytes().get())));
    }
    let mut used: Vec<(u64, u64)> = tables.owned.iter().map(|owned| (owned.start, owned.end)).collect();
    let mut claims = Vec::new();
    let mut index = 0;
    while index < shape.layout.entries() {
        let place = shape.entry_place(index);
        if place == page_of(place) && is_zero(tables, view, place)? {
            // No entry of this page names a place.
            index = index.saturating_add(SECTOR_BYTES / 8);
            continue;
        }
        index = index.saturating_add(1);
        let (entry, length, needed) = match shape.block_of(index.saturating_sub(1)) {
            Some(block) => {
                let entry = tables.look(view, |tables| tables.entry(block))?;
                (entry, shape.layout.block_bytes().get(), shape.layout.used_bytes(block))
            }
            None if shape.layout.is_differencing() => {
                match tables.look(view, |tables| tables.bitmap_entry(place))? {
                    Some(at) => (Entry { state: State::Full, at }, MIB, MIB),
                    None => continue,
                }
            }
            // [MS-VHDX] §2.5.1.2: without a parent nobody looks at them.
            None => continue,
        };
        if entry.state.is_present() {
            claims.push((entry.at, entry.at.saturating_add(needed), place));
        }
        // What an absent block's entry still names may be its old place: nobody else gets it.
        if entry.at != 0 && entry.at < tables.file_bytes {
            used.push((entry.at, entry.at.saturating_add(length)));
        }
    }
    if let Some((one, other)) = claims_overlap(claims) {
        let problem = format!("its block lies over that of the BAT entry at {one:#x}");
        return Err(Damage::new(NAME, other, "[MS-VHDX] §2.1", problem).into());
    }
    Ok(Space::of(used, tables.file_bytes))
}

/// Whether the page at `at` holds nothing but zeros.
fn is_zero(tables: &mut Tables, view: &dyn Storage, at: u64) -> Result<bool, StorageError> {
    tables.load(at, view, Patience::Blocking)?;
    Ok(tables.pages.get(at).is_some_and(|page| page.iter().all(|&byte| byte == 0)))
}

/// Brings the file to where its log says that it is, and turns the log off.
pub(in super::super) fn replay_into(
    storage: &dyn WritableStorage,
    overlay: &Overlay,
    session: &mut Session,
) -> Result<(), StorageError> {
    // [MS-VHDX] §2.2.2: a replay is a change of the file, though none of the disk's contents.
    session.touch(Touched::File, storage)?;
    if overlay.len() > storage.len().get() {
        storage.set_len(ByteLength::new(overlay.len()))?;
    }
    for (start, end, piece) in overlay.runs() {
        match piece {
            Piece::Zero => punch(start, end.saturating_sub(start), storage)?,
            Piece::Sector(bytes) => storage.write_at(ByteOffset::new(start), bytes)?,
        }
    }
    storage.flush()?;
    session.turn_log_off(storage)
}

impl Tables {
    /// Reads a page or two with patience, for who holds the tables alone.
    pub(super) fn load(
        &mut self,
        at: u64,
        storage: &dyn Storage,
        patience: Patience,
    ) -> Result<(), StorageError> {
        self.pages.trim();
        self.pages.load(at, storage, patience)
    }
}
