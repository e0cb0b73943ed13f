//! Where everything lies in a dynamic or differencing file, as a whole: what writers and checks go by.
use block::{ByteOffset, Patience};

use super::dynamic::HEADER_BYTES;
use super::footer::FooterPlace;
use super::shape::{BlockPlace, BlockShape};
use super::{BlockTable, DynamicHeader, Footer, SECTOR_BYTES};
use crate::error::{Damage, Refusal};
use crate::storage::Storage;

const ENTRY: &str = "block allocation table entry";
const TABLE_RULE: &str = "[VHD] Block Allocation Table and Data Blocks";
const HEADER: &str = "dynamic disk header";
const HEADER_RULE: &str = "[VHD] Dynamic Disk Header Format";

/// What the table and the parent's paths are called among the claims.
pub(super) const TABLE: &str = "the block allocation table";
pub(super) const LOCATOR: &str = "a parent locator";

/// A file, taken apart.
#[derive(Debug)]
pub(super) struct FileMap {
    pub(super) footer: Footer,
    pub(super) header: DynamicHeader,
    pub(super) shape: BlockShape,
    /// As many entries as the disk has blocks.
    pub(super) table: BlockTable,
    pub(super) virtual_bytes: u64,
    /// Where the footer begins, or the file ends without one.
    pub(super) end: u64,
}

/// A part of the file that something has: first byte, behind-last byte, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Claim {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) owner: Owner,
}

/// What has a part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Structure(&'static str),
    Block(u32),
}

/// What is wrong with where something lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misplaced {
    /// Something does not lie in the file.
    Outside,
    /// Two things lie over each other.
    Overlap,
}

impl FileMap {
    /// Takes the file apart that has this footer.
    pub(super) fn read(storage: &dyn Storage, footer: Footer, place: FooterPlace) -> Result<Self, Refusal> {
        let virtual_bytes = footer.virtual_bytes(place)?;
        let header = DynamicHeader::read(storage, &footer)?;
        let damage = |problem: String| Damage::new(HEADER, footer.data_offset, HEADER_RULE, problem);
        let blocks = virtual_bytes.div_ceil(u64::from(header.block_bytes));
        if blocks > u64::from(header.table_entries) {
            let problem = format!("the table has {} entries for {blocks} blocks", header.table_entries);
            return Err(damage(problem).into());
        }
        let Some(entries) = BlockTable::check_entries(blocks) else {
            let what =
                format!("writing or checking a VHD with a table of {blocks} entries: the limit is 16 MiB");
            return Err(Refusal::unsupported("Headwater", what));
        };
        let end = match place {
            FooterPlace::End(at) => at,
            FooterPlace::Start => storage.len().get(),
        };
        let table_bytes = u64::from(entries).saturating_mul(4);
        if header.table_offset.checked_add(table_bytes).is_none_or(|table_end| table_end > end) {
            let problem = format!(
                "the table of {entries} entries at {:#x} does not lie in the {end} bytes before the footer",
                header.table_offset
            );
            return Err(damage(problem).into());
        }
        let mut bytes = vec![0; usize::try_from(table_bytes).unwrap_or_default()];
        storage.read_at(ByteOffset::new(header.table_offset), &mut bytes, Patience::Blocking)?;
        let (shape, table) = (BlockShape::of(&header), BlockTable::decode(&bytes));
        Ok(Self { footer, header, shape, table, virtual_bytes, end })
    }

    /// How much of the disk lies in `block`.
    pub(super) fn used_bytes(&self, block: u32) -> u64 {
        let start = u64::from(block).saturating_mul(self.shape.data_bytes);
        self.virtual_bytes.saturating_sub(start).min(self.shape.data_bytes)
    }

    /// What the structures take.
    pub(super) fn structures(&self) -> Vec<Claim> {
        let claim = |what, start: u64, length: u64| Claim {
            start,
            end: start.saturating_add(length),
            owner: Owner::Structure(what),
        };
        let table_bytes = u64::from(self.table.len()).saturating_mul(4);
        let mut claims = vec![
            claim("the copy of the footer", 0, SECTOR_BYTES),
            claim("the dynamic disk header", self.footer.data_offset, HEADER_BYTES as u64),
            claim(TABLE, self.header.table_offset, table_bytes),
        ];
        let locators = self.header.parent.iter().flat_map(|parent| &parent.locators);
        claims.extend(locators.map(|path| claim(LOCATOR, path.at, u64::from(path.length))));
        claims
    }

    /// What `block` takes, of which only so much must be there as the disk has in it.
    fn block_claim(&self, block: u32, place: BlockPlace) -> Claim {
        let end = place.data_at.saturating_add(self.used_bytes(block));
        Claim { start: place.bitmap_at, end, owner: Owner::Block(block) }
    }

    /// Behind the last byte that anything has.
    pub(super) fn used_end(&self) -> u64 {
        // All of the last block is counted, whatever the disk has in it: other programs count so.
        let blocks = self.table.placed().map(|(_, sector)| self.shape.at_sector(sector).end);
        blocks.chain(self.structures().iter().map(|claim| claim.end)).max().unwrap_or_default()
    }

    /// Tells `found` of everything that lies where it must not.
    pub(super) fn misplaced(&self, found: &mut dyn FnMut(Misplaced, Damage)) {
        let entry_damage = |block: u32, problem: String| {
            let (within, _) = self.table.entry_bytes(block);
            Damage::new(ENTRY, self.header.table_offset.saturating_add(within), TABLE_RULE, problem)
        };
        let mut claims = self.structures();
        for claim in &claims {
            if claim.end > self.end {
                let what = match claim.owner {
                    Owner::Structure(what) => what,
                    Owner::Block(_) => "a block",
                };
                let problem = format!("{what} at {:#x} does not lie before the footer", claim.start);
                found(Misplaced::Outside, Damage::new(HEADER, self.footer.data_offset, HEADER_RULE, problem));
            }
        }
        claims.retain(|claim| claim.end <= self.end);
        for (block, sector) in self.table.placed() {
            let claim = self.block_claim(block, self.shape.at_sector(sector));
            if claim.end > self.end {
                let problem = format!(
                    "block {block} at sector {sector:#x} does not lie in the {} bytes before the footer",
                    self.end
                );
                found(Misplaced::Outside, entry_damage(block, problem));
            } else {
                claims.push(claim);
            }
        }
        claims.sort_unstable();
        let mut reaches_furthest: Option<Claim> = None;
        for claim in claims {
            if let Some(before) = reaches_furthest.filter(|before| before.end > claim.start) {
                let damage = match (before.owner, claim.owner) {
                    (Owner::Structure(one), Owner::Structure(other)) => Damage::new(
                        HEADER,
                        self.footer.data_offset,
                        HEADER_RULE,
                        format!("{other} lies over {one}"),
                    ),
                    (Owner::Structure(what), Owner::Block(block))
                    | (Owner::Block(block), Owner::Structure(what)) => {
                        entry_damage(block, format!("block {block} lies over {what}"))
                    }
                    (Owner::Block(one), Owner::Block(other)) => {
                        entry_damage(other, format!("block {other} lies over block {one}"))
                    }
                };
                found(Misplaced::Overlap, damage);
            }
            if reaches_furthest.is_none_or(|before| before.end < claim.end) {
                reaches_furthest = Some(claim);
            }
        }
    }

    /// Refuses a file in which anything lies where it must not.
    pub(super) fn verified(self) -> Result<Self, Refusal> {
        let mut first = None;
        self.misplaced(&mut |_, damage| {
            first.get_or_insert(damage);
        });
        first.map_or(Ok(self), |damage| Err(damage.into()))
    }
}
