//! The header: how the disk is cut into clusters, where the L1 table stands, and which features the image uses.
use block::{ByteLength, ByteOffset, Patience};

use crate::compressed::Compression;
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::format::Format;
use crate::storage::Storage;

const MAGIC: &[u8] = b"QFI\xFB";
const NAME: &str = "header";
const RULE: &str = "[qcow2] Header";
const EXTENSION_RULE: &str = "[qcow2] Header extensions";

/// What a version 2 header has, and the least of version 3.
const V2_BYTES: usize = 72;
const V3_BYTES: usize = 104;
/// With the compression type.
const V3_FULL_BYTES: usize = 105;

/// 512 bytes ([qcow2] "Header": not less than 9) to 2 MiB, the most that qemu makes or reads.
const CLUSTER_BITS_RANGE: std::ops::RangeInclusive<u32> = 9..=21;
/// Extended L2 entries cut a cluster in 32, and no piece is smaller than a sector.
const MIN_EXTENDED_CLUSTER_BITS: u32 = 14;
/// The longest L1 table that is read, as in qemu. 2 EiB of disk in clusters of 64 KiB, 128 GiB in those of 512 bytes.
const MAX_L1_BYTES: u64 = 32 << 20;
/// The largest disk: what VHDX, the format that images are converted to, can hold.
const MAX_VIRTUAL_BYTES: u64 = 64 << 40;
/// [qcow2] "Header": the name has no more than 1023 bytes.
const MAX_BACKING_NAME_BYTES: u32 = 1023;
/// How many header extensions are looked at. qemu knows five.
const MAX_EXTENSIONS: usize = 64;
/// The longest name of a backing file's format.
const MAX_FORMAT_NAME_BYTES: u32 = 16;

const EXTENSION_END: u32 = 0;
const EXTENSION_BACKING_FORMAT: u32 = 0xE279_2ACA;

/// Incompatible features, by their bit.
mod feature {
    /// Refcounts may be wrong. Nobody who only reads looks at them.
    pub(super) const DIRTY: u64 = 1 << 0;
    pub(super) const CORRUPT: u64 = 1 << 1;
    pub(super) const EXTERNAL_DATA: u64 = 1 << 2;
    pub(super) const COMPRESSION_TYPE: u64 = 1 << 3;
    pub(super) const EXTENDED_L2: u64 = 1 << 4;
    pub(super) const KNOWN: u64 = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION_TYPE | EXTENDED_L2;
}

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// 2 or 3.
    pub(crate) version: u32,
    /// In [`CLUSTER_BITS_RANGE`].
    pub(crate) cluster_bits: u32,
    /// Whole sectors, up to [`MAX_VIRTUAL_BYTES`], not zero.
    pub(crate) virtual_bytes: u64,
    /// Where the L1 table stands: at a cluster, in the file.
    pub(crate) l1_at: u64,
    /// How many of its entries the disk needs. They lie in the file.
    pub(crate) l1_entries: u64,
    pub(crate) compression: Compression,
    pub(crate) extended_l2: bool,
    pub(crate) backing: Option<Backing>,
}

/// The file under an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backing {
    /// As the header gives it: text of a stranger.
    pub(crate) name: String,
    /// Its format's name as qemu spells it, where the image says it.
    pub(crate) format: Option<String>,
}

/// The fields of the header as they stand.
#[derive(Debug, Default)]
struct Fields {
    version: u32,
    backing_at: u64,
    backing_bytes: u32,
    cluster_bits: u32,
    size: u64,
    crypt_method: u32,
    l1_entries: u32,
    l1_at: u64,
    incompatible: u64,
    header_bytes: u32,
    compression: u8,
}

/// Whether these first bytes of a file are those of a qcow image.
pub(crate) fn is_signed(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

impl Header {
    pub(crate) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// How many bytes an L2 entry has.
    pub(crate) fn l2_entry_bytes(&self) -> u64 {
        if self.extended_l2 { 16 } else { 8 }
    }

    /// How many guest clusters an L2 table describes: it has the size of a cluster.
    pub(crate) fn l2_entries(&self) -> u64 {
        self.cluster_bytes().checked_div(self.l2_entry_bytes()).unwrap_or_default()
    }

    pub(crate) fn read(storage: &dyn Storage) -> Result<Self, Refusal> {
        let mut bytes = [0; V3_FULL_BYTES];
        let head = usize::try_from(storage.len().get()).unwrap_or(usize::MAX).min(bytes.len());
        let head = bytes.get_mut(..head).unwrap_or_default();
        storage.read_at(ByteOffset::ZERO, head, Patience::Blocking)?;
        if !is_signed(head) {
            let problem = "it has no qcow2 signature";
            return Err(Refusal::NotThisFormat { format: Format::Qcow2, problem });
        }
        let fields = Fields::parse(head)?;
        fields.check_features()?;
        let mut header = fields.header(storage.len().get())?;
        header.backing = fields.backing(storage)?;
        Ok(header)
    }
}

impl Fields {
    fn parse(head: &[u8]) -> Result<Self, Refusal> {
        let short = || Refusal::from(damage("it is cut short"));
        let mut cursor = Cursor::new(head);
        let mut fields = Self::base(&mut cursor).ok_or_else(short)?;
        match fields.version {
            2 => fields.header_bytes = V2_BYTES as u32,
            3 => {
                fields.extend(&mut cursor).ok_or_else(short)?;
                if (fields.header_bytes as usize) < V3_BYTES {
                    let problem =
                        format!("it says that it has {} bytes, not {V3_BYTES} or more", fields.header_bytes);
                    return Err(damage(problem).into());
                }
                // [qcow2] "Additional fields": a field that the header is too short for counts as zero.
                if fields.header_bytes as usize >= V3_FULL_BYTES {
                    fields.compression = cursor.u8().ok_or_else(short)?;
                }
            }
            1 => return Err(Refusal::unsupported(RULE, "qcow version 1")),
            other => return Err(Refusal::unsupported(RULE, format!("qcow2 version {other}"))),
        }
        Ok(fields)
    }

    fn base(cursor: &mut Cursor<'_>) -> Option<Self> {
        cursor.skip(MAGIC.len())?;
        let fields = Self {
            version: cursor.be_u32()?,
            backing_at: cursor.be_u64()?,
            backing_bytes: cursor.be_u32()?,
            cluster_bits: cursor.be_u32()?,
            size: cursor.be_u64()?,
            crypt_method: cursor.be_u32()?,
            l1_entries: cursor.be_u32()?,
            l1_at: cursor.be_u64()?,
            ..Self::default()
        };
        let _refcount_table = (cursor.be_u64()?, cursor.be_u32()?);
        let _snapshots = (cursor.be_u32()?, cursor.be_u64()?);
        Some(fields)
    }

    fn extend(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        self.incompatible = cursor.be_u64()?;
        let _compatible = cursor.be_u64()?;
        let _autoclear = cursor.be_u64()?;
        let _refcount_order = cursor.be_u32()?;
        self.header_bytes = cursor.be_u32()?;
        Some(())
    }

    fn check_features(&self) -> Result<(), Refusal> {
        let has = |feature: u64| self.incompatible & feature != 0;
        let unknown = self.incompatible & !feature::KNOWN;
        if unknown != 0 {
            let what = format!("a qcow2 image with unknown incompatible features ({unknown:#x})");
            return Err(Refusal::unsupported(RULE, what));
        }
        if has(feature::CORRUPT) {
            // [qcow2] "Header": whoever finds this bit must not write; what reads would give is anybody's guess.
            let problem = "the image is marked as corrupt; repair it with \"qemu-img check -r all\" first";
            return Err(damage(problem).into());
        }
        if has(feature::EXTERNAL_DATA) {
            return Err(Refusal::unsupported(RULE, "a qcow2 image with an external data file"));
        }
        let encryption = match self.crypt_method {
            0 => None,
            1 => Some("AES".to_owned()),
            2 => Some("LUKS".to_owned()),
            other => Some(format!("method {other}")),
        };
        if let Some(method) = encryption {
            return Err(Refusal::unsupported(RULE, format!("an encrypted qcow2 image ({method})")));
        }
        // [qcow2] "Additional fields": the bit is set exactly if the type is not zlib.
        if has(feature::COMPRESSION_TYPE) != (self.compression != 0) {
            let problem = format!("compression type {} goes with the wrong feature bit", self.compression);
            return Err(damage(problem).into());
        }
        Ok(())
    }

    fn header(&self, file_bytes: u64) -> Result<Header, Refusal> {
        if !CLUSTER_BITS_RANGE.contains(&self.cluster_bits) {
            let problem = format!("clusters of 2^{} bytes are not from 512 B to 2 MiB", self.cluster_bits);
            return Err(damage(problem).into());
        }
        let extended_l2 = self.incompatible & feature::EXTENDED_L2 != 0;
        if extended_l2 && self.cluster_bits < MIN_EXTENDED_CLUSTER_BITS {
            let problem = format!("clusters of 2^{} bytes are too small for subclusters", self.cluster_bits);
            return Err(damage(problem).into());
        }
        let mut header = Header {
            version: self.version,
            cluster_bits: self.cluster_bits,
            virtual_bytes: self.size,
            l1_at: self.l1_at,
            l1_entries: 0,
            compression: match self.compression {
                0 => Compression::Deflate,
                1 => Compression::Zstd,
                other => {
                    return Err(Refusal::unsupported(RULE, format!("qcow2 compression type {other}")));
                }
            },
            extended_l2,
            backing: None,
        };
        if self.header_bytes as u64 > header.cluster_bytes() {
            let problem = format!("its {} bytes do not lie in the first cluster", self.header_bytes);
            return Err(damage(problem).into());
        }
        check_size(self.size)?;
        let covered = header.cluster_bytes().saturating_mul(header.l2_entries());
        header.l1_entries = self.size.div_ceil(covered.max(1));
        self.check_l1(&header, file_bytes)?;
        Ok(header)
    }

    fn check_l1(&self, header: &Header, file_bytes: u64) -> Result<(), Refusal> {
        let bytes = header.l1_entries.saturating_mul(8);
        if bytes > MAX_L1_BYTES {
            let what = format!("a qcow2 image with an L1 table of {bytes} bytes (more than {MAX_L1_BYTES})");
            return Err(Refusal::unsupported(RULE, what));
        }
        if u64::from(self.l1_entries) < header.l1_entries {
            let problem = format!(
                "the L1 table has {} entries, a disk of {} bytes needs {}",
                self.l1_entries, self.size, header.l1_entries
            );
            return Err(damage(problem).into());
        }
        let ends = self.l1_at.checked_add(bytes);
        // [qcow2] "Header": must be aligned to a cluster boundary. The header has the first cluster.
        if self.l1_at < header.cluster_bytes()
            || !self.l1_at.is_multiple_of(header.cluster_bytes())
            || ends.is_none_or(|end| end > file_bytes)
        {
            let problem = format!(
                "the L1 table, {bytes} bytes at {:#x}, does not lie at a cluster behind the header and in the \
                 file of {file_bytes} bytes",
                self.l1_at
            );
            return Err(damage(problem).into());
        }
        Ok(())
    }

    fn backing(&self, storage: &dyn Storage) -> Result<Option<Backing>, Refusal> {
        if self.backing_at == 0 {
            return Ok(None);
        }
        let end = self.backing_at.checked_add(u64::from(self.backing_bytes));
        let cluster_bytes = 1_u64.checked_shl(self.cluster_bits).unwrap_or_default();
        // [qcow2] "Header": the name lies in the first cluster.
        if self.backing_bytes > MAX_BACKING_NAME_BYTES || end.is_none_or(|end| end > cluster_bytes) {
            let problem = format!(
                "the backing file's name, {} bytes at {:#x}, does not lie in the first cluster or is longer than \
                 {MAX_BACKING_NAME_BYTES} bytes",
                self.backing_bytes, self.backing_at
            );
            return Err(damage(problem).into());
        }
        let name = read_text(storage, self.backing_at, self.backing_bytes)?;
        if name.is_empty() {
            return Ok(None);
        }
        Ok(Some(Backing { name, format: self.backing_format(storage)? }))
    }

    /// The header extensions follow the header and end before the backing file's name.
    fn backing_format(&self, storage: &dyn Storage) -> Result<Option<String>, Refusal> {
        let mut at = u64::from(self.header_bytes);
        for _ in 0..MAX_EXTENSIONS {
            if at.checked_add(8).is_none_or(|body| body > self.backing_at) {
                return Ok(None);
            }
            let mut head = [0; 8];
            storage.read_at(ByteOffset::new(at), &mut head, Patience::Blocking)?;
            let mut cursor = Cursor::new(&head);
            let (kind, length) = cursor.be_u32().zip(cursor.be_u32()).unwrap_or_default();
            let body = at.saturating_add(8);
            match kind {
                EXTENSION_END => return Ok(None),
                EXTENSION_BACKING_FORMAT if length <= MAX_FORMAT_NAME_BYTES => {
                    return read_text(storage, body, length).map(Some);
                }
                EXTENSION_BACKING_FORMAT => {
                    let problem = format!("the backing file's format has a name of {length} bytes");
                    return Err(Damage::new("header extension", at, EXTENSION_RULE, problem).into());
                }
                // [qcow2] "Header extensions": unknown ones are skipped; each is padded to 8 bytes.
                _ => at = body.saturating_add(u64::from(length).next_multiple_of(8)),
            }
        }
        let problem = format!("there are more than {MAX_EXTENSIONS} header extensions");
        Err(Damage::new("header extension", at, EXTENSION_RULE, problem).into())
    }
}

fn check_size(size: u64) -> Result<(), Refusal> {
    if size == 0 {
        return Err(Refusal::Empty);
    }
    if size > MAX_VIRTUAL_BYTES || !size.is_multiple_of(512) {
        let size = ByteLength::new(size);
        let what = format!("a qcow2 image of {size} (not whole sectors up to 64 TiB)");
        return Err(Refusal::unsupported(RULE, what));
    }
    Ok(())
}

fn read_text(storage: &dyn Storage, at: u64, length: u32) -> Result<String, Refusal> {
    let mut bytes = vec![0; length as usize];
    storage.read_at(ByteOffset::new(at), &mut bytes, Patience::Blocking)?;
    String::from_utf8(bytes)
        .map_err(|_| Damage::new(NAME, at, RULE, "a name that should stand there is not UTF-8").into())
}

fn damage(problem: impl Into<String>) -> Damage {
    Damage::new(NAME, 0, RULE, problem)
}
