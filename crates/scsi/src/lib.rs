//! SCSI commands of a disk (SPC-4, SBC-3) over a block device.
