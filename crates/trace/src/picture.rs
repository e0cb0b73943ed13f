//! A picture of the reads of a trace: which parts of the disk were read, in which order, and how often.
//!
//! ```text
//! offset ↑ row    ░░        ░      a cell: the bytes that were read there and then
//!        │        ▓▓▓░
//!        │  ███       ░░░   ░░
//!        └────────────────────→ column: a share of the time
//! ```
//!
//! A disk is large and a boot reads little of it: what nobody read is left out, so rows hold as many bytes *that were read*
//! each, and say where they begin. [`Picture::places`] says where on the whole disk that is.
use crate::{Kind, Request, Trace};

/// The most columns, rows or places that a picture has.
pub const MAX_PARTS: usize = 1024;

/// What was read is told apart in pieces of this many bytes.
const PIECE_BYTES: u64 = 64 << 10;

/// The most pieces that are told apart: of a larger disk, pieces grow.
const MAX_PIECES: u64 = 1 << 22;

/// The reads of a trace as a map of the disk over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Row after row, from the start of the disk on: the bytes read in each column of time.
    pub rows: Vec<Row>,
    /// The whole disk in equal parts: the bytes that were read of each.
    pub places: Vec<u64>,
    /// The size of the disk: as the trace says, or up to the last byte that was read.
    pub disk_bytes: u64,
    /// When the last read arrived, from the first on.
    pub duration_us: u64,
    /// Bytes that were read, each time anew.
    pub bytes: u64,
    /// Bytes that were read, each counted once.
    pub distinct_bytes: u64,
}

/// A part of the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How many different bytes of it were read.
    pub distinct_bytes: u64,
    /// The bytes that were read in each column.
    pub columns: Vec<u64>,
}

impl Row {
    /// All that was read of it, each time anew.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.columns.iter().copied().fold(0, u64::saturating_add)
    }
}

/// How a picture is cut; each from 1 to [`MAX_PARTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Of time.
    pub columns: usize,
    /// Of what was read.
    pub rows: usize,
    /// Of the whole disk.
    pub places: usize,
}

/// The picture of a trace's reads that succeeded. One without any is empty.
#[must_use]
pub fn picture(trace: &Trace, cut: Cut) -> Picture {
    let reads = || {
        let requests = trace.requests.iter();
        requests.filter(|request| request.kind == Kind::Read && request.ok && request.length > 0)
    };
    let (Some(start), Some(end)) = (reads().map(|r| r.at_us).min(), reads().map(|r| r.at_us).max()) else {
        return Picture::default();
    };
    let disk_bytes = reads().map(Request::end).max().unwrap_or(0).max(trace.header.disk_bytes).max(1);
    let piece_bytes = PIECE_BYTES.max(disk_bytes.div_ceil(MAX_PIECES));
    let ranges = merged(reads());
    let pieces = touched(&ranges, piece_bytes);
    let cut = Cut {
        columns: cut.columns.clamp(1, MAX_PARTS),
        rows: cut.rows.clamp(1, MAX_PARTS).min(pieces.len().max(1)),
        places: cut.places.clamp(1, MAX_PARTS),
    };
    let mut found = Picture {
        rows: rows(&pieces, &ranges, cut, piece_bytes),
        places: vec![0; cut.places],
        disk_bytes,
        duration_us: end.saturating_sub(start),
        bytes: 0,
        distinct_bytes: ranges.iter().map(|(from, to)| to.saturating_sub(*from)).fold(0, u64::saturating_add),
    };
    for request in reads() {
        let column =
            part(request.at_us.saturating_sub(start), found.duration_us.saturating_add(1), cut.columns);
        for (piece, at, bytes) in in_pieces(request.offset, request.end(), piece_bytes) {
            let rank = pieces.binary_search(&piece).unwrap_or(0);
            let row = part(rank as u64, pieces.len() as u64, cut.rows);
            let cell = found.rows.get_mut(row).and_then(|row| row.columns.get_mut(column));
            let place = found.places.get_mut(part(at, disk_bytes, cut.places));
            for sum in cell.into_iter().chain(place) {
                *sum = sum.saturating_add(bytes);
            }
            found.bytes = found.bytes.saturating_add(bytes);
        }
    }
    found
}

/// What was read, as ranges that do not touch, in their order on the disk.
fn merged<'a>(reads: impl Iterator<Item = &'a Request>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = reads.map(|read| (read.offset, read.end())).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in ranges {
        match merged.last_mut() {
            Some((_, end)) if from <= *end => *end = to.max(*end),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// A range cut at the edges of pieces: the piece, where its part begins, and how long that is.
fn in_pieces(from: u64, to: u64, piece_bytes: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let piece = move |at: u64| at.checked_div(piece_bytes).unwrap_or(0);
    (piece(from)..=piece(to.saturating_sub(1))).map(move |piece| {
        let start = piece.saturating_mul(piece_bytes);
        let at = start.max(from);
        (piece, at, start.saturating_add(piece_bytes).min(to).saturating_sub(at))
    })
}

/// The pieces that were read, each once, in their order on the disk.
fn touched(ranges: &[(u64, u64)], piece_bytes: u64) -> Vec<u64> {
    let pieces = ranges.iter().flat_map(|(from, to)| in_pieces(*from, *to, piece_bytes));
    let mut pieces: Vec<u64> = pieces.map(|(piece, _, _)| piece).collect();
    pieces.dedup();
    pieces
}

fn rows(pieces: &[u64], ranges: &[(u64, u64)], cut: Cut, piece_bytes: u64) -> Vec<Row> {
    let mut rows = vec![Row { columns: vec![0; cut.columns], ..Row::default() }; cut.rows];
    for (from, to) in ranges {
        for (piece, at, bytes) in in_pieces(*from, *to, piece_bytes) {
            let rank = pieces.binary_search(&piece).unwrap_or(0);
            if let Some(row) = rows.get_mut(part(rank as u64, pieces.len() as u64, cut.rows)) {
                if row.distinct_bytes == 0 {
                    row.offset = at;
                }
                row.distinct_bytes = row.distinct_bytes.saturating_add(bytes);
            }
        }
    }
    rows
}

/// Which of `parts` equal parts of `whole` holds `at`.
fn part(at: u64, whole: u64, parts: usize) -> usize {
    let place = u128::from(at).saturating_mul(parts as u128).checked_div(u128::from(whole)).unwrap_or(0);
    usize::try_from(place).unwrap_or(usize::MAX).min(parts.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, Stage};

    const CUT: Cut = Cut { columns: 4, rows: 2, places: 8 };

    fn read(at_us: u64, offset: u64, length: u64) -> Request {
        Request { at_us, kind: Kind::Read, offset, length, stage: Stage::First, latency_us: 1, ok: true }
    }

    fn of(disk_bytes: u64, requests: Vec<Request>) -> Picture {
        let header = Header { disk_bytes, ..Header::default() };
        picture(&Trace { header, requests }, CUT)
    }

    #[test]
    fn reads_stand_where_and_when_they_were_made() {
        let far = 7 << 20;
        let found = of(8 << 20, vec![read(100, 0, 65_536), read(150, 0, 512), read(199, far, 4096)]);
        assert_eq!(found.rows.len(), 2);
        assert_eq!((found.rows[0].offset, found.rows[1].offset), (0, far));
        assert_eq!(found.rows[0].columns, [65_536, 0, 512, 0]);
        assert_eq!(found.rows[1].columns, [0, 0, 0, 4096]);
        assert_eq!(found.places, [66_048, 0, 0, 0, 0, 0, 0, 4096]);
        assert_eq!((found.bytes, found.distinct_bytes, found.duration_us), (70_144, 69_632, 99));
        assert_eq!(found.rows[0].bytes(), 66_048);
    }

    #[test]
    fn read_over_the_edge_of_rows_is_shared_between_them() {
        let found = of(1 << 20, vec![read(0, 0, 131_072)]);
        assert_eq!(found.rows.iter().map(Row::bytes).collect::<Vec<_>>(), [65_536, 65_536]);
    }

    #[test]
    fn writes_failures_and_nothing_make_no_picture() {
        let write = Request { kind: Kind::Write, ..read(0, 0, 512) };
        let failed = Request { ok: false, ..read(0, 0, 512) };
        assert_eq!(of(1 << 20, vec![write, failed, read(0, 4096, 0)]), Picture::default());
    }

    #[test]
    fn read_at_the_end_of_the_largest_disk_has_a_place() {
        let found = of(0, vec![read(u64::MAX, u64::MAX - 4096, 4096), read(0, 0, 1)]);
        assert_eq!((found.bytes, found.places[7], found.rows.len()), (4097, 4096, 2));
    }

    #[test]
    fn every_byte_that_was_read_is_in_a_row_and_in_a_place() {
        let mut seed = 1_u64;
        let mut draw = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % most
        };
        let requests: Vec<Request> =
            (0..500).map(|_| read(draw(1000), draw(1 << 30), 1 + draw(1 << 20))).collect();
        let all: u64 = requests.iter().map(|request| request.length).sum();
        let found = of(2 << 30, requests);
        let sum = |rows: &[Row]| rows.iter().map(Row::bytes).sum::<u64>();
        assert_eq!((found.bytes, sum(&found.rows), found.places.iter().sum::<u64>()), (all, all, all));
    }
}
