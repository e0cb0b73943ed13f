//! The crate on a real catalogue and real image files in temporary folders.
mod adoption;
mod cache_versions;
mod kills;
mod sample;
mod store_check;
mod task_ends;
mod transfers;
mod uploads;
mod version_files;
mod whole;
mod whole_vdisks;
