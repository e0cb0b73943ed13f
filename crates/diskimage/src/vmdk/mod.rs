//! VMDK, VMware's format, read-only (VMware's "Virtual Disk Format 5.0", cited here as `[VMDK]` with the title of its
//! section).
//!
//! A [`Descriptor`], text, says of which *extents* the disk is made, one behind the other. It is a file of its own
//! beside the extents' files, or lies in the only extent's file. A *flat* extent is the disk's bytes; a *sparse* one
//! begins with a [`Header`] (little-endian) and cuts the disk into *grains*, found by a grain directory and grain
//! tables ([`Grains`]). A *stream-optimized* extent has its grains compressed, each behind a marker, and its directory
//! at the end.
//!
//! All files of a disk are joined to one storage, in the order of their extents; each extent knows where its file
//! begins in that.
mod descriptor;
mod grains;
mod header;

use block::{ByteOffset, ByteRange, Patience};

use crate::compressed::ExpandedUnits;
use crate::error::{Damage, Refusal, ResolveError};
use crate::extent::{Held, LayerExtent};
use crate::format::Format;
use crate::second_level::Budget;
use crate::storage::{JoinedStorage, Storage};

use descriptor::{Descriptor, ExtentKind, ExtentLine};
use grains::Grains;
use header::{Header, SECTOR_BYTES};

/// The largest disk: what VHDX, the format that images are converted to, can hold.
const MAX_VIRTUAL_BYTES: u64 = 64 << 40;
/// How long all grain directories of a disk are together at most: those of 64 TiB in grains of 64 KiB have 8 MiB.
const MAX_DIRECTORY_BYTES: u64 = 32 << 20;
/// How many pieces are joined to one extent at most: a lookup takes bounded time, whatever is asked for.
const MAX_JOINED: u32 = 4096;

/// Opens a file that the descriptor names, which lies beside it.
pub(crate) type OpenBeside<'a> = &'a dyn Fn(&str) -> Result<Box<dyn Storage>, Refusal>;

/// An open VMDK image.
#[derive(Debug)]
pub(crate) struct Vmdk {
    parts: Vec<Part>,
    virtual_bytes: u64,
    grain_bytes: Option<u64>,
    expanded: ExpandedUnits,
}

/// A run of the disk, as first and behind-last byte, and how it is stored.
#[derive(Debug)]
struct Part {
    start: u64,
    end: u64,
    kind: PartKind,
}

#[derive(Debug)]
enum PartKind {
    Zero,
    /// From this place of the storage on.
    Flat(u64),
    Sparse(Box<Grains>),
}

/// Whether these first bytes of a file are those of a VMDK image.
pub(crate) fn is_signed(head: &[u8]) -> bool {
    header::is_signed(head) || head.starts_with(descriptor::SIGNATURE)
}

impl Vmdk {
    /// The image whose descriptor is in `storage`, with the storage in which its extents give their places.
    pub(crate) fn open(
        storage: Box<dyn Storage>,
        open_beside: OpenBeside<'_>,
    ) -> Result<(Self, Box<dyn Storage>), Refusal> {
        let mut head = [0; descriptor::SIGNATURE.len()];
        let length = usize::try_from(storage.len().get()).unwrap_or(usize::MAX).min(head.len());
        let start = head.get_mut(..length).unwrap_or_default();
        storage.read_at(ByteOffset::ZERO, start, Patience::Blocking)?;
        let mut assembly = Assembly::default();
        if header::is_signed(start) {
            let header = Header::read(&*storage)?;
            let descriptor = embedded(&*storage, &header)?;
            let [ExtentLine { sectors, kind: ExtentKind::Sparse { .. } }] = *descriptor.extents.as_slice()
            else {
                let problem =
                    "it is in the file of its only extent, but names another kind or number of extents";
                return Err(Damage::new("descriptor", header.descriptor_at, descriptor::RULE, problem).into());
            };
            // The name in the line is that of this file, or what it was called before.
            assembly.add_sparse(sectors, storage, header)?;
        } else if start.starts_with(descriptor::SIGNATURE) {
            let descriptor = read_descriptor(&*storage, 0, storage.len().get())?;
            for line in &descriptor.extents {
                assembly.add(line, open_beside)?;
            }
        } else {
            let problem = "it has neither the signature of a sparse extent nor that of a descriptor";
            return Err(Refusal::NotThisFormat { format: Format::Vmdk, problem });
        }
        assembly.finish()
    }

    pub(crate) fn virtual_bytes(&self) -> u64 {
        self.virtual_bytes
    }

    /// The size of a grain, where an extent is sparse.
    pub(crate) fn grain_bytes(&self) -> Option<u64> {
        self.grain_bytes
    }

    /// The extent with which `range` begins.
    pub(crate) fn extent(
        &self,
        storage: &dyn Storage,
        range: ByteRange,
        patience: Patience,
    ) -> Result<LayerExtent, ResolveError> {
        let start = range.start().get();
        let (held, mut end) = self.piece(start, storage, patience)?;
        for _ in 0..MAX_JOINED {
            if end >= range.end().get() || held == Held::Encoded {
                break;
            }
            // What is wrong with a later piece, or has to be waited for, is told to who asks for it.
            let Ok((next, next_end)) = self.piece(end, storage, patience) else { break };
            if next != held.advanced(end.saturating_sub(start)) {
                break;
            }
            end = next_end;
        }
        Ok(LayerExtent::head_of(range, end.saturating_sub(start), held))
    }

    /// Fills `buffer` with the bytes of the disk from `at` on, which lie in a piece that was called encoded.
    pub(crate) fn decode(
        &self,
        storage: &dyn Storage,
        at: u64,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<(), ResolveError> {
        let damage = |problem| Damage::new("grain", at, descriptor::RULE, problem);
        let part = self.part(at)?;
        let PartKind::Sparse(grains) = &part.kind else {
            return Err(damage("it is not compressed").into());
        };
        let (grain, within) =
            grains.expanded(at.saturating_sub(part.start), storage, &self.expanded, patience)?;
        let within = usize::try_from(within).unwrap_or(usize::MAX);
        let Some(bytes) = grain.get(within..).and_then(|rest| rest.get(..buffer.len())) else {
            return Err(damage("it ends before the range").into());
        };
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn part(&self, at: u64) -> Result<&Part, ResolveError> {
        let index = self.parts.partition_point(|part| part.end <= at);
        let damage = || Damage::new("extents", at, descriptor::RULE, "the disk ends before this");
        Ok(self.parts.get(index).ok_or_else(damage)?)
    }

    /// What is held at `at`, and where that piece ends on the disk.
    fn piece(&self, at: u64, storage: &dyn Storage, patience: Patience) -> Result<(Held, u64), ResolveError> {
        let part = self.part(at)?;
        let within = at.saturating_sub(part.start);
        Ok(match &part.kind {
            PartKind::Zero => (Held::Zero, part.end),
            PartKind::Flat(first) => (Held::File { at: first.saturating_add(within) }, part.end),
            PartKind::Sparse(grains) => {
                let (held, end) = grains.piece(within, storage, patience)?;
                (held, part.start.saturating_add(end).min(part.end))
            }
        })
    }
}

/// The parts of a disk as they are put together.
#[derive(Debug, Default)]
struct Assembly {
    storage: JoinedStorage,
    parts: Vec<Part>,
    end: u64,
    directory_bytes: u64,
    grain_bytes: u64,
    budget: Budget,
}

impl Assembly {
    fn add(&mut self, line: &ExtentLine, open_beside: OpenBeside<'_>) -> Result<(), Refusal> {
        match &line.kind {
            ExtentKind::Zero => self.push(line.sectors, PartKind::Zero),
            ExtentKind::Flat { name, first_sector } => {
                let file = open_beside(name)?;
                let bytes =
                    first_sector.checked_add(line.sectors).and_then(|end| end.checked_mul(SECTOR_BYTES));
                let len = file.len().get();
                if bytes.is_none_or(|bytes| bytes > len) {
                    let problem = format!(
                        "the extent in {name:?} has {} sectors from sector {first_sector} on, its file {len} bytes",
                        line.sectors
                    );
                    return Err(damaged_extent(problem));
                }
                let (start, _) = self.join(file)?;
                let at = start.saturating_add(first_sector.saturating_mul(SECTOR_BYTES));
                self.push(line.sectors, PartKind::Flat(at))
            }
            ExtentKind::Sparse { name } => {
                let file = open_beside(name)?;
                let header = Header::read(&*file)?;
                self.add_sparse(line.sectors, file, header)
            }
        }
    }

    fn add_sparse(&mut self, sectors: u64, file: Box<dyn Storage>, header: Header) -> Result<(), Refusal> {
        if sectors > header.capacity_sectors {
            let problem = format!(
                "the descriptor gives the extent {sectors} sectors, its header {}",
                header.capacity_sectors
            );
            return Err(damaged_extent(problem));
        }
        let place = self.join(file)?;
        let grains = Grains::open(&self.storage, header, place, self.budget.clone())?;
        self.directory_bytes = self.directory_bytes.saturating_add(grains.directory_bytes());
        if self.directory_bytes > MAX_DIRECTORY_BYTES {
            let what = format!("a VMDK with more than {MAX_DIRECTORY_BYTES} bytes of grain directories");
            return Err(Refusal::unsupported(descriptor::RULE, what));
        }
        self.grain_bytes = self.grain_bytes.max(grains.grain_bytes());
        self.push(sectors, PartKind::Sparse(Box::new(grains)))
    }

    fn join(&mut self, file: Box<dyn Storage>) -> Result<(u64, u64), Refusal> {
        let bytes = file.len().get();
        match self.storage.push(file) {
            Some(start) => Ok((start, start.saturating_add(bytes))),
            None => Err(damaged_extent(format!("a file of {bytes} bytes is too long behind the others"))),
        }
    }

    fn push(&mut self, sectors: u64, kind: PartKind) -> Result<(), Refusal> {
        let start = self.end;
        let end = sectors.checked_mul(SECTOR_BYTES).and_then(|bytes| start.checked_add(bytes));
        let Some(end) = end.filter(|&end| end <= MAX_VIRTUAL_BYTES) else {
            return Err(Refusal::unsupported(descriptor::RULE, "a VMDK of more than 64 TiB"));
        };
        if end > start {
            self.parts.push(Part { start, end, kind });
        }
        self.end = end;
        Ok(())
    }

    fn finish(self) -> Result<(Vmdk, Box<dyn Storage>), Refusal> {
        if self.end == 0 {
            return Err(Refusal::Empty);
        }
        let vmdk = Vmdk {
            parts: self.parts,
            virtual_bytes: self.end,
            grain_bytes: Some(self.grain_bytes).filter(|&bytes| bytes != 0),
            expanded: ExpandedUnits::new(self.grain_bytes),
        };
        Ok((vmdk, self.storage.simplified()))
    }
}

/// The descriptor in the file of a sparse extent.
fn embedded(storage: &dyn Storage, header: &Header) -> Result<Descriptor, Refusal> {
    let mut signature = [0; descriptor::SIGNATURE.len()];
    if header.descriptor_at != 0 {
        storage.read_at(ByteOffset::new(header.descriptor_at), &mut signature, Patience::Blocking)?;
    }
    // Extents of a disk that is cut into files have none, or leave its place empty.
    if header.descriptor_at == 0
        || header.descriptor_bytes == 0
        || signature[..].iter().all(|&byte| byte == 0)
    {
        let what = "one extent of a VMDK by itself (it has no descriptor; open the disk's descriptor file)";
        return Err(Refusal::unsupported(descriptor::RULE, what));
    }
    read_descriptor(storage, header.descriptor_at, header.descriptor_bytes)
}

fn read_descriptor(storage: &dyn Storage, at: u64, bytes: u64) -> Result<Descriptor, Refusal> {
    if bytes > descriptor::MAX_BYTES {
        let what = format!("a VMDK descriptor of {bytes} bytes (more than {})", descriptor::MAX_BYTES);
        return Err(Refusal::unsupported(descriptor::RULE, what));
    }
    let mut text = vec![0; usize::try_from(bytes).unwrap_or_default()];
    storage.read_at(ByteOffset::new(at), &mut text, Patience::Blocking)?;
    Descriptor::parse(&text, at)
}

fn damaged_extent(problem: String) -> Refusal {
    Damage::new("extent", 0, descriptor::RULE, problem).into()
}
