//! What UEFI machines boot: the files of the EFI volume.
//!
//! iPXE of 2021 and later runs the file `autoexec.ipxe` beside it; Debian's, of 2019, takes no script at all. For it our own
//! small application (`loader/uefi.S`, and what the assembler makes of it) stands in `BOOTX64.EFI`, starts iPXE and types the
//! command that runs the same file.
use super::{Content, MediaError};

/// The application that starts an iPXE without `autoexec.ipxe`.
const STARTER: &[u8] = include_bytes!("loader/uefi.bin");

/// The script, for every iPXE and for our starter.
const SCRIPT: &str = "autoexec.ipxe";
/// "PE\0\0" is followed by the machine: x64.
const MACHINE_X64: [u8; 2] = [0x64, 0x86];

/// Something that not every iPXE can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Asking servers by HTTPS.
    Https,
    /// The command `vcreate`.
    Vlan,
}

/// Whether an iPXE binary for UEFI, which is not compressed, can do this.
#[must_use]
pub fn has_feature(ipxe: &[u8], feature: Feature) -> bool {
    match feature {
        Feature::Https => holds(ipxe, b"\0https\0"),
        Feature::Vlan => holds(ipxe, b"\0vcreate\0"),
    }
}

/// A file of a volume: its path, with `/`, and its bytes.
pub(super) type File<'a> = (&'static str, &'a [u8]);

/// The files of the volume.
pub(super) fn files(content: &Content) -> Result<Vec<File<'_>>, MediaError> {
    if !is_uefi_application(&content.uefi) {
        return Err(MediaError::Uefi);
    }
    let mut files: Vec<File<'_>> =
        vec![("README.TXT", content.readme.as_bytes()), (SCRIPT, content.script.as_bytes())];
    if runs_autoexec(&content.uefi) {
        files.push(("EFI/BOOT/BOOTX64.EFI", &content.uefi));
    } else {
        files.push(("EFI/BOOT/BOOTX64.EFI", STARTER));
        files.push(("EFI/BOOT/IPXE.EFI", &content.uefi));
    }
    Ok(files)
}

/// Whether an iPXE binary for UEFI looks for the script by itself: then it knows its name.
fn runs_autoexec(ipxe: &[u8]) -> bool {
    let wide: Vec<u8> = SCRIPT.bytes().flat_map(|byte| [byte, 0]).collect();
    holds(ipxe, SCRIPT.as_bytes()) || holds(ipxe, &wide)
}

/// Whether some bytes stand anywhere in a file.
fn holds(file: &[u8], wanted: &[u8]) -> bool {
    file.windows(wanted.len()).any(|window| window == wanted)
}

fn is_uefi_application(file: &[u8]) -> bool {
    let offset = file.get(0x3c..0x40).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let header = usize::try_from(offset).ok().and_then(|at| file.get(at..)).unwrap_or_default();
    file.starts_with(b"MZ") && header.starts_with(b"PE\0\0") && header.get(4..6) == Some(&MACHINE_X64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(uefi: &[u8]) -> Content {
        Content { bios: Vec::new(), uefi: uefi.to_owned(), script: "#!ipxe\n".into(), readme: "r".into() }
    }

    #[test]
    fn old_ipxe_gets_our_starter_and_a_newer_one_is_started_itself() {
        let old = content(STARTER);
        // Our starter has the script's name in the command that it types.
        assert_eq!(files(&old).unwrap().len(), 3);
        let without: Vec<u8> = STARTER.iter().map(|&byte| if byte == b'x' { b'y' } else { byte }).collect();
        let old = content(&without);
        let names: Vec<_> = files(&old).unwrap().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["README.TXT", "autoexec.ipxe", "EFI/BOOT/BOOTX64.EFI", "EFI/BOOT/IPXE.EFI"]);
        let mut wide = without.clone();
        wide.extend("autoexec.ipxe".bytes().flat_map(|byte| [byte, 0]));
        assert_eq!(files(&content(&wide)).unwrap().len(), 3);
    }

    #[test]
    fn file_that_is_no_uefi_application_is_refused() {
        for file in [&b"MZ"[..], &[0; 4096], b""] {
            assert_eq!(files(&content(file)).unwrap_err(), MediaError::Uefi);
        }
    }
}
