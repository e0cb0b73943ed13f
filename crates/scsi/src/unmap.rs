//! The parameter list of UNMAP (SBC-3 §5.28.2).
use block::ByteRange;

use crate::cdb::Extent;
use crate::disk::{Disk, MAX_UNMAP_BLOCKS, MAX_UNMAP_DESCRIPTORS};
use crate::sense::{AdditionalSense, CheckCondition};

/// UNMAP parameter list header.
const HEADER_BYTES: usize = 8;
/// One UNMAP block descriptor.
const DESCRIPTOR_BYTES: usize = 16;

/// The ranges in `list`, all of which lie on the disk. `list_bytes` is PARAMETER LIST LENGTH.
pub(crate) fn parse(disk: &Disk, list_bytes: usize, list: &[u8]) -> Result<Vec<ByteRange>, CheckCondition> {
    if list_bytes == 0 {
        return Ok(Vec::new()); // SBC-3 §5.28.1: no data is no error
    }
    let length_error = CheckCondition::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let list = list.get(..list_bytes).ok_or(length_error)?;
    let ([_, _, high, low, ..], descriptors) =
        list.split_first_chunk::<HEADER_BYTES>().ok_or(length_error)?;
    let descriptor_bytes = usize::from(u16::from_be_bytes([*high, *low]));
    let descriptors = descriptors.get(..descriptor_bytes).ok_or(length_error)?;
    // A length that is no multiple of 16 ends with a descriptor that is not there: it is ignored.
    let (descriptors, _) = descriptors.as_chunks::<DESCRIPTOR_BYTES>();
    if u32::try_from(descriptors.len()).is_ok_and(|count| count > MAX_UNMAP_DESCRIPTORS) {
        return Err(CheckCondition::parameter_field(2));
    }
    let mut total_blocks = 0_u64;
    let mut ranges = Vec::with_capacity(descriptors.len());
    for (index, descriptor) in descriptors.iter().enumerate() {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *descriptor;
        let extent = Extent {
            lba: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            blocks: u64::from(u32::from_be_bytes([i, j, k, l])),
        };
        total_blocks = total_blocks.saturating_add(extent.blocks);
        if total_blocks > u64::from(MAX_UNMAP_BLOCKS) {
            let at = index.saturating_mul(DESCRIPTOR_BYTES).saturating_add(HEADER_BYTES);
            return Err(CheckCondition::parameter_field(at.saturating_add(8)));
        }
        let range = disk.range(extent)?;
        if !range.is_empty() {
            ranges.push(range);
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// A parameter list of these extents.
    fn list(extents: &[(u64, u32)]) -> Vec<u8> {
        let descriptor_bytes = extents.len() * DESCRIPTOR_BYTES;
        let mut list = (descriptor_bytes as u16 + 6).to_be_bytes().to_vec();
        list.extend_from_slice(&(descriptor_bytes as u16).to_be_bytes());
        list.extend_from_slice(&[0; 4]);
        for (lba, blocks) in extents {
            list.extend_from_slice(&lba.to_be_bytes());
            list.extend_from_slice(&blocks.to_be_bytes());
            list.extend_from_slice(&[0; 4]);
        }
        list
    }

    fn parsed(list: &[u8]) -> Result<Vec<(u64, u64)>, CheckCondition> {
        let ranges = parse(&testing::disk(), list.len(), list)?;
        Ok(ranges.iter().map(|range| (range.start().get() / 512, range.length().get() / 512)).collect())
    }

    #[test]
    fn descriptors_become_ranges_and_empty_ones_nothing() {
        assert_eq!(parsed(&list(&[(3, 5), (4096, 0), (4095, 1)])).unwrap(), [(3, 5), (4095, 1)]);
        assert_eq!(parsed(&[]).unwrap(), []);
        assert_eq!(parsed(&list(&[])).unwrap(), []);
    }

    #[test]
    fn descriptor_past_the_end_refuses_the_whole_list() {
        let check = parsed(&list(&[(3, 5), (4095, 2)])).unwrap_err();
        assert_eq!(check, CheckCondition::illegal(AdditionalSense::LBA_OUT_OF_RANGE).about(4095));
    }

    #[test]
    fn cut_list_is_a_length_error() {
        let list = list(&[(3, 5), (9, 1)]);
        let error = CheckCondition::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        for length in [1, 7, 8, 39] {
            assert_eq!(parsed(&list[..length]).unwrap_err(), error, "{length} bytes");
        }
        assert_eq!(parse(&testing::disk(), 40, &list[..39]).unwrap_err(), error);
    }

    #[test]
    fn too_much_at_once_is_refused() {
        assert_eq!(parsed(&list(&[(0, 1); 257])).unwrap_err(), CheckCondition::parameter_field(2));
        assert!(parsed(&list(&[(0, 1); 256])).is_ok());
        let check = parsed(&list(&[(0, 1), (0, MAX_UNMAP_BLOCKS)])).unwrap_err();
        assert_eq!(check, CheckCondition::parameter_field(8 + 16 + 8));
    }
}
