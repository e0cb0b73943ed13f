//! The files of a folder, each looked at by itself, and at last each chain as devices would open it.
use std::collections::HashSet;
use std::path::Path;

use diskimage::chain::ParentReference;
use diskimage::storage::FileStorage;
use diskimage::{Format, Guid, Image, LayerInfo, Severity, check};
use farm::model::{FileMark, FileName};

use super::grouping::Grouped;
use super::{Finding, FindingKind};
use crate::error::{Code, ControlError};
use crate::marks;
use crate::places::reading;

/// The most files of a folder that are looked at.
const MAX_FILES: usize = 100_000;

/// An image of the folder.
#[derive(Clone, Debug)]
pub(super) struct FoundFile {
    pub(super) name: FileName,
    /// What children recognise it by.
    pub(super) linkage: Option<Guid>,
    /// Of a difference: what it says of its parent.
    pub(super) parent: Option<ParentReference>,
    pub(super) mark: FileMark,
    /// Whether the catalogue lists it.
    pub(super) known: bool,
}

/// What a folder holds.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) files: Vec<FoundFile>,
    pub(super) findings: Vec<Finding>,
    pub(super) known: usize,
}

/// Looks at all images of a folder. `known` are the files that the catalogue lists, in lower case.
pub(super) fn look_through(folder: &Path, known: &HashSet<String>) -> Result<Looked, ControlError> {
    let failed = |error| ControlError::file(folder, "looked through", &error);
    let mut looked = Looked::default();
    let mut names = Vec::new();
    for entry in folder.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_file() {
            names.push(entry.file_name());
        }
        if names.len() > MAX_FILES {
            let why = format!("{folder:?} has more than {MAX_FILES} files");
            return Err(ControlError::new(Code::Refused, why).hint("give each store a folder of its own"));
        }
    }
    names.sort();
    for name in names {
        looked.look_at(folder, &name.to_string_lossy(), known);
    }
    Ok(looked)
}

impl Looked {
    fn look_at(&mut self, folder: &Path, name: &str, known: &HashSet<String>) {
        let mut find = |kind, why: String| {
            self.findings.push(Finding { file: name.to_owned(), kind, why });
        };
        if let Some(of) = name.strip_suffix(".partial") {
            if is_image(of) {
                let why = format!(
                    "it is {of:?} in the making, or what is left of that: remove it if nobody makes it"
                );
                find(FindingKind::Unfinished, why);
            }
            return;
        }
        if let Some(why) = beside(name) {
            return find(FindingKind::Beside, why.to_owned());
        }
        if !is_image(name) {
            return;
        }
        let Ok(file) = FileName::new(name) else {
            return find(
                FindingKind::Name,
                "it has a name that the catalogue cannot hold: rename it".to_owned(),
            );
        };
        let known = known.contains(&file.folded());
        match look(&folder.join(name)) {
            Ok(layer) => match marks::of_layer(&layer) {
                Ok(mark) => {
                    self.known = self.known.saturating_add(usize::from(known));
                    let LayerInfo { linkage, parent, .. } = layer;
                    self.files.push(FoundFile { name: file, linkage, parent, mark, known });
                }
                Err(error) => find(FindingKind::Damaged, error.to_string()),
            },
            Err(_) if known => self.known = self.known.saturating_add(1),
            Err(error) => find(FindingKind::Damaged, error.to_string()),
        }
    }
}

/// What another program keeps beside its images, and what that means here.
fn beside(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    match ending.to_ascii_lowercase().as_str() {
        "pvp" => Some(
            "properties of another program, which are not read: set the vDisk's own (headwater vdisk set)",
        ),
        "lok" => Some("a lock of another program: take over nothing that its servers still stream"),
        "xml" => Some(
            "perhaps another program's manifest, which is not read: what the images say of each other counts",
        ),
        _ => None,
    }
}

fn is_image(name: &str) -> bool {
    matches!(Format::of_ending(Path::new(name)), Some(Format::Vhd | Format::Vhdx))
}

/// Opens a file by itself, and checks its structures.
fn look(path: &Path) -> Result<LayerInfo, ControlError> {
    let layer = LayerInfo::of_file(path, None)?;
    let storage = FileStorage::open(path).map_err(|error| {
        ControlError::new(Code::FileFailed, format!("{path:?} cannot be opened: {error}"))
    })?;
    let report = check::check(&storage, layer.info.format).map_err(|error| {
        ControlError::new(Code::FileDamaged, format!("{path:?} cannot be checked: {error}"))
    })?;
    let errors: Vec<_> =
        report.findings().iter().filter(|finding| finding.severity == Severity::Error).collect();
    match errors.first() {
        None => Ok(layer),
        Some(first) => {
            let (count, problem) = (errors.len(), &first.problem);
            let why =
                format!("its structures have {count} error(s), the first: {}: {problem}", first.structure);
            Err(ControlError::new(Code::FileDamaged, why).hint("headwater image check tells all of them"))
        }
    }
}

/// Opens every chain as a device would, and takes those out that cannot be.
pub(super) fn open_all(folder: &Path, plan: &mut Grouped) {
    let findings = &mut plan.findings;
    plan.chains.retain(|chain| {
        let stood_on: HashSet<_> =
            chain.versions.iter().filter_map(|version| version.lineage.parent()).collect();
        let leaves = chain.versions.iter().filter(|version| !stood_on.contains(&version.number));
        let mut whole = true;
        for leaf in leaves {
            if let Err(error) = Image::open(&folder.join(leaf.file.as_str()), reading(folder)) {
                whole = false;
                let why = format!(
                    "its chain cannot be opened: {}; if a parent was renamed, headwater image rebase names it anew",
                    ControlError::from(error)
                );
                findings.push(Finding { file: leaf.file.to_string(), kind: FindingKind::Orphan, why });
            }
        }
        whole
    });
}
