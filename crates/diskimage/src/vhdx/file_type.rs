//! The file type identifier, at the file's start: the signature, and who made the file ([MS-VHDX] §2.2.1).
use super::read_bytes;
use crate::error::Refusal;
use crate::format::Format;
use crate::storage::Storage;

const SIGNATURE: &[u8] = b"vhdxfile";
const CREATOR_BYTES: usize = 512;

/// Whether these bytes begin as a VHDX file does.
pub(crate) fn is_signed(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// Checks the signature and gives the creator, which is for people only.
pub(super) fn read(storage: &dyn Storage) -> Result<String, Refusal> {
    let missing =
        Refusal::NotThisFormat { format: Format::Vhdx, problem: "it has no VHDX signature at its start" };
    if storage.len().get() < SIGNATURE.len() as u64 {
        return Err(missing);
    }
    let signature = read_bytes::<8>(storage, 0)?;
    if *signature != SIGNATURE {
        return Err(missing);
    }
    let creator = read_bytes::<CREATOR_BYTES>(storage, SIGNATURE.len() as u64)?;
    let units = creator.as_chunks().0.iter().map(|&unit| u16::from_le_bytes(unit));
    let name = char::decode_utf16(units.take_while(|&unit| unit != 0));
    Ok(name.map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

/// The identifier of a file that `creator` makes. What does not fit of its name is left out.
pub(super) fn encode(creator: &str) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    let units = creator.encode_utf16().take(CREATOR_BYTES / 2);
    bytes.extend(units.flat_map(u16::to_le_bytes));
    bytes.resize(SIGNATURE.len().saturating_add(CREATOR_BYTES), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    #[test]
    fn creator_is_read_up_to_its_first_zero() {
        let mut file = b"vhdxfile".to_vec();
        file.extend("Microsoft Windows 6.2.9200.0".encode_utf16().flat_map(u16::to_le_bytes));
        file.resize(8 + CREATOR_BYTES, 0);
        assert_eq!(read(&MemoryStorage::new(&file)).unwrap(), "Microsoft Windows 6.2.9200.0");
    }

    #[test]
    fn encoded_identifier_reads_as_its_creator() {
        let mut windows = b"vhdxfile".to_vec();
        windows.extend("Microsoft Windows 6.2.9200.0".encode_utf16().flat_map(u16::to_le_bytes));
        windows.resize(8 + CREATOR_BYTES, 0);
        assert_eq!(encode("Microsoft Windows 6.2.9200.0"), windows);
        let long = "x".repeat(300);
        assert_eq!(read(&MemoryStorage::new(&encode(&long))).unwrap(), long[..256]);
    }

    #[test]
    fn other_files_are_refused() {
        for bytes in [&b""[..], b"vhdx", b"vhdxfilf--------"] {
            let result = read(&MemoryStorage::new(bytes));
            assert!(matches!(result, Err(Refusal::NotThisFormat { .. })), "{result:?}");
        }
    }
}
