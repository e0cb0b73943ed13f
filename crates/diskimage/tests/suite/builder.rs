//! Builds small VHDX files in memory, from the specification's tables and not from the crate's code, so that a test
//! can put any value anywhere.
use block::{ByteLength, ByteOffset};
use diskimage::storage::MemoryStorage;
use diskimage::{Image, OpenError, OpenOptions};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const LOG_AT: u64 = MIB;
pub(crate) const METADATA_AT: u64 = 2 * MIB;
pub(crate) const BAT_AT: u64 = 3 * MIB;
pub(crate) const LOG_GUID: [u8; 16] = *b"the log's guid!!";

/// A VHDX file to be.
#[derive(Clone, Debug)]
pub(crate) struct Vhdx {
    pub(crate) block_bytes: u32,
    pub(crate) sector: u32,
    pub(crate) virtual_bytes: u64,
    /// Whether its blocks stay allocated.
    pub(crate) is_fixed: bool,
    /// Whether it is a differencing file.
    pub(crate) has_parent: bool,
    /// Each byte of the `DataWriteGuid`.
    pub(crate) id: u8,
    /// What the parent locator says: of a parent that was made here, in the same folder.
    pub(crate) locator: Vec<(&'static str, String)>,
    /// The BAT's entries, by their index in the table, as they are stored.
    pub(crate) bat: Vec<(u64, u64)>,
    /// What lies where in the file, behind the structures.
    pub(crate) data: Vec<(u64, Vec<u8>)>,
    pub(crate) file_bytes: u64,
    /// Whether the header says that the log must be replayed.
    pub(crate) dirty: bool,
    /// What lies where in the log.
    pub(crate) log: Vec<(u64, Vec<u8>)>,
}

impl Vhdx {
    /// Of a disk of this size; the file has room for `room` bytes behind the structures.
    pub(crate) fn new(virtual_bytes: u64, room: u64) -> Self {
        let bat_bytes = 1024 * MIB;
        Self {
            block_bytes: 1 << 20,
            sector: 512,
            virtual_bytes,
            is_fixed: false,
            has_parent: false,
            id: 0x11,
            locator: vec![("parent_linkage", guid_of(0x11)), ("relative_path", ".\\parent.vhdx".into())],
            bat: Vec::new(),
            data: Vec::new(),
            file_bytes: BAT_AT + bat_bytes.min(MIB) + room,
            dirty: false,
            log: Vec::new(),
        }
    }

    /// Where the first payload block can be.
    pub(crate) fn payload_at(&self) -> u64 {
        BAT_AT + self.bat_region_bytes()
    }

    /// How long the BAT's region is: 513 MiB for the largest disk in the smallest blocks.
    fn bat_region_bytes(&self) -> u64 {
        let blocks = self.virtual_bytes.div_ceil(u64::from(self.block_bytes));
        (blocks * 8 + blocks * 8 / 16).next_multiple_of(MIB)
    }

    pub(crate) fn build(&self) -> MemoryStorage {
        let mut file = MemoryStorage::sparse(ByteLength::new(0));
        let mut put = |at: u64, bytes: &[u8]| file.put(ByteOffset::new(at), bytes);
        put(0, b"vhdxfile");
        for (slot, at) in [0x10000, 0x20000].into_iter().enumerate() {
            put(at, &self.header(slot as u64 + 7));
        }
        for at in [0x30000, 0x40000] {
            put(at, &self.region_table());
        }
        put(METADATA_AT, &self.metadata_table());
        put(METADATA_AT + 0x10000, &self.metadata_items());
        for (index, entry) in &self.bat {
            put(BAT_AT + index * 8, &entry.to_le_bytes());
        }
        for (at, bytes) in &self.data {
            put(*at, bytes);
        }
        for (at, bytes) in &self.log {
            for (index, sector) in bytes.chunks(4096).enumerate() {
                put(LOG_AT + (at + index as u64 * 4096) % MIB, sector);
            }
        }
        file.set_len(ByteLength::new(self.file_bytes));
        file
    }

    pub(crate) fn open(&self) -> Result<Image, OpenError> {
        Image::from_storage(Box::new(self.build()), OpenOptions::default())
    }

    pub(crate) fn refusal(&self) -> String {
        self.open().map(|image| image.info()).unwrap_err().refusal.to_string()
    }

    fn header(&self, sequence: u64) -> Vec<u8> {
        let mut header = b"head\0\0\0\0".to_vec();
        header.extend(sequence.to_le_bytes());
        header.extend([0x11; 16]);
        header.extend([self.id; 16]);
        header.extend(if self.dirty { LOG_GUID } else { [0; 16] });
        header.extend([0, 0, 1, 0]);
        header.extend((MIB as u32).to_le_bytes());
        header.extend(LOG_AT.to_le_bytes());
        header.resize(4096, 0);
        sealed(header)
    }

    fn region_table(&self) -> Vec<u8> {
        let mut table = b"regi\0\0\0\0\x02\0\0\0\0\0\0\0".to_vec();
        let regions = [
            (0x2DC2_7766_F623_4200_9D64_115E_9BFD_4A08, BAT_AT, self.bat_region_bytes()),
            (0x8B7C_A206_4790_4B9A_B8FE_575F_050F_886E, METADATA_AT, MIB),
        ];
        for (guid, at, length) in regions {
            table.extend(guid_bytes(guid));
            table.extend(at.to_le_bytes());
            table.extend((length as u32).to_le_bytes());
            table.extend([1, 0, 0, 0]);
        }
        table.resize(64 << 10, 0);
        sealed(table)
    }

    fn metadata_items(&self) -> Vec<u8> {
        let mut items = self.block_bytes.to_le_bytes().to_vec();
        items.extend((u32::from(self.is_fixed) | (u32::from(self.has_parent) << 1)).to_le_bytes());
        items.extend(self.virtual_bytes.to_le_bytes());
        items.extend([0x22; 16]);
        items.extend(self.sector.to_le_bytes());
        items.extend(512_u32.to_le_bytes());
        items.resize(LOCATOR_OFFSET as usize, 0);
        items.extend(locator(&self.locator));
        items
    }

    fn metadata_table(&self) -> Vec<u8> {
        metadata_table(if self.has_parent { 6 } else { 5 }, locator(&self.locator).len() as u32)
    }
}

/// The identifier of which each byte is `id`, as locators write it.
pub(crate) fn guid_of(id: u8) -> String {
    format!("{{{}}}", diskimage::Guid::from_le_bytes([id; 16]))
}

/// Where the parent locator stands among the items.
const LOCATOR_OFFSET: u32 = 0x100;

/// A parent locator ([MS-VHDX] §2.6.2.6).
fn locator(pairs: &[(&str, String)]) -> Vec<u8> {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let mut locator = guid_bytes(0xB04A_EFB7_D19E_4A81_B789_25B8_E944_5913).to_vec();
    locator.extend([0, 0, pairs.len() as u8, 0]);
    let mut texts = Vec::new();
    let texts_at = 20 + 12 * pairs.len();
    for (key, value) in pairs {
        let (key, value) = (utf16(key), utf16(value));
        let key_at = (texts_at + texts.len()) as u32;
        locator.extend(key_at.to_le_bytes());
        locator.extend((key_at + key.len() as u32).to_le_bytes());
        locator.extend((key.len() as u16).to_le_bytes());
        locator.extend((value.len() as u16).to_le_bytes());
        texts.extend(key);
        texts.extend(value);
    }
    locator.extend(texts);
    locator
}

fn metadata_table(count: usize, locator_bytes: u32) -> Vec<u8> {
    let mut table = b"metadata\0\0".to_vec();
    table.extend((count as u16).to_le_bytes());
    table.resize(32, 0);
    let items: [(u128, u32, u32); 6] = [
        (0xCAA1_6737_FA36_4D43_B3B6_33F0_AA44_E76B, 0, 8),
        (0x2FA5_4224_CD1B_4876_B211_5DBE_D83B_F4B8, 8, 8),
        (0xBECA_12AB_B2E6_4523_93EF_C309_E000_C746, 16, 16),
        (0x8141_BF1D_A96F_4709_BA47_F233_A8FA_AB5F, 32, 4),
        (0xCDA3_48C7_445D_4471_9CC9_E988_5251_C556, 36, 4),
        (0xA8D3_5F2D_B30B_454D_ABF7_D3D8_4834_AB0C, LOCATOR_OFFSET, locator_bytes),
    ];
    for (guid, offset, length) in items.into_iter().take(count) {
        table.extend(guid_bytes(guid));
        table.extend((0x10000 + offset).to_le_bytes());
        table.extend(length.to_le_bytes());
        table.extend([6, 0, 0, 0, 0, 0, 0, 0]);
    }
    table
}

/// A change that a log entry holds.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Data { at: u64, sector: Vec<u8> },
    Zero { at: u64, length: u64 },
}

/// A log entry to be.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) sequence: u64,
    pub(crate) tail: u64,
    pub(crate) guid: [u8; 16],
    pub(crate) flushed: u64,
    pub(crate) last: u64,
    pub(crate) changes: Vec<Change>,
}

impl Entry {
    pub(crate) fn build(&self) -> Vec<u8> {
        let sectors: Vec<&Vec<u8>> = self
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::Data { sector, .. } => Some(sector),
                Change::Zero { .. } => None,
            })
            .collect();
        let head_bytes = (64 + 32 * self.changes.len()).next_multiple_of(4096);
        let length = head_bytes + sectors.len() * 4096;
        let mut entry = b"loge\0\0\0\0".to_vec();
        entry.extend((length as u32).to_le_bytes());
        entry.extend((self.tail as u32).to_le_bytes());
        entry.extend(self.sequence.to_le_bytes());
        entry.extend((self.changes.len() as u64).to_le_bytes());
        entry.extend(self.guid);
        entry.extend(self.flushed.to_le_bytes());
        entry.extend(self.last.to_le_bytes());
        for change in &self.changes {
            match change {
                Change::Data { at, sector } => {
                    entry.extend(b"desc");
                    entry.extend(&sector[4092..]);
                    entry.extend(&sector[..8]);
                    entry.extend(at.to_le_bytes());
                }
                Change::Zero { at, length } => {
                    entry.extend(b"zero\0\0\0\0");
                    entry.extend(length.to_le_bytes());
                    entry.extend(at.to_le_bytes());
                }
            }
            entry.extend(self.sequence.to_le_bytes());
        }
        entry.resize(head_bytes, 0);
        for sector in sectors {
            entry.extend(b"data");
            entry.extend(((self.sequence >> 32) as u32).to_le_bytes());
            entry.extend(&sector[8..4092]);
            entry.extend((self.sequence as u32).to_le_bytes());
        }
        sealed(entry)
    }
}

/// With its checksum, which counts as zero while it is computed.
pub(crate) fn sealed(mut structure: Vec<u8>) -> Vec<u8> {
    structure[4..8].fill(0);
    let sum = crc32c::crc32c(&structure);
    structure[4..8].copy_from_slice(&sum.to_le_bytes());
    structure
}

/// In Microsoft's byte order.
fn guid_bytes(guid: u128) -> [u8; 16] {
    let mut bytes = guid.to_be_bytes();
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}
