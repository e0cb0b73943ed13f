//! qcow2, qemu's own format, read-only (qemu's `docs/interop/qcow2.txt`, cited here as `[qcow2]` with the title of its
//! section).
//!
//! Everything is big-endian. The disk is cut into *guest clusters*; an L1 table gives the place of L2 tables, and those
//! give for each guest cluster its *host cluster* in the file, or that it is compressed, reads as zeros, or was never
//! written, in which case the backing file tells, or zeros if there is none. Images with *extended* L2 entries say the
//! latter three for each thirty-second of a cluster.
//!
//! A reader needs nothing else: refcounts, internal snapshots, dirty bitmaps and the order of writes concern those who
//! write. Guest clusters that share a host cluster harm nobody who only reads, so they are not looked for.
mod clusters;
mod header;

use block::{ByteRange, Patience};

use crate::compressed::ExpandedUnits;
use crate::error::{Refusal, ResolveError};
use crate::extent::LayerExtent;
use crate::storage::Storage;

use clusters::Clusters;
use header::Header;
pub(crate) use header::{Backing, is_signed};

/// An open qcow2 image.
#[derive(Debug)]
pub(crate) struct Qcow2 {
    header: Header,
    clusters: Clusters,
    expanded: ExpandedUnits,
}

impl Qcow2 {
    pub(crate) fn open(storage: &dyn Storage) -> Result<Self, Refusal> {
        let header = Header::read(storage)?;
        let clusters = Clusters::open(storage, &header)?;
        let expanded = ExpandedUnits::new(header.cluster_bytes());
        Ok(Self { header, clusters, expanded })
    }

    pub(crate) fn virtual_bytes(&self) -> u64 {
        self.header.virtual_bytes
    }

    pub(crate) fn cluster_bytes(&self) -> u64 {
        self.header.cluster_bytes()
    }

    /// The file that holds what this one does not.
    pub(crate) fn backing(&self) -> Option<&Backing> {
        self.header.backing.as_ref()
    }

    /// The extent with which `range` begins.
    pub(crate) fn extent(
        &self,
        storage: &dyn Storage,
        range: ByteRange,
        patience: Patience,
    ) -> Result<LayerExtent, ResolveError> {
        self.clusters.extent(storage, range, patience)
    }

    /// Fills `buffer` with the bytes of the disk from `at` on, which lie in a piece that was called encoded.
    pub(crate) fn decode(
        &self,
        storage: &dyn Storage,
        at: u64,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<(), ResolveError> {
        self.clusters.decode(storage, &self.expanded, at, buffer, patience)
    }
}
