//! Images from outside, held against what other programs say of them, and images that are broken on purpose.
//!
//! The programs are qemu-img and qemu-io (Debian package qemu-utils), 7z (p7zip-full), vhdiinfo (libvhdi-utils) and
//! python3. A missing program is a failure that names its package.
mod builder;
mod chain_rules;
mod chains;
mod conformance;
mod damage;
mod foreign;
mod foreign_damage;
mod fuzz_smoke;
mod generator;
mod large;
mod log;
mod mutable;
mod ops;
mod qemu;
mod refusals;
mod samples;
mod tools;
mod vhd_check;
mod vhd_create;
mod vhd_edit;
mod vhd_write;
mod vhdx_check;
mod vhdx_crash;
mod vhdx_create;
mod vhdx_edit;
mod vhdx_interop;
mod vhdx_repair;
mod vhdx_write;
