//! From a range of the disk to an extent, by way of the L1 and L2 tables.
use block::{ByteRange, Patience};

use super::header::Header;
use crate::compressed::{Compression, ExpandedUnits, Unit};
use crate::error::{Damage, Refusal, ResolveError};
use crate::extent::{Held, LayerExtent};
use crate::second_level::{Budget, EntryPlace, SecondLevel};
use crate::storage::Storage;
use crate::table::{Table, Width};

const L1_RULE: &str = "[qcow2] L1 table entry";
const L2_RULE: &str = "[qcow2] L2 table entry";
const STANDARD_RULE: &str = "[qcow2] Standard Cluster Descriptor";
const COMPRESSED_RULE: &str = "[qcow2] Compressed Clusters Descriptor";
const EXTENDED_RULE: &str = "[qcow2] Extended L2 Entries";

/// The bits of an entry that give a place in the file.
const PLACE_MASK: u64 = 0x00FF_FFFF_FFFF_FE00;
/// An L2 entry's bit for a compressed cluster.
const COMPRESSED: u64 = 1 << 62;
/// An entry's bit for a refcount of one, which only writers look at.
const COPIED: u64 = 1 << 63;
/// A standard cluster's bit for zeros, from version 3 on and without subclusters.
const ZEROS: u64 = 1;
const SUBCLUSTERS: u64 = 32;
/// How many pieces are joined to one extent at most: a lookup takes bounded time, whatever is asked for.
const MAX_JOINED: u32 = 4096;

/// The clusters of an image.
#[derive(Debug)]
pub(super) struct Clusters {
    l1: Table,
    l2: SecondLevel,
    l1_at: u64,
    l1_end: u64,
    file_bytes: u64,
    virtual_bytes: u64,
    cluster_bits: u32,
    version: u32,
    l2_entries: u64,
    compression: Compression,
    extended: bool,
    /// What a cluster that was never written holds.
    unwritten: Held,
}

/// A part of the disk, not longer than a cluster or what one L2 table describes, that comes from one place.
#[derive(Clone, Copy, Debug)]
struct Piece {
    held: Held,
    /// Behind its last byte, on the disk.
    end: u64,
    /// Where its cluster is compressed.
    unit: Option<Unit>,
}

/// What an L2 entry of 64 bits says of its cluster, and that of 128 bits beside the subclusters' bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Descriptor {
    Unwritten,
    Zero,
    Host { at: u64 },
    Compressed { at: u64, stored_bytes: u64 },
}

impl Clusters {
    pub(super) fn open(storage: &dyn Storage, header: &Header) -> Result<Self, Refusal> {
        let l1 = Table::new(header.l1_at, header.l1_entries, Width::Be64);
        let l1_end = header.l1_at.saturating_add(l1.bytes().get());
        let clusters = Self {
            l1,
            l2: SecondLevel::new(header.l1_entries, header.cluster_bytes(), Budget::default()),
            l1_at: header.l1_at,
            l1_end,
            file_bytes: storage.len().get(),
            virtual_bytes: header.virtual_bytes,
            cluster_bits: header.cluster_bits,
            version: header.version,
            l2_entries: header.l2_entries(),
            compression: header.compression,
            extended: header.extended_l2,
            unwritten: if header.backing.is_some() { Held::Parent } else { Held::Zero },
        };
        // A damaged first page of the L1 table is better known now than at the first read.
        clusters.l2_table(0, storage, Patience::Blocking)?;
        Ok(clusters)
    }

    pub(super) fn extent(
        &self,
        storage: &dyn Storage,
        range: ByteRange,
        patience: Patience,
    ) -> Result<LayerExtent, ResolveError> {
        let start = range.start().get();
        let first = self.piece(start, storage, patience)?;
        let mut end = first.end;
        for _ in 0..MAX_JOINED {
            if end >= range.end().get() || first.held == Held::Encoded {
                break;
            }
            // What is wrong with a later piece, or has to be waited for, is told to who asks for it.
            let Ok(next) = self.piece(end, storage, patience) else { break };
            if next.held != first.held.advanced(end.saturating_sub(start)) {
                break;
            }
            end = next.end;
        }
        Ok(LayerExtent::head_of(range, end.saturating_sub(start), first.held))
    }

    pub(super) fn decode(
        &self,
        storage: &dyn Storage,
        expanded: &ExpandedUnits,
        at: u64,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<(), ResolveError> {
        let piece = self.piece(at, storage, patience)?;
        let Some(unit) = piece.unit else {
            return Err(self.damage(0, L2_RULE, "this cluster is not compressed".into()).into());
        };
        let cluster = expanded.unit(unit.at, patience, || unit.expand(storage))?;
        let within = usize::try_from(at & self.cluster_bytes().wrapping_sub(1)).unwrap_or(usize::MAX);
        let bytes = cluster.get(within..).and_then(|rest| rest.get(..buffer.len()));
        let Some(bytes) = bytes else {
            return Err(self.damage(unit.at, COMPRESSED_RULE, "it ends before the range".into()).into());
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    fn damage(&self, at: u64, rule: &'static str, problem: String) -> Damage {
        Damage::new("L2 table entry", at, rule, problem)
    }

    /// The place of the L2 table `index`, if there is one.
    fn l2_table(
        &self,
        index: u64,
        storage: &dyn Storage,
        patience: Patience,
    ) -> Result<Option<u64>, ResolveError> {
        let entry = self.l1.get(index, storage, patience, &|index, entry| self.check_l1(index, entry))?;
        Ok(Some(entry & PLACE_MASK).filter(|&at| at != 0))
    }

    fn check_l1(&self, index: u64, entry: u64) -> Result<(), Damage> {
        let damage = |problem| Err(Damage::new("L1 table entry", self.l1.place_of(index), L1_RULE, problem));
        let at = entry & PLACE_MASK;
        if entry & !(PLACE_MASK | COPIED) != 0 {
            return damage(format!("reserved bits are set in {entry:#x}"));
        }
        if !at.is_multiple_of(self.cluster_bytes()) {
            return damage(format!("the L2 table at {at:#x} does not begin at a cluster"));
        }
        if at != 0 && self.lies_over_structures(at, self.cluster_bytes()) {
            return damage(format!("the L2 table at {at:#x} lies over the header or the L1 table"));
        }
        if at.saturating_add(self.cluster_bytes()) > self.file_bytes && at != 0 {
            let len = self.file_bytes;
            return damage(format!("the L2 table at {at:#x} does not lie in the file of {len} bytes"));
        }
        Ok(())
    }

    fn lies_over_structures(&self, at: u64, bytes: u64) -> bool {
        at < self.cluster_bytes() || (at < self.l1_end && self.l1_at < at.saturating_add(bytes))
    }

    /// The piece that holds the byte of the disk at `at`.
    fn piece(&self, at: u64, storage: &dyn Storage, patience: Patience) -> Result<Piece, ResolveError> {
        let cluster = at >> self.cluster_bits;
        let table = cluster.checked_div(self.l2_entries).unwrap_or_default();
        let Some(table_at) = self.l2_table(table, storage, patience)? else {
            let covered = self.l2_entries.saturating_mul(self.cluster_bytes());
            let end = table.saturating_add(1).saturating_mul(covered).min(self.virtual_bytes);
            return Ok(Piece { held: self.unwritten, end, unit: None });
        };
        let index = cluster.checked_rem(self.l2_entries).unwrap_or_default();
        let entry_bytes: u64 = if self.extended { 16 } else { 8 };
        let place = EntryPlace { table, table_at, within: index.saturating_mul(entry_bytes) };
        let (entry, subclusters) = if self.extended {
            let entry = u128::from_be_bytes(self.l2.entry(place, storage, patience)?);
            ((entry >> 64) as u64, Some(entry as u64))
        } else {
            (u64::from_be_bytes(self.l2.entry(place, storage, patience)?), None)
        };
        let descriptor = self.descriptor(entry).and_then(|descriptor| match subclusters {
            Some(bits) => self.subcluster(descriptor, bits, at),
            None => Ok((descriptor, self.cluster_bytes())),
        });
        let (descriptor, unit_bytes) = descriptor
            .map_err(|(rule, problem)| self.damage(place.at(), rule, format!("{problem} in {entry:#x}")))?;
        let start = at & !(unit_bytes.wrapping_sub(1));
        let end = start.saturating_add(unit_bytes).min(self.virtual_bytes);
        self.held(descriptor, at, end).map_err(|problem| self.damage(place.at(), L2_RULE, problem).into())
    }

    /// What `descriptor` means for the part of the disk from `at` to `end`, which lies in one cluster.
    fn held(&self, descriptor: Descriptor, at: u64, end: u64) -> Result<Piece, String> {
        let piece = |held| Ok(Piece { held, end, unit: None });
        let within = at & (self.cluster_bytes().wrapping_sub(1));
        match descriptor {
            Descriptor::Unwritten => piece(self.unwritten),
            Descriptor::Zero => piece(Held::Zero),
            Descriptor::Host { at: host } => {
                if self.lies_over_structures(host, self.cluster_bytes()) {
                    return Err(format!("the cluster at {host:#x} lies over the header or the L1 table"));
                }
                let first = host.saturating_add(within);
                if first.saturating_add(end.saturating_sub(at)) > self.file_bytes {
                    let len = self.file_bytes;
                    return Err(format!("the cluster at {host:#x} does not lie in the file of {len} bytes"));
                }
                piece(Held::File { at: first })
            }
            Descriptor::Compressed { at: host, stored_bytes } => {
                // The length is rounded up to sectors, which the file's end need not be.
                let stored_bytes = stored_bytes.min(self.file_bytes.saturating_sub(host));
                if self.lies_over_structures(host, stored_bytes) {
                    return Err(format!(
                        "the compressed cluster at {host:#x} lies over the header or the L1 table"
                    ));
                }
                if stored_bytes == 0 {
                    let len = self.file_bytes;
                    return Err(format!(
                        "the compressed cluster at {host:#x} lies behind the end of the file of {len} bytes"
                    ));
                }
                let unit = Unit {
                    compression: self.compression,
                    at: host,
                    stored_bytes,
                    needed_bytes: self.cluster_bytes(),
                    full_bytes: self.cluster_bytes(),
                    name: "compressed cluster",
                    rule: COMPRESSED_RULE,
                };
                Ok(Piece { held: Held::Encoded, end, unit: Some(unit) })
            }
        }
    }

    /// What the 64 bits of an entry say. Else the rule that they break, and how.
    fn descriptor(&self, entry: u64) -> Result<Descriptor, (&'static str, String)> {
        if entry & COMPRESSED != 0 {
            if entry & COPIED != 0 {
                return Err((L2_RULE, "a compressed cluster's bit 63 is set".into()));
            }
            // [qcow2] "Compressed Clusters Descriptor": x = 62 - (cluster_bits - 8).
            let place_bits = 62_u32.saturating_sub(self.cluster_bits.saturating_sub(8));
            let descriptor = entry & !COMPRESSED;
            let at = descriptor & (1_u64 << place_bits).wrapping_sub(1);
            let more_sectors = descriptor >> place_bits;
            let stored_bytes = more_sectors.saturating_add(1).saturating_mul(512).saturating_sub(at % 512);
            return Ok(Descriptor::Compressed { at, stored_bytes });
        }
        let zeros_bit = if self.version >= 3 && !self.extended { ZEROS } else { 0 };
        if entry & !(PLACE_MASK | COPIED | zeros_bit) != 0 {
            return Err((STANDARD_RULE, "reserved bits are set".into()));
        }
        let at = entry & PLACE_MASK;
        if !at.is_multiple_of(self.cluster_bytes()) {
            return Err((STANDARD_RULE, "a cluster that does not begin at a multiple of its size".into()));
        }
        Ok(match at {
            _ if entry & zeros_bit != 0 => Descriptor::Zero,
            0 => Descriptor::Unwritten,
            at => Descriptor::Host { at },
        })
    }

    /// What the subcluster of the byte at `at` holds, and how long a run of subclusters is alike: one, or a whole
    /// cluster that is compressed.
    fn subcluster(
        &self,
        descriptor: Descriptor,
        bits: u64,
        at: u64,
    ) -> Result<(Descriptor, u64), (&'static str, String)> {
        if let Descriptor::Compressed { .. } = descriptor {
            if bits != 0 {
                return Err((EXTENDED_RULE, format!("a compressed cluster with subclusters {bits:#x}")));
            }
            return Ok((descriptor, self.cluster_bytes()));
        }
        let bytes = self.cluster_bytes() / SUBCLUSTERS;
        let index = (at & self.cluster_bytes().wrapping_sub(1)).checked_div(bytes).unwrap_or_default();
        let index = u32::try_from(index).unwrap_or_default();
        // [qcow2] "Extended L2 Entries": bits 0 to 31 say allocated, 32 to 63 zeros.
        let allocated = bits.checked_shr(index).unwrap_or_default() & 1 != 0;
        let zeros = bits.checked_shr(index.saturating_add(32)).unwrap_or_default() & 1 != 0;
        match (allocated, zeros, descriptor) {
            (true, true, _) => Err((EXTENDED_RULE, format!("subcluster {index} both stored and zeros"))),
            (true, false, Descriptor::Host { .. }) => Ok((descriptor, bytes)),
            (true, false, _) => Err((EXTENDED_RULE, format!("subcluster {index} stored without a cluster"))),
            (false, true, _) => Ok((Descriptor::Zero, bytes)),
            (false, false, _) => Ok((Descriptor::Unwritten, bytes)),
        }
    }
}
