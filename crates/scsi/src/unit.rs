//! A logical unit: one disk.
use std::sync::Arc;

use block::BlockDevice;

use crate::nexus::Nexus;
use crate::sense::{AdditionalSense, CheckCondition, SenseKey};
use crate::task::Task;

/// By what an initiator recognises a disk again. Must not change while the disk's contents are the same to its
/// owner: operating systems find their root by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitIdentity {
    /// The unit serial number (VPD page 80h): printable ASCII; the first 64 characters count, others become `?`.
    pub serial: String,
    /// Unique in the world (VPD page 83h).
    pub uuid: [u8; 16],
}

/// One disk, shared by all sessions that see it.
#[derive(Debug)]
pub struct LogicalUnit {
    device: Arc<dyn BlockDevice>,
}

impl LogicalUnit {
    /// A disk with the contents of `device`.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, _identity: UnitIdentity) -> Self {
        Self { device }
    }

    /// The device under it.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Decodes `cdb` and judges all that can be judged before data moves.
    pub(crate) fn task(&self, nexus: &Nexus, _cdb: &[u8]) -> Result<Task, CheckCondition> {
        match nexus.take() {
            Some(attention) => Err(attention),
            None => {
                Err(CheckCondition::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_OPERATION_CODE))
            }
        }
    }
}
