//! Are iPXE's binaries there, and for which machines?
//!
//! What a binary runs on stands in it: an EFI program is a PE image whose header names the processor (PE/COFF §3.3.1); a BIOS
//! network bootstrap (`.kpxe`, `.pxe`) has no header, and only its name tells what it is.
use std::io::Read;
use std::path::Path;

use netboot::boot_files::{BootFiles, BootFilesConfig};

use super::finding::{Finding, Subject};
use crate::config::Config;

/// How much of a file is read for its headers: the PE header of iPXE begins within the first 200 bytes.
const HEAD_BYTES: u64 = 4096;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let folder = &config.netboot.boot_files;
    let names = &config.netboot.names;
    let wanted = BootFilesConfig {
        directories: vec![folder.clone()],
        names: names.clone(),
        ..BootFilesConfig::default()
    };
    let mut findings = Vec::new();
    if let Err(error) = BootFiles::load(&wanted) {
        findings.push(Finding::problem(
            Subject::BootFiles,
            error.to_string(),
            "The server does not start.",
            "apt install ipxe, or set netboot.boot_files to the directory that has them",
        ));
    }
    let optional = [(&names.uefi_ia32, Machine::X86), (&names.uefi_arm64, Machine::Arm64)];
    let optional = optional.into_iter().filter_map(|(name, machine)| Some((name.as_ref()?, machine)));
    for (name, expected) in
        [(&names.bios, Machine::Bios), (&names.uefi_x64, Machine::X64)].into_iter().chain(optional)
    {
        let path = folder.join(name);
        let Ok(head) = head(&path) else { continue };
        findings.push(judge(&path, machine(&head), expected));
    }
    for (name, key, machine) in
        [(&names.uefi_ia32, "uefi_ia32", Machine::X86), (&names.uefi_arm64, "uefi_arm64", Machine::Arm64)]
    {
        if name.is_none() {
            let label = machine.label();
            let found = format!("no boot file for {label} (netboot.{key}): such machines are not answered");
            findings.push(Finding::ok(Subject::BootFiles, found));
        }
    }
    findings
}

fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

/// What a boot file runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    /// No EFI program: for BIOS, as far as can be told.
    Bios,
    X64,
    X86,
    Arm64,
    /// An EFI program for something else: the header's number.
    Other(u16),
}

impl Machine {
    fn label(self) -> String {
        match self {
            Self::Bios => "BIOS".to_owned(),
            Self::X64 => "UEFI on x86-64".to_owned(),
            Self::X86 => "UEFI on 32-bit x86".to_owned(),
            Self::Arm64 => "UEFI on 64-bit Arm".to_owned(),
            Self::Other(number) => format!("UEFI on machines of type {number:#x}"),
        }
    }
}

/// `MZ`; at 0x3C the place of `PE\0\0`, behind which stands the machine (PE/COFF §2.2, §3.3).
fn machine(head: &[u8]) -> Machine {
    let read = || {
        let word = |at: usize| Some(u16::from_le_bytes(head.get(at..at.checked_add(2)?)?.try_into().ok()?));
        let place = u32::from_le_bytes(head.get(0x3C..0x40)?.try_into().ok()?);
        let place = usize::try_from(place).ok()?;
        let signed = head.starts_with(b"MZ") && head.get(place..place.checked_add(4)?)? == b"PE\0\0";
        if signed { word(place.checked_add(4)?) } else { None }
    };
    match read() {
        None => Machine::Bios,
        Some(0x8664) => Machine::X64,
        Some(0x014C) => Machine::X86,
        Some(0xAA64) => Machine::Arm64,
        Some(other) => Machine::Other(other),
    }
}

fn judge(path: &Path, found: Machine, expected: Machine) -> Finding {
    let path = path.display();
    if found == expected {
        return Finding::ok(Subject::BootFiles, format!("{path} is for {}", found.label()));
    }
    Finding::problem(
        Subject::BootFiles,
        format!("{path} is for {}, and machines with {} are given it", found.label(), expected.label()),
        "Those machines stop right after they have fetched it.",
        "put the file of iPXE's build there that fits (Debian's package ipxe has both)",
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn efi(machine: u16) -> Vec<u8> {
        let mut file = vec![0; 0x100];
        file[..2].copy_from_slice(b"MZ");
        file[0x3C] = 0x80;
        file[0x80..0x84].copy_from_slice(b"PE\0\0");
        file[0x84..0x86].copy_from_slice(&machine.to_le_bytes());
        file
    }

    #[test]
    fn efi_program_tells_its_machine_and_anything_else_is_for_bios() {
        assert_eq!(machine(&efi(0x8664)), Machine::X64);
        assert_eq!(machine(&efi(0xAA64)), Machine::Arm64);
        assert_eq!(machine(&efi(0x014C)), Machine::X86);
        assert_eq!(machine(&efi(0x5064)), Machine::Other(0x5064));
        assert_eq!(machine(&efi(0x8664)[..0x84]), Machine::Bios);
        for text in [&b""[..], b"MZ", &[0xFF; 100]] {
            assert_eq!(machine(text), Machine::Bios);
        }
    }

    #[test]
    fn wrong_binary_and_missing_binary_are_problems() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = crate::config::parse("", "x".as_ref()).unwrap();
        config.netboot.boot_files = folder.path().to_owned();
        let missing = examine(&config);
        assert!(
            missing[0].level == Level::Problem && missing[0].found.contains("undionly.kpxe"),
            "{missing:?}"
        );
        std::fs::write(folder.path().join("undionly.kpxe"), [0xEB; 100]).unwrap();
        std::fs::write(folder.path().join("ipxe.efi"), efi(0x8664)).unwrap();
        assert!(examine(&config).iter().all(|finding| finding.level == Level::Ok));
        std::fs::write(folder.path().join("ipxe.efi"), efi(0x014C)).unwrap();
        let wrong: Vec<Finding> =
            examine(&config).into_iter().filter(|finding| finding.level == Level::Problem).collect();
        assert!(wrong.len() == 1 && wrong[0].found.contains("32-bit x86"), "{wrong:?}");
    }
}
