//! A version whose file is being made, and what it is made of.
use std::path::PathBuf;

use farm::model::{Stored, Vdisk, Version, VersionId, VersionNumber};
use farm::rules::entitlement::{chain, find};

use crate::error::ControlError;
use crate::places::{folder, reachable};
use crate::whole::Control;

/// A version of a vDisk, with all that the catalogue has about it.
pub(crate) struct Making {
    pub(crate) vdisk: Stored<Vdisk>,
    pub(crate) version: Stored<Version>,
    versions: Vec<Stored<Version>>,
    /// The folder of its store on this server.
    pub(crate) folder: PathBuf,
}

impl Making {
    pub(crate) fn read(control: &Control, version: VersionId) -> Result<Self, ControlError> {
        let making = control.read(|reader| {
            let version: Stored<Version> = reader.get(version)?;
            let vdisk = reader.get(version.vdisk)?;
            let versions = reader.versions(vdisk.id)?;
            let folder = folder(reader, control.server(), &vdisk)?;
            Ok(Self { vdisk, version, versions, folder })
        })?;
        reachable(&making.folder)?;
        Ok(making)
    }

    /// Where its file is to be.
    pub(crate) fn target(&self) -> PathBuf {
        self.path_of(&self.version)
    }

    pub(crate) fn path_of(&self, version: &Version) -> PathBuf {
        self.folder.join(version.file.as_str())
    }

    /// Another version of the vDisk and its parents, down to the whole image.
    pub(crate) fn chain_of(&self, number: VersionNumber) -> Result<Vec<Stored<Version>>, ControlError> {
        let leaf = find(&self.versions, number)?;
        Ok(chain(&self.versions, leaf)?.into_iter().cloned().collect())
    }
}
