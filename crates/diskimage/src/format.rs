//! Which format a file is in.
//!
//! Contents come first: VHDX and VHD carry signatures. Raw has none, so a file counts as raw only when its ending
//! says so or the caller does; and where an ending says raw while the contents look like something else, nothing is
//! guessed, because whoever writes into a raw disk could make it look like anything.
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use block::{ByteOffset, Patience};

use crate::error::Refusal;
use crate::storage::{Storage, StorageError};
use crate::vhd::Footer;
use crate::{qcow2, vhdx, vmdk};

/// A format that is read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// The file is the disk.
    Raw,
    /// Virtual Hard Disk, as of Virtual PC and early Hyper-V.
    Vhd,
    /// Virtual Hard Disk v2, as of Hyper-V since Windows Server 2012.
    Vhdx,
    /// qemu's own format. Read, not written.
    Qcow2,
    /// VMware's format, of one file or several. Read, not written.
    Vmdk,
}

/// A name that is none of the formats'.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not an image format; there are raw, vhd, vhdx, qcow2 and vmdk")]
pub struct UnknownFormat {
    /// The name.
    pub name: String,
}

impl Format {
    /// The format of the image in `storage`, whose file is called `path`: by its contents, and where those say nothing
    /// by its ending.
    ///
    /// # Errors
    /// [`Refusal`]: it is none, or ending and contents contradict each other.
    pub fn recognise(storage: &dyn Storage, path: &Path) -> Result<Self, Refusal> {
        probe(storage, Self::of_ending(path))
    }

    /// What the file's ending says.
    #[must_use]
    pub fn of_ending(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "raw" | "img" | "dd" => Some(Self::Raw),
            "vhd" | "avhd" => Some(Self::Vhd),
            "vhdx" | "avhdx" => Some(Self::Vhdx),
            "qcow2" | "qcow" => Some(Self::Qcow2),
            "vmdk" => Some(Self::Vmdk),
            _ => None,
        }
    }
}

impl Format {
    /// As it is written in a sentence. The command line and programs know it by the name in lower case, which
    /// [`Display`](fmt::Display) shows and [`FromStr`] reads.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Vhd => "VHD",
            Self::Vhdx => "VHDX",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "VMDK",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "raw",
            Self::Vhd => "vhd",
            Self::Vhdx => "vhdx",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
        })
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "raw" => Ok(Self::Raw),
            "vhd" => Ok(Self::Vhd),
            "vhdx" => Ok(Self::Vhdx),
            "qcow2" => Ok(Self::Qcow2),
            "vmdk" => Ok(Self::Vmdk),
            _ => Err(UnknownFormat { name: name.into() }),
        }
    }
}

/// Formats that are known by their signature and not read, with where it stands.
const FOREIGN: [(&str, usize, &[u8]); 5] = [
    ("VMDK of the kind vmfsSparse (COWD)", 0, b"COWD"),
    ("VMDK of the kind seSparse", 0, b"\xBE\xBA\xFE\xCA\0\0\0\0"),
    ("VDI", 0x40, b"\x7F\x10\xDA\xBE"),
    ("xz-compressed", 0, b"\xFD7zXZ\0"),
    ("zstd-compressed", 0, b"\x28\xB5\x2F\xFD"),
];

/// The format of `storage`, whose name's ending says `ending`.
pub(crate) fn probe(storage: &dyn Storage, ending: Option<Format>) -> Result<Format, Refusal> {
    let mut start = [0; 512];
    let head = usize::try_from(storage.len().get()).unwrap_or(usize::MAX).min(start.len());
    let head = start.get_mut(..head).unwrap_or_default();
    storage.read_at(ByteOffset::ZERO, head, Patience::Blocking)?;
    let foreign =
        FOREIGN.iter().find(|(_, at, magic)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    let signed = if vhdx::is_signed(head) {
        Some(Format::Vhdx)
    } else if qcow2::is_signed(head) {
        Some(Format::Qcow2)
    } else if vmdk::is_signed(head) {
        Some(Format::Vmdk)
    } else {
        None
    };
    let contents = match (signed, has_vhd_footer(storage, head)?) {
        // The start of a fixed VHD is its disk's first sector, which whoever writes into the disk can make look like
        // anything; the end of another image may be its disk's as well.
        (Some(signed), true) => match ending {
            Some(ending) if [Format::Vhd, signed].contains(&ending) => Some(ending),
            _ => return Err(Refusal::TwoFormats { signed }),
        },
        (None, true) => Some(Format::Vhd),
        (signed, false) => signed,
    };
    match (contents, foreign, ending) {
        (Some(format), _, Some(Format::Raw)) => Err(Refusal::Ambiguous { contents: format.title() }),
        (None, Some((name, ..)), Some(Format::Raw)) => Err(Refusal::Ambiguous { contents: name }),
        (Some(format), ..) => Ok(format),
        (None, Some((name, ..)), _) => Err(Refusal::Foreign { name }),
        (None, None, Some(Format::Raw)) => Ok(Format::Raw),
        (None, None, Some(Format::Vhdx)) => {
            Err(Refusal::NotThisFormat { format: Format::Vhdx, problem: "it has no VHDX signature" })
        }
        (None, None, Some(Format::Qcow2)) => {
            Err(Refusal::NotThisFormat { format: Format::Qcow2, problem: "it has no qcow2 signature" })
        }
        (None, None, Some(Format::Vmdk)) => Err(Refusal::NotThisFormat {
            format: Format::Vmdk,
            problem: "it has neither the signature of a sparse extent nor that of a descriptor",
        }),
        (None, None, Some(Format::Vhd)) => Err(Refusal::NotThisFormat {
            format: Format::Vhd,
            problem: "it has no VHD footer, at its end or start",
        }),
        (None, None, None) => Err(Refusal::Unrecognised),
    }
}

fn has_vhd_footer(storage: &dyn Storage, head: &[u8]) -> Result<bool, StorageError> {
    if Footer::is_signed(head) {
        return Ok(true);
    }
    Ok(Footer::find_at_end(storage)?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_as_they_are_shown() {
        for format in [Format::Raw, Format::Vhd, Format::Vhdx, Format::Qcow2, Format::Vmdk] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "vdi".parse::<Format>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"vdi\" is not an image format; there are raw, vhd, vhdx, qcow2 and vmdk"
        );
    }
}
