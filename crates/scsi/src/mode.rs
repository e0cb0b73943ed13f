//! MODE SENSE and MODE SELECT (SPC-4 §6.13 to §6.16, §7.5): the disk's parameters, of which two can be changed.
//!
//! MODE SELECT is taken wherever it changes nothing else: initiators write back what they read. Nothing is saved.
use crate::cdb::{Cdb, CdbLength};
use crate::disk::Disk;
use crate::sense::{AdditionalSense, CheckCondition};

/// The mode pages of this disk, with all of their bytes and default values, in rising order of their codes.
const PAGES: [&[u8]; 4] = [
    // Read-Write Error Recovery (SBC-3 §6.4.7): nothing to choose.
    &[0x01, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    // Caching (SBC-3 §6.4.5): WCE, so that initiators send SYNCHRONIZE CACHE or FUA where they want writes to last.
    &[CACHING, 0x12, WCE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    // Control (SPC-4 §7.5.8): GLTSD (no log parameters are saved); unrestricted reordering of tasks.
    &[CONTROL, 0x0A, 0x02, 0x10, 0, 0, 0, 0, 0, 0, 0, 0],
    // Informational Exceptions Control (SPC-4 §7.5.12): DEXCPT, none are reported.
    &[0x1C, 0x0A, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0],
];
/// PAGE CODE of the Caching page, which has WCE in its third byte.
const CACHING: u8 = 0x08;
const WCE: u8 = 0x04;
/// PAGE CODE of the Control page, which has SWP in its fifth byte.
const CONTROL: u8 = 0x0A;
const SWP: u8 = 0x08;
/// The length of a page's own header: page code and page length.
const PAGE_HEADER_BYTES: usize = 2;
/// PAGE CODE: all of them.
const ALL_PAGES: u8 = 0x3F;
/// SUBPAGE CODE: all of them.
const ALL_SUBPAGES: u8 = 0xFF;
/// DEVICE-SPECIFIC PARAMETER (SBC-3 §6.4.1): write-protected.
const WP: u8 = 0x80;
/// DEVICE-SPECIFIC PARAMETER: DPO and FUA are supported.
const DPOFUA: u8 = 0x10;

/// The parameters that MODE SELECT can change. All sessions share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeValues {
    /// SWP: writes are refused.
    pub(crate) write_protected: bool,
    /// WCE: a write may be answered before it lasts.
    pub(crate) write_cache: bool,
}

impl Default for ModeValues {
    fn default() -> Self {
        Self { write_protected: false, write_cache: true }
    }
}

impl ModeValues {
    /// The byte at `at` of page `code`, whose default is `byte`.
    fn show(self, code: u8, at: usize, byte: u8) -> u8 {
        let set = |on: bool, mask: u8| if on { byte | mask } else { byte & !mask };
        match (code, at) {
            (CACHING, 2) => set(self.write_cache, WCE),
            (CONTROL, 4) => set(self.write_protected, SWP),
            _ => byte,
        }
    }

    /// Takes over what the byte at `at` of page `code` says.
    fn take(&mut self, code: u8, at: usize, byte: u8) {
        match (code, at) {
            (CACHING, 2) => self.write_cache = byte & WCE != 0,
            (CONTROL, 4) => self.write_protected = byte & SWP != 0,
            _ => {}
        }
    }
}

/// The bits of a byte that can be changed.
const fn changeable(code: u8, at: usize) -> u8 {
    match (code, at) {
        (CACHING, 2) => WCE,
        (CONTROL, 4) => SWP,
        _ => 0,
    }
}

/// PAGE CONTROL: which values are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    Current,
    Changeable,
    Default,
}

/// MODE SENSE (6) or (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeSense {
    length: CdbLength,
    values: Values,
    page: u8,
    block_descriptor: bool,
    long_lba: bool,
    pub(crate) allocation_bytes: usize,
}

impl ModeSense {
    pub(crate) fn decode(cdb: &Cdb) -> Result<Self, CheckCondition> {
        let values = match cdb.byte(2) >> 6 {
            0 => Values::Current,
            1 => Values::Changeable,
            2 => Values::Default,
            _ => return Err(CheckCondition::illegal(AdditionalSense::SAVING_NOT_SUPPORTED)),
        };
        let page = cdb.byte(2) & 0x3F;
        let all_subpages = page == ALL_PAGES && cdb.byte(3) == ALL_SUBPAGES;
        if cdb.byte(3) != 0 && !all_subpages {
            return Err(CheckCondition::cdb_field(3));
        }
        if page != ALL_PAGES && find(page).is_none() {
            return Err(CheckCondition::cdb_bit(2, 5));
        }
        let ten = cdb.length() == CdbLength::Ten;
        let allocation_bytes = if ten { usize::from(cdb.be16(7)) } else { usize::from(cdb.byte(4)) };
        Ok(Self {
            length: cdb.length(),
            values,
            page,
            block_descriptor: !cdb.bit(1, 3),
            long_lba: ten && cdb.bit(1, 4),
            allocation_bytes,
        })
    }

    /// `current` are the values of the parameters that can be changed.
    pub(crate) fn answer(&self, disk: &Disk, current: ModeValues) -> Vec<u8> {
        let descriptor = match (self.block_descriptor, self.long_lba) {
            (false, _) => Vec::new(),
            (true, false) => short_descriptor(disk),
            (true, true) => long_descriptor(disk),
        };
        let mut pages = Vec::new();
        for page in PAGES {
            if self.page == ALL_PAGES || page.first() == Some(&self.page) {
                let code = page.first().copied().unwrap_or(0);
                pages.extend(page.iter().enumerate().map(|(at, byte)| match self.values {
                    _ if at < PAGE_HEADER_BYTES => *byte,
                    Values::Current => current.show(code, at, *byte),
                    Values::Changeable => changeable(code, at),
                    Values::Default => *byte,
                }));
            }
        }
        let write_protected = disk.read_only() || current.write_protected;
        let mut data = self.header(write_protected, descriptor.len(), pages.len());
        data.extend_from_slice(&descriptor);
        data.extend_from_slice(&pages);
        data
    }

    /// The mode parameter header (SPC-4 §7.5.5).
    fn header(&self, write_protected: bool, descriptor_bytes: usize, page_bytes: usize) -> Vec<u8> {
        let specific = DPOFUA | if write_protected { WP } else { 0 };
        let behind = descriptor_bytes.saturating_add(page_bytes);
        // MODE DATA LENGTH counts what follows itself. All of this is far below 256 bytes.
        let length = |own: usize| u8::try_from(behind.saturating_add(own)).unwrap_or(u8::MAX);
        let descriptor = u8::try_from(descriptor_bytes).unwrap_or(u8::MAX);
        if self.length == CdbLength::Six {
            vec![length(3), 0, specific, descriptor]
        } else {
            vec![0, length(6), 0, specific, u8::from(self.long_lba), 0, 0, descriptor]
        }
    }
}

/// Short LBA mode parameter block descriptor (SBC-3 §6.4.2.2).
fn short_descriptor(disk: &Disk) -> Vec<u8> {
    let mut data = u32::try_from(disk.blocks()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    data.extend_from_slice(&disk.block_bytes_u32().to_be_bytes()); // its upper byte is reserved, and 0
    data
}

/// Long LBA mode parameter block descriptor (SBC-3 §6.4.2.3).
fn long_descriptor(disk: &Disk) -> Vec<u8> {
    let mut data = disk.blocks().to_be_bytes().to_vec();
    data.extend_from_slice(&[0; 4]);
    data.extend_from_slice(&disk.block_bytes_u32().to_be_bytes());
    data
}

fn find(code: u8) -> Option<&'static [u8]> {
    PAGES.into_iter().find(|page| page.first() == Some(&code))
}

/// MODE SELECT (6) or (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeSelect {
    length: CdbLength,
    pub(crate) list_bytes: usize,
}

impl ModeSelect {
    pub(crate) fn decode(cdb: &Cdb) -> Result<Self, CheckCondition> {
        if !cdb.bit(1, 4) {
            return Err(CheckCondition::cdb_bit(1, 4)); // PF: pages are in the standard format
        }
        if cdb.bit(1, 0) {
            return Err(CheckCondition::cdb_bit(1, 0)); // SP: nothing can be saved
        }
        let ten = cdb.length() == CdbLength::Ten;
        let list_bytes = if ten { usize::from(cdb.be16(7)) } else { usize::from(cdb.byte(4)) };
        Ok(Self { length: cdb.length(), list_bytes })
    }

    /// What the parameters are after the parameter list, which must change nothing that cannot be changed.
    pub(crate) fn apply(
        &self,
        disk: &Disk,
        current: ModeValues,
        list: &[u8],
    ) -> Result<ModeValues, CheckCondition> {
        let length_error = CheckCondition::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        let list = list.get(..self.list_bytes).ok_or(length_error)?;
        if list.is_empty() {
            return Ok(current); // SPC-4 §6.13: no parameters is no error
        }
        let (descriptor_bytes, long_lba, behind_header) = self.split_header(list).ok_or(length_error)?;
        let (descriptor, pages) = behind_header.split_at_checked(descriptor_bytes).ok_or(length_error)?;
        let at = list.len().saturating_sub(behind_header.len());
        let unchanged = if long_lba { long_descriptor(disk) } else { short_descriptor(disk) };
        if !descriptor.is_empty() && descriptor != unchanged {
            return Err(CheckCondition::parameter_field(at));
        }
        take_pages(pages, at.saturating_add(descriptor_bytes), current)
    }

    /// The length of the block descriptors, whether they are long ones, and what stands behind the header.
    fn split_header<'a>(&self, list: &'a [u8]) -> Option<(usize, bool, &'a [u8])> {
        if self.length == CdbLength::Six {
            let ([_, _, _, descriptor], rest) = list.split_first_chunk()?;
            Some((usize::from(*descriptor), false, rest))
        } else {
            let ([_, _, _, _, long, _, high, low], rest) = list.split_first_chunk()?;
            Some((usize::from(u16::from_be_bytes([*high, *low])), long & 1 != 0, rest))
        }
    }
}

/// `at` is where in the parameter list these pages begin.
fn take_pages(mut pages: &[u8], mut at: usize, current: ModeValues) -> Result<ModeValues, CheckCondition> {
    let mut values = current;
    while !pages.is_empty() {
        // The upper bits of the first byte are PS, reserved here, and SPF: we have no subpages.
        let code = pages.first().map_or(0, |byte| byte & 0x7F);
        let ours = find(code).ok_or(CheckCondition::parameter_field(at))?;
        let Some((page, rest)) = pages.split_at_checked(ours.len()) else {
            return Err(CheckCondition::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR));
        };
        for (index, (sent, own)) in page.iter().zip(ours).enumerate().skip(1) {
            if (sent ^ own) & !changeable(code, index) != 0 {
                return Err(CheckCondition::parameter_field(at.saturating_add(index)));
            }
            values.take(code, index, *sent);
        }
        at = at.saturating_add(page.len());
        pages = rest;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const ALL: &[u8] = &[
        0x01, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // error recovery
        0x08, 0x12, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // caching
        0x0A, 0x0A, 2, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, // control
        0x1C, 0x0A, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, // informational exceptions
    ];

    fn sense(field: &[u8]) -> Result<Vec<u8>, CheckCondition> {
        Ok(ModeSense::decode(&Cdb::new(field)?)?.answer(&testing::disk(), ModeValues::default()))
    }

    fn select(field: &[u8], list: &[u8]) -> Result<ModeValues, CheckCondition> {
        ModeSelect::decode(&Cdb::new(field)?)?.apply(&testing::disk(), ModeValues::default(), list)
    }

    #[test]
    fn all_pages_are_golden() {
        let mut golden = vec![3 + 8 + 56, 0, 0x10, 8, 0, 0, 0x10, 0, 0, 0, 2, 0];
        golden.extend_from_slice(ALL);
        assert_eq!(sense(&[0x1A, 0, 0x3F, 0, 255, 0]).unwrap(), golden);
        assert_eq!(sense(&[0x1A, 0, 0xBF, 0xFF, 255, 0]).unwrap(), golden, "default values");
        let mut golden = vec![0, 6 + 16 + 56, 0, 0x10, 1, 0, 0, 16];
        golden.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
        golden.extend_from_slice(ALL);
        assert_eq!(sense(&[0x5A, 0x10, 0x3F, 0, 0, 0, 0, 0, 255, 0]).unwrap(), golden);
    }

    #[test]
    fn one_page_without_descriptor_is_golden() {
        let golden = [15, 0, 0x10, 0, 0x0A, 0x0A, 2, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(sense(&[0x1A, 0x08, 0x0A, 0, 255, 0]).unwrap(), golden);
        let changeable = [15, 0, 0x10, 0, 0x0A, 0x0A, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(sense(&[0x1A, 0x08, 0x4A, 0, 255, 0]).unwrap(), changeable);
    }

    #[test]
    fn read_only_disk_says_that_it_is_write_protected() {
        let cdb = Cdb::new(&[0x1A, 0x08, 0x0A, 0, 255, 0]).unwrap();
        assert_eq!(
            ModeSense::decode(&cdb).unwrap().answer(&testing::read_only_disk(), ModeValues::default())[2],
            0x90
        );
    }

    #[test]
    fn saved_values_unknown_pages_and_subpages_are_refused() {
        let saving = CheckCondition::illegal(AdditionalSense::SAVING_NOT_SUPPORTED);
        assert_eq!(sense(&[0x1A, 0, 0xFF, 0, 255, 0]).unwrap_err(), saving);
        assert_eq!(sense(&[0x1A, 0, 0x02, 0, 255, 0]).unwrap_err(), CheckCondition::cdb_bit(2, 5));
        assert_eq!(sense(&[0x1A, 0, 0x0A, 1, 255, 0]).unwrap_err(), CheckCondition::cdb_field(3));
    }

    #[test]
    fn select_of_what_was_sensed_is_taken() {
        let mut list = sense(&[0x1A, 0, 0x3F, 0, 255, 0]).unwrap();
        list[0] = 0;
        select(&[0x15, 0x10, 0, 0, list.len() as u8, 0], &list).unwrap();
        let list = sense(&[0x5A, 0x10, 0x3F, 0, 0, 0, 0, 0, 255, 0]).unwrap();
        select(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, list.len() as u8, 0], &list).unwrap();
        select(&[0x15, 0x10, 0, 0, 0, 0], &[]).unwrap();
    }

    #[test]
    fn select_of_another_value_is_refused_at_its_byte() {
        let mut list = sense(&[0x1A, 0, 0x3F, 0, 255, 0]).unwrap();
        let cdb = [0x15, 0x10, 0, 0, list.len() as u8, 0];
        list[12 + 12 + 2] = 1; // RCD
        assert_eq!(select(&cdb, &list).unwrap_err(), CheckCondition::parameter_field(26));
        list[10] = 16; // logical block length
        assert_eq!(select(&cdb, &list).unwrap_err(), CheckCondition::parameter_field(4));
    }

    #[test]
    fn select_changes_write_protection_and_write_cache() {
        let mut list = sense(&[0x1A, 0, 0x3F, 0, 255, 0]).unwrap();
        let cdb = [0x15, 0x10, 0, 0, list.len() as u8, 0];
        list[12 + 12 + 2] = 0; // WCE
        list[12 + 32 + 4] = 8; // SWP
        let changed = ModeValues { write_protected: true, write_cache: false };
        assert_eq!(select(&cdb, &list).unwrap(), changed);
        let cdb = Cdb::new(&[0x1A, 0, 0x3F, 0, 255, 0]).unwrap();
        let shown = ModeSense::decode(&cdb).unwrap().answer(&testing::disk(), changed);
        assert_eq!((shown[2], &shown[12..]), (0x90, &list[12..]));
    }

    #[test]
    fn select_of_a_cut_list_is_a_length_error() {
        let list = sense(&[0x1A, 0, 0x3F, 0, 255, 0]).unwrap();
        let error = CheckCondition::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        for length in [1, 3, 5, 13, 30, 67] {
            let cdb = [0x15, 0x10, 0, 0, length, 0];
            assert_eq!(select(&cdb, &list).unwrap_err(), error, "{length} bytes");
        }
        assert_eq!(select(&[0x15, 0x10, 0, 0, 68, 0], &list[..40]).unwrap_err(), error);
        assert_eq!(select(&[0x15, 0, 0, 0, 68, 0], &list).unwrap_err(), CheckCondition::cdb_bit(1, 4));
        assert_eq!(select(&[0x15, 0x11, 0, 0, 68, 0], &list).unwrap_err(), CheckCondition::cdb_bit(1, 0));
    }
}
