//! The commands of a SCSI disk (SAM-5, SPC-4, SBC-3) carried out on a block device.
//!
//! The seam to a transport (iSCSI) is small. [`LogicalUnit`] is one disk; [`Nexus`] is what it remembers of one
//! initiator; [`LogicalUnit::task`] turns a CDB into a [`Task`], which tells how many bytes go which way and is then
//! carried out: [`Task::read_in`] fills any part of its Data-In, straight into the transport's own buffer;
//! [`Task::run`] carries out everything else. Both take the [`block::Patience`] of the caller.
