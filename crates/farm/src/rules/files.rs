//! What the files of versions are called, and whether somebody else wrote to one.
//!
//! Names are those that administrators know: `golden.vhdx` is version 0, `golden.3.avhdx` version 3, and
//! `golden.7.vhdx` version 7 when it is a whole image again after a merge.
use crate::model::{BadValue, FileMark, FileName, Lineage, VdiskName, VersionNumber, VersionState};

/// The formats that versions are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// `.vhd`, `.avhd`.
    Vhd,
    /// `.vhdx`, `.avhdx`.
    Vhdx,
}

impl ImageFormat {
    /// The format that a file's name tells; `None`: another one, of which there are no differences.
    #[must_use]
    pub fn of(file: &FileName) -> Option<Self> {
        let extension = file.as_str().rsplit_once('.')?.1.to_ascii_lowercase();
        match extension.as_str() {
            "vhd" | "avhd" => Some(Self::Vhd),
            "vhdx" | "avhdx" => Some(Self::Vhdx),
            _ => None,
        }
    }
}

/// The file of a new version.
///
/// # Errors
/// [`BadValue`] where the name would be too long for a file.
pub fn file_name(
    vdisk: &VdiskName,
    number: VersionNumber,
    lineage: Lineage,
    format: ImageFormat,
) -> Result<FileName, BadValue> {
    let extension = match (format, lineage.parent().is_some()) {
        (ImageFormat::Vhd, false) => "vhd",
        (ImageFormat::Vhd, true) => "avhd",
        (ImageFormat::Vhdx, false) => "vhdx",
        (ImageFormat::Vhdx, true) => "avhdx",
    };
    match number {
        VersionNumber::BASE => FileName::new(&format!("{vdisk}.{extension}")),
        _ => FileName::new(&format!("{vdisk}.{number}.{extension}")),
    }
}

/// The vDisk and the number that a file's name tells: what [`file_name`] gives, turned round. `None` of a name that is
/// none of ours.
#[must_use]
pub fn version_of(file: &FileName) -> Option<(VdiskName, VersionNumber)> {
    ImageFormat::of(file)?;
    let (stem, extension) = file.as_str().rsplit_once('.')?;
    if let Some((name, digits)) = stem.rsplit_once('.')
        && let Ok(number) = digits.parse()
        && number != VersionNumber::BASE
    {
        return VdiskName::new(name).ok().map(|name| (name, number));
    }
    let whole = !extension.to_ascii_lowercase().starts_with('a');
    VdiskName::new(stem).ok().filter(|_| whole).map(|name| (name, VersionNumber::BASE))
}

/// What a version's file turns out to be, in comparison with what it should be, and in words what differs.
#[must_use]
pub fn compare(expected: &FileMark, found: Option<&FileMark>) -> (VersionState, Vec<String>) {
    let Some(found) = found else { return (VersionState::Missing, vec!["the file is not there".to_owned()]) };
    let mut differences = Vec::new();
    let mut differs = |what: &str, expected: Option<String>, found: Option<String>| {
        // What was not known before cannot have changed.
        if let Some(expected) = expected
            && found.as_ref() != Some(&expected)
        {
            let found = found.unwrap_or_else(|| "none".to_owned());
            differences.push(format!("its {what} is {found} and was {expected}"));
        }
    };
    let size = |size: crate::model::ByteSize| Some(format!("{} bytes", size.bytes()));
    differs("length", size(expected.length), size(found.length));
    differs("disk size", size(expected.disk_size), size(found.disk_size));
    let uuid = |uuid: Option<crate::model::Uuid>| uuid.map(|uuid| uuid.to_string());
    differs("image id", uuid(expected.image), uuid(found.image));
    differs("DataWriteGuid", uuid(expected.data_write), uuid(found.data_write));
    let state = if differences.is_empty() { VersionState::Ready } else { VersionState::Changed };
    (state, differences)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::sample::{mark, n, text};

    #[test]
    fn file_is_named_as_administrators_know_it_and_read_back() {
        let name: VdiskName = text("win 11.a");
        let cases = [
            (0, Lineage::Base, ImageFormat::Vhdx, "win 11.a.vhdx"),
            (1, Lineage::Difference { parent: n(0) }, ImageFormat::Vhdx, "win 11.a.1.avhdx"),
            (
                12,
                Lineage::MergedUpdates { parent: n(0), contents_of: n(11) },
                ImageFormat::Vhd,
                "win 11.a.12.avhd",
            ),
            (13, Lineage::MergedBase { contents_of: n(12) }, ImageFormat::Vhdx, "win 11.a.13.vhdx"),
        ];
        for (number, lineage, format, expected) in cases {
            let file = file_name(&name, n(number), lineage, format).unwrap();
            assert_eq!(file.as_str(), expected);
            assert_eq!(version_of(&file), Some((name.clone(), n(number))));
        }
    }

    #[test]
    fn file_of_nobody_tells_no_version() {
        for file in ["golden.avhdx", "golden.raw", "golden", "golden.1.pvp", "golden.0.avhdx", "a:b.vhdx"] {
            assert_eq!(version_of(&text(file)), None, "{file}");
        }
    }

    #[test]
    fn change_behind_our_back_is_found_and_named() {
        let mut expected = mark();
        expected.data_write = Some("4c4c4544-0042-3510-8051-b4c04f4d3132".parse().unwrap());
        assert_eq!(compare(&expected, Some(&expected)), (VersionState::Ready, vec![]));
        let mut found = expected;
        found.data_write = Some("4c4c4544-0042-3510-8051-b4c04f4d3133".parse().unwrap());
        let (state, differences) = compare(&expected, Some(&found));
        assert_eq!(state, VersionState::Changed);
        assert!(
            differences[0].contains("DataWriteGuid is 4c4c4544-0042-3510-8051-b4c04f4d3133"),
            "{differences:?}"
        );
        assert_eq!(compare(&expected, None).0, VersionState::Missing);
        // A format without ids is held to its sizes alone.
        assert_eq!(compare(&mark(), Some(&expected)).0, VersionState::Ready);
    }
}
