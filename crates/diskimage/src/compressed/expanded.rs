//! Units that were expanded lately. A guest reads its disk a few KiB at a time and mostly onwards: without this each
//! of those reads would expand the whole unit again.
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use block::Patience;

use super::MAX_UNIT_BYTES;
use crate::error::ResolveError;
use crate::storage::StorageError;

/// How much of memory the units of one image may take.
const MAX_KEPT_BYTES: u64 = 16 << 20;
/// How many units are kept at most: those of the smallest size would else make a list that takes long to look through.
const MAX_KEPT_UNITS: u64 = 128;

/// The units expanded last, by their place in the file.
#[derive(Debug)]
pub(crate) struct ExpandedUnits {
    max_units: usize,
    /// The one used last comes first.
    units: Mutex<VecDeque<Kept>>,
}

#[derive(Debug)]
struct Kept {
    at: u64,
    bytes: Arc<[u8]>,
}

impl ExpandedUnits {
    /// Room for units of `unit_bytes` each.
    pub(crate) fn new(unit_bytes: u64) -> Self {
        let max = MAX_KEPT_BYTES.checked_div(unit_bytes.min(MAX_UNIT_BYTES)).unwrap_or_default();
        let max_units = usize::try_from(max.min(MAX_KEPT_UNITS)).unwrap_or_default();
        Self { max_units, units: Mutex::default() }
    }

    /// The unit at `at`, from here or by `expand`, which is called only for those who can wait.
    pub(crate) fn unit(
        &self,
        at: u64,
        patience: Patience,
        expand: impl FnOnce() -> Result<Vec<u8>, ResolveError>,
    ) -> Result<Arc<[u8]>, ResolveError> {
        if let Some(bytes) = self.get(at) {
            return Ok(bytes);
        }
        if patience == Patience::Now {
            return Err(StorageError::WouldBlock.into());
        }
        let bytes: Arc<[u8]> = expand()?.into();
        self.keep(at, &bytes);
        Ok(bytes)
    }

    /// The unit at `at`, if it is kept. The lock is held for moving a few words, never for I/O or expanding.
    fn get(&self, at: u64) -> Option<Arc<[u8]>> {
        let mut units = self.lock();
        let place = units.iter().position(|unit| unit.at == at)?;
        let unit = units.remove(place)?;
        let bytes = Arc::clone(&unit.bytes);
        units.push_front(unit);
        Some(bytes)
    }

    fn keep(&self, at: u64, bytes: &Arc<[u8]>) {
        let mut units = self.lock();
        units.retain(|unit| unit.at != at);
        units.push_front(Kept { at, bytes: Arc::clone(bytes) });
        units.truncate(self.max_units);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        // Nothing can panic between the steps of a change.
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_used_longest_ago_goes_first() {
        let units = ExpandedUnits::new(MAX_UNIT_BYTES);
        assert_eq!(units.max_units, 8);
        for at in 0..8 {
            units.keep(at, &Arc::from([at as u8]));
        }
        assert_eq!(units.get(0).as_deref(), Some(&[0][..]));
        units.keep(8, &Arc::from([8]));
        assert_eq!(units.get(1), None);
        assert_eq!(units.get(0).as_deref(), Some(&[0][..]));
        assert_eq!(units.lock().len(), 8);
    }

    #[test]
    fn unit_kept_twice_takes_one_place() {
        let units = ExpandedUnits::new(512);
        units.keep(5, &Arc::from([1]));
        units.keep(5, &Arc::from([2]));
        assert_eq!(units.lock().len(), 1);
        assert_eq!(units.get(5).as_deref(), Some(&[2][..]));
    }
}
