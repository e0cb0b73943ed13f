//! The manifest: what an exported folder holds. It comes from anywhere, and nothing in it is believed before it is
//! checked.
use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::path::Path;

use farm::model::{Access, Description, FileMark, FileName, Lineage, Timestamp, VdiskName, VersionNumber};
use farm::rules::entitlement::MAX_CHAIN;
use serde::{Deserialize, Serialize};

use crate::error::{Code, ControlError};

/// The manifest's name in its folder.
pub const MANIFEST: &str = "headwater-manifest.json";
/// What the first field says; the number is raised when older programs could not read what follows.
const FORMAT: &str = "headwater-manifest 1";
/// The largest manifest that is read: several times what the most versions take.
const MAX_BYTES: u64 = 4 << 20;
/// The most versions of a manifest.
const MAX_VERSIONS: usize = 1000;

/// What an exported folder holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// That it is one, and of which edition.
    pub format: String,
    /// What the vDisk was called.
    pub vdisk: VdiskName,
    /// What was written about it.
    pub description: Description,
    /// When it was exported.
    pub made_at: Timestamp,
    /// By which task.
    pub task: i64,
    /// The versions, lowest number first.
    pub versions: Vec<ManifestVersion>,
}

/// A version of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestVersion {
    /// Its number.
    pub number: VersionNumber,
    /// On what it stands.
    pub lineage: Lineage,
    /// Who booted it.
    pub access: Access,
    /// Its file in the folder.
    pub file: FileName,
    /// What its file looked like.
    pub mark: FileMark,
    /// The SHA-256 of its file, in hexadecimal.
    pub sha256: String,
    /// What was written about it.
    pub comment: Description,
    /// When it was made.
    pub made_at: Timestamp,
}

impl Manifest {
    /// Of these versions.
    pub(super) fn of(
        vdisk: &farm::model::Vdisk,
        task: i64,
        made_at: Timestamp,
        versions: Vec<ManifestVersion>,
    ) -> Self {
        let (name, description) = (vdisk.name.clone(), vdisk.description.clone());
        Self { format: FORMAT.to_owned(), vdisk: name, description, made_at, task, versions }
    }

    /// Reads and checks the manifest of a folder.
    ///
    /// # Errors
    /// [`Code::BadValue`] with the field and the rule.
    pub fn read(folder: &Path) -> Result<Self, ControlError> {
        let path = folder.join(MANIFEST);
        if !path.exists() {
            let why = format!("there is no export in {}: it has no {MANIFEST}", folder.display());
            return Err(ControlError::bad_value("folder", why));
        }
        let failed = |error| ControlError::file(&path, "read", &error);
        let file = std::fs::File::open(&path).map_err(failed)?;
        let mut text = String::new();
        file.take(MAX_BYTES.saturating_add(1)).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text).map_err(|error| error.about(format!("manifest {path:?}")))
    }

    fn parse(text: &str) -> Result<Self, ControlError> {
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_BYTES {
            return Err(ControlError::new(Code::BadValue, format!("it has more than {MAX_BYTES} bytes")));
        }
        let manifest: Self = serde_json::from_str(text)
            .map_err(|error| ControlError::new(Code::BadValue, format!("it cannot be read: {error}")))?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), ControlError> {
        let bad = |field: String, why: String| Err(ControlError::bad_value(&field, why));
        if self.format != FORMAT {
            return bad("format".to_owned(), format!("{:?} is not {FORMAT:?}", self.format));
        }
        if self.versions.is_empty() || self.versions.len() > MAX_VERSIONS {
            let why =
                format!("there are {} of them; a manifest has 1 to {MAX_VERSIONS}", self.versions.len());
            return bad("versions".to_owned(), why);
        }
        let mut files = HashSet::new();
        let mut depths: HashMap<VersionNumber, usize> = HashMap::new();
        for (place, version) in self.versions.iter().enumerate() {
            let field = |name: &str| format!("versions[{place}].{name}");
            let number = version.number;
            if depths.contains_key(&number) {
                return bad(field("number"), format!("version {number} stands there twice"));
            }
            if !files.insert(version.file.folded()) {
                return bad(
                    field("file"),
                    format!("{:?} is the file of two versions", version.file.as_str()),
                );
            }
            if version.sha256.len() != 64
                || !version.sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            {
                return bad(field("sha256"), "it is not 64 lower-case hexadecimal digits".to_owned());
            }
            if version.access == Access::Maintenance {
                return bad(field("access"), "a version under maintenance is not exported".to_owned());
            }
            let depth = match version.lineage.parent().map(|parent| (parent, depths.get(&parent))) {
                None => 1,
                Some((_, Some(depth))) => depth.saturating_add(1),
                Some((parent, None)) => {
                    let why = format!("its parent, version {parent}, does not stand before it");
                    return bad(field("lineage"), why);
                }
            };
            if depth > MAX_CHAIN {
                return bad(field("lineage"), format!("it stands on more than {MAX_CHAIN} files"));
            }
            depths.insert(number, depth);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farm::model::{ByteSize, Text};

    fn good() -> Manifest {
        let size = ByteSize::new(1 << 20).unwrap();
        let version = |number, lineage| ManifestVersion {
            number: VersionNumber::new(number).unwrap(),
            lineage,
            access: Access::Test,
            file: Text::new(&format!("golden.{number}.avhdx")).unwrap(),
            mark: FileMark { length: size, disk_size: size, image: None, data_write: None },
            sha256: "0".repeat(64),
            comment: Text::new("").unwrap(),
            made_at: Timestamp::from_ms(0),
        };
        Manifest {
            format: FORMAT.to_owned(),
            vdisk: Text::new("golden").unwrap(),
            description: Text::new("").unwrap(),
            made_at: Timestamp::from_ms(0),
            task: 7,
            versions: vec![
                version(3, Lineage::Base),
                version(4, Lineage::Difference { parent: VersionNumber::new(3).unwrap() }),
            ],
        }
    }

    fn read(manifest: &Manifest) -> Result<Manifest, ControlError> {
        Manifest::parse(&serde_json::to_string(manifest).unwrap())
    }

    #[test]
    fn manifest_is_read_as_it_was_written() {
        assert_eq!(read(&good()).unwrap(), good());
    }

    #[test]
    fn manifest_that_breaks_a_rule_is_refused_by_field() {
        type Breakage = fn(&mut Manifest);
        let breakages: [(&str, Breakage); 8] = [
            ("format", |manifest| manifest.format = "headwater-manifest 2".to_owned()),
            ("versions", |manifest| manifest.versions.clear()),
            ("versions[1].number", |manifest| manifest.versions[1].number = manifest.versions[0].number),
            ("versions[1].file", |manifest| manifest.versions[1].file = Text::new("GOLDEN.3.avhdx").unwrap()),
            ("versions[0].sha256", |manifest| manifest.versions[0].sha256.truncate(63)),
            ("versions[1].sha256", |manifest| manifest.versions[1].sha256 = "G".repeat(64)),
            ("versions[0].access", |manifest| manifest.versions[0].access = Access::Maintenance),
            ("versions[0].lineage", |manifest| manifest.versions.reverse()),
        ];
        for (field, breakage) in breakages {
            let mut manifest = good();
            breakage(&mut manifest);
            let error = read(&manifest).unwrap_err();
            assert_eq!((error.code, error.field.as_deref()), (Code::BadValue, Some(field)), "{error}");
        }
    }

    #[test]
    fn text_that_is_no_manifest_is_refused() {
        let good = serde_json::to_string(&good()).unwrap();
        let outside = good.replace("golden.3.avhdx", "../golden.3.avhdx");
        for text in ["", "{}", "[]", &good[..good.len() - 1], &good.replace("\"task\"", "\"mask\""), &outside]
        {
            assert_eq!(Manifest::parse(text).unwrap_err().code, Code::BadValue, "{text}");
        }
    }
}
