//! Which versions of a manifest an existing vDisk lacks, and whether they are its own: decided from marks, without a look
//! at a file.
//!
//! A farm that publishes for others exports a vDisk again and again; whoever imported it once wants what was added since.
//! That goes where both have come the same way: what both have of a number is the same image, told by the ids that its
//! file holds, and everything new stands on it.
use std::collections::HashSet;

use farm::model::{Choice, Stored, Version, VersionNumber, VersionState};
use farm::rules::files::compare;

use super::manifest::{Manifest, ManifestVersion};
use crate::error::{Code, ControlError};

/// What of a manifest is new to a vDisk.
#[derive(Debug, PartialEq)]
pub(super) struct Addition<'m> {
    /// The versions that it lacks, lowest number first.
    pub(super) new: Vec<&'m ManifestVersion>,
    /// The versions of the manifest that it has.
    pub(super) known: Vec<&'m ManifestVersion>,
}

/// What of a manifest is new to a vDisk with these versions.
///
/// # Errors
/// [`Code::Conflict`]: nothing is new, or the two did not come the same way.
pub(super) fn addition<'m>(
    manifest: &'m Manifest,
    present: &[Stored<Version>],
) -> Result<Addition<'m>, ControlError> {
    let refused = |why: String| {
        let hint = "import it under another name, into a store of its own";
        Err(ControlError::new(Code::Conflict, why).hint(hint))
    };
    let (mut new, mut known) = (Vec::new(), Vec::new());
    for version in &manifest.versions {
        let number = version.number;
        match present.iter().find(|own| own.number == number) {
            None => new.push(version),
            Some(own) => match difference(version, own) {
                None => known.push(version),
                Some(why) => return refused(format!("version {number} is another one here: {why}")),
            },
        }
    }
    let Some(first) = new.first() else {
        return refused("the vDisk has all versions of the export already".to_owned());
    };
    if known.is_empty() {
        return refused("the vDisk has no version in common with the export".to_owned());
    }
    if let Some(newest) = present.iter().map(|own| own.number).max().filter(|newest| *newest > first.number) {
        return refused(format!(
            "the vDisk has version {newest} of its own, which is newer than version {} of the export",
            first.number
        ));
    }
    let there: HashSet<VersionNumber> = known.iter().chain(&new).map(|version| version.number).collect();
    let stands_on = |version: &&ManifestVersion| version.lineage.parent();
    match new.iter().find_map(|version| stands_on(version).filter(|parent| !there.contains(parent))) {
        Some(parent) => refused(format!("version {parent}, on which the export stands, is not here")),
        None => Ok(Addition { new, known }),
    }
}

/// Why the version that both have is not the same; `None`: it is.
fn difference(version: &ManifestVersion, own: &Stored<Version>) -> Option<String> {
    let Some(mark) = own.mark.filter(|_| own.state == VersionState::Ready) else {
        return Some("it is not published, or its file is not what it was".to_owned());
    };
    if version.mark.image.is_none() && version.mark.data_write.is_none() {
        return Some("its format has no ids by which it could be recognised".to_owned());
    }
    if own.lineage != version.lineage || own.file.folded() != version.file.folded() {
        return Some(format!("here it is {:?}, a {}", own.file.as_str(), own.lineage.kind().word()));
    }
    let differences = compare(&mark, Some(&version.mark)).1;
    (!differences.is_empty()).then(|| format!("in the export {}", differences.join(", ")))
}
