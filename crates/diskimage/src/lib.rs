//! Disk image formats: raw, VHD, VHDX.
