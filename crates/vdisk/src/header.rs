//! The header of a write cache's file: whose it is, and whether it can be trusted.
//!
//! One cluster, little-endian, all that is not named is zero:
//!
//! ```text
//!   0   8  magic "HWWCACHE"            88   8  clusters that hold data (when clean)
//!   8   4  version, 1                  96   4  CRC-32C of the map (when clean)
//!  12   4  CRC-32C of the header      100   1  length of the device's name, 1 to 128
//!  16   8  size of the device         101   1  length of the boot's name, 1 to 64
//!  24   4  logical block              128 128  the device's name, UTF-8
//!  28   4  cluster, 4096              256  64  the boot's name, ASCII
//!  32  32  fingerprint of the image   320      nothing
//!  64  16  boot of the host
//!  80   4  process that holds it
//!  84   4  flags: bit 0, clean; bit 1, persistent: a second map before the header
//! ```
//! The CRC is that of the whole header with zeros in its own place.
use block::LogicalBlockSize;

use crate::cluster::CLUSTER_BYTES;
use crate::identity::{
    BootId, HostBoot, ImageFingerprint, ImageIdentity, MAX_BOOT_ID_BYTES, MAX_DEVICE_BYTES, is_device_name,
};
use crate::layout::HEADER_BYTES;

const MAGIC: &[u8; 8] = b"HWWCACHE";
const VERSION: u32 = 1;
const CRC_AT: usize = 12;
const DEVICE_AT: usize = 128;
const BOOT_AT: usize = 256;
const FLAG_CLEAN: u32 = 1;
const FLAG_PERSISTENT: u32 = 2;

/// What a cleanly closed file says about its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clean {
    pub(crate) data_clusters: u64,
    pub(crate) map_crc32c: u32,
}

/// The header as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) device: String,
    pub(crate) boot: BootId,
    pub(crate) image: ImageIdentity,
    pub(crate) host_boot: HostBoot,
    pub(crate) owner_pid: u32,
    pub(crate) persistent: bool,
    pub(crate) clean: Option<Clean>,
}

/// Why bytes are no header. Each names the rule and what was found.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum HeaderError {
    #[error("the header is {0} bytes long and not {HEADER_BYTES}")]
    Length(usize),
    #[error("the header does not begin as one of a write cache")]
    Magic,
    #[error("the header is of version {0}, this program knows version {VERSION}")]
    Version(u32),
    #[error("the header's checksum is {stored:#010x}, that of its bytes {computed:#010x}")]
    Checksum { stored: u32, computed: u32 },
    #[error("the header gives {name} the value {value}, which it cannot have")]
    Field { name: &'static str, value: u64 },
    #[error("the header's {0} is not one")]
    Text(&'static str),
}

impl Header {
    /// The header as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (clean, clean_flag) = match self.clean {
            Some(clean) => (clean, FLAG_CLEAN),
            None => (Clean { data_clusters: 0, map_crc32c: 0 }, 0),
        };
        let flags = clean_flag | if self.persistent { FLAG_PERSISTENT } else { 0 };
        bytes.extend_from_slice(MAGIC);
        put_u32(&mut bytes, VERSION);
        put_u32(&mut bytes, 0);
        put_u64(&mut bytes, self.image.size_bytes);
        put_u32(&mut bytes, u32::try_from(self.image.logical_block.bytes()).unwrap_or_default());
        put_u32(&mut bytes, u32::try_from(CLUSTER_BYTES).unwrap_or_default());
        bytes.extend_from_slice(&self.image.fingerprint.0);
        bytes.extend_from_slice(&self.host_boot.0);
        put_u32(&mut bytes, self.owner_pid);
        put_u32(&mut bytes, flags);
        put_u64(&mut bytes, clean.data_clusters);
        put_u32(&mut bytes, clean.map_crc32c);
        // Both lengths were checked when the names were made.
        bytes.push(u8::try_from(self.device.len()).unwrap_or_default());
        bytes.push(u8::try_from(self.boot.as_str().len()).unwrap_or_default());
        bytes.resize(DEVICE_AT, 0);
        bytes.extend_from_slice(self.device.as_bytes());
        bytes.resize(BOOT_AT, 0);
        bytes.extend_from_slice(self.boot.as_str().as_bytes());
        bytes.resize(usize::try_from(HEADER_BYTES).unwrap_or_default(), 0);
        let crc = crc32c::crc32c(&bytes);
        for (target, byte) in bytes.iter_mut().skip(CRC_AT).zip(crc.to_le_bytes()) {
            *target = byte;
        }
        bytes
    }

    /// Reads a header.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeaderError> {
        if u64::try_from(bytes.len()) != Ok(HEADER_BYTES) {
            return Err(HeaderError::Length(bytes.len()));
        }
        if field(bytes, 0)? != *MAGIC {
            return Err(HeaderError::Magic);
        }
        let version = u32_at(bytes, 8)?;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        let (stored, computed) = (u32_at(bytes, CRC_AT)?, checksum(bytes));
        if stored != computed {
            return Err(HeaderError::Checksum { stored, computed });
        }
        let cluster = u32_at(bytes, 28)?;
        if u64::from(cluster) != CLUSTER_BYTES {
            return Err(HeaderError::Field { name: "the cluster", value: u64::from(cluster) });
        }
        let flags = u32_at(bytes, 84)?;
        if flags & !(FLAG_CLEAN | FLAG_PERSISTENT) != 0 {
            return Err(HeaderError::Field { name: "the flags", value: u64::from(flags) });
        }
        let clean = match flags & FLAG_CLEAN {
            0 => None,
            _ => Some(Clean { data_clusters: u64_at(bytes, 88)?, map_crc32c: u32_at(bytes, 96)? }),
        };
        let device = text(bytes, 100, DEVICE_AT, MAX_DEVICE_BYTES, "device name")?;
        if !is_device_name(&device) {
            return Err(HeaderError::Text("device name"));
        }
        let boot = text(bytes, 101, BOOT_AT, MAX_BOOT_ID_BYTES, "boot name")?;
        Ok(Self {
            device,
            boot: BootId::new(boot).map_err(|_| HeaderError::Text("boot name"))?,
            image: decode_image(bytes)?,
            host_boot: HostBoot(field(bytes, 64)?),
            owner_pid: u32_at(bytes, 80)?,
            persistent: flags & FLAG_PERSISTENT != 0,
            clean,
        })
    }
}

fn decode_image(bytes: &[u8]) -> Result<ImageIdentity, HeaderError> {
    let size_bytes = u64_at(bytes, 16)?;
    let block = u64::from(u32_at(bytes, 24)?);
    let logical_block = LogicalBlockSize::from_bytes(block)
        .ok_or(HeaderError::Field { name: "the logical block", value: block })?;
    if !size_bytes.is_multiple_of(block) {
        return Err(HeaderError::Field { name: "the device's size", value: size_bytes });
    }
    Ok(ImageIdentity { size_bytes, logical_block, fingerprint: ImageFingerprint(field(bytes, 32)?) })
}

/// The CRC of the header with zeros in the CRC's own place.
fn checksum(bytes: &[u8]) -> u32 {
    let (head, rest) = bytes.split_at_checked(CRC_AT).unwrap_or((bytes, &[]));
    let crc = crc32c::crc32c_append(crc32c::crc32c(head), &[0; 4]);
    crc32c::crc32c_append(crc, rest.get(4..).unwrap_or_default())
}

fn text(
    bytes: &[u8],
    length_at: usize,
    at: usize,
    most: usize,
    name: &'static str,
) -> Result<String, HeaderError> {
    let length = usize::from(field::<1>(bytes, length_at)?[0]);
    if length > most {
        return Err(HeaderError::Text(name));
    }
    let found = bytes.get(at..).and_then(|rest| rest.get(..length)).ok_or(HeaderError::Text(name))?;
    String::from_utf8(found.to_vec()).map_err(|_| HeaderError::Text(name))
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], HeaderError> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().ok_or(HeaderError::Length(bytes.len()))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, HeaderError> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, HeaderError> {
    field(bytes, at).map(u64::from_le_bytes)
}

fn put_u32(bytes: &mut Vec<u8>, value: u32) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            device: "lab-07".into(),
            boot: BootId::new("boot-1").unwrap(),
            image: ImageIdentity {
                size_bytes: 1 << 30,
                logical_block: LogicalBlockSize::B512,
                fingerprint: ImageFingerprint([0xAB; 32]),
            },
            host_boot: HostBoot([7; 16]),
            owner_pid: 4711,
            persistent: false,
            clean: Some(Clean { data_clusters: 5, map_crc32c: 0x1234_5678 }),
        }
    }

    /// Puts the right checksum into changed bytes, so that the checks behind it are reached.
    fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = checksum(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn header_reads_back_as_written_with_every_field_in_its_place() {
        let bytes = sample().encode();
        assert_eq!(Header::decode(&bytes), Ok(sample()));
        assert_eq!(bytes.len(), 4096);
        assert_eq!(&bytes[..12], b"HWWCACHE\x01\0\0\0");
        assert_eq!(bytes[16..32], [0, 0, 0, 0x40, 0, 0, 0, 0, 0, 2, 0, 0, 0, 16, 0, 0]);
        assert_eq!((&bytes[32..64], &bytes[64..80]), ([0xAB; 32].as_slice(), [7; 16].as_slice()));
        assert_eq!(bytes[80..102], *b"\x67\x12\0\0\x01\0\0\0\x05\0\0\0\0\0\0\0\x78\x56\x34\x12\x06\x06");
        assert_eq!((&bytes[128..135], &bytes[256..263]), (&b"lab-07\0"[..], &b"boot-1\0"[..]));
        let dirty = Header { clean: None, ..sample() };
        assert_eq!(Header::decode(&dirty.encode()), Ok(dirty));
        let persistent = Header { persistent: true, ..sample() };
        assert_eq!(persistent.encode()[84], 3);
        assert_eq!(Header::decode(&persistent.encode()), Ok(persistent));
    }

    #[test]
    fn header_with_an_impossible_field_names_it() {
        let with = |at: usize, byte: u8| {
            let mut bytes = sample().encode();
            bytes[at] = byte;
            Header::decode(&seal(bytes)).unwrap_err()
        };
        assert_eq!(with(0, b'X'), HeaderError::Magic);
        assert_eq!(with(8, 2), HeaderError::Version(2));
        assert_eq!(with(25, 3), HeaderError::Field { name: "the logical block", value: 768 });
        assert_eq!(with(16, 1), HeaderError::Field { name: "the device's size", value: (1 << 30) + 1 });
        assert_eq!(with(29, 32), HeaderError::Field { name: "the cluster", value: 8192 });
        assert_eq!(with(84, 5), HeaderError::Field { name: "the flags", value: 5 });
        assert_eq!(with(100, 0), HeaderError::Text("device name"));
        assert_eq!(with(100, 129), HeaderError::Text("device name"));
        assert_eq!(with(101, 65), HeaderError::Text("boot name"));
        assert_eq!(with(256, b'A'), HeaderError::Text("boot name"));
        let mut flipped = sample().encode();
        flipped[4000] = 1;
        assert!(matches!(Header::decode(&flipped), Err(HeaderError::Checksum { .. })));
        assert_eq!(Header::decode(&[0; 10]), Err(HeaderError::Length(10)));
    }

    #[test]
    fn mutated_headers_decode_or_fail_without_panic() {
        let mutator = mutate::Mutator::new(vec![sample().encode()], 5000);
        mutator.run(5_000, |bytes| {
            let _ = Header::decode(bytes);
            let mut sized = bytes.to_vec();
            sized.resize(4096, 0);
            if let Ok(header) = Header::decode(&seal(sized)) {
                assert_eq!(Header::decode(&header.encode()), Ok(header));
            }
        });
    }
}
