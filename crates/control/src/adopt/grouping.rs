//! Which files make up which vDisk, and which versions they are: decided from what was read of each, without a look at
//! the disk.
use std::collections::{BTreeMap, HashMap, HashSet};

use diskimage::Guid;
use farm::model::{Lineage, VdiskName, VersionNumber};
use farm::rules::entitlement::MAX_CHAIN;
use farm::rules::files::version_of;

use super::found::FoundFile;
use super::{Finding, FindingKind, FoundChain, FoundVersion};

/// What becomes vDisks, and what does not.
#[derive(Debug, Default)]
pub(super) struct Grouped {
    pub(super) chains: Vec<FoundChain>,
    pub(super) findings: Vec<Finding>,
}

/// A file's place among the files.
type Place = usize;

/// The files with what stands on what.
struct Forest {
    files: Vec<FoundFile>,
    /// Of each file: its parent.
    parents: Vec<Option<Place>>,
    /// Files that can belong to nothing, or belong to the catalogue.
    out: HashSet<Place>,
    findings: Vec<Finding>,
}

/// Puts files together. `taken` are the names of vDisks, in lower case, that the store has already.
pub(super) fn group(files: Vec<FoundFile>, taken: &HashSet<String>) -> Grouped {
    let mut forest = Forest::of(files);
    let mut vdisks: BTreeMap<String, (VdiskName, Vec<Place>)> = BTreeMap::new();
    for place in 0..forest.files.len() {
        if forest.out.contains(&place) {
            continue;
        }
        let root = forest.root_of(place);
        let Some(file) = forest.files.get(root) else { continue };
        match version_of(&file.name) {
            Some((name, _)) => {
                vdisks.entry(name.folded()).or_insert_with(|| (name, Vec::new())).1.push(place);
            }
            None => {
                let why = format!(
                    "{:?}, on which it stands, has no name that a vDisk can have: rename it",
                    file.name.as_str()
                );
                forest.find(place, FindingKind::Name, why);
            }
        }
    }
    let mut chains = Vec::new();
    for (folded, (name, places)) in vdisks {
        if taken.contains(&folded) {
            for place in places {
                let why =
                    format!("the store has a vDisk \"{name}\" already, to which this file does not belong");
                forest.find(place, FindingKind::Name, why);
            }
        } else if let Some(chain) = forest.chain(name, &places) {
            chains.push(chain);
        }
    }
    Grouped { chains, findings: forest.findings }
}

impl Forest {
    fn of(files: Vec<FoundFile>) -> Self {
        let mut by_linkage: HashMap<Guid, Vec<Place>> = HashMap::new();
        for (place, file) in files.iter().enumerate() {
            if let Some(linkage) = file.linkage {
                by_linkage.entry(linkage).or_default().push(place);
            }
        }
        let none = vec![None; files.len()];
        let mut forest = Self { files, parents: none, out: HashSet::new(), findings: Vec::new() };
        for place in 0..forest.files.len() {
            match forest.parent_of(place, &by_linkage) {
                Ok(parent) => {
                    if let Some(slot) = forest.parents.get_mut(place) {
                        *slot = parent;
                    }
                }
                Err((kind, why)) => forest.find(place, kind, why),
            }
        }
        forest.leave_out();
        forest
    }

    /// The file on which this one stands; `None`: it is whole.
    fn parent_of(
        &self,
        place: Place,
        by_linkage: &HashMap<Guid, Vec<Place>>,
    ) -> Result<Option<Place>, (FindingKind, String)> {
        let Some(reference) = self.files.get(place).and_then(|file| file.parent.as_ref()) else {
            return Ok(None);
        };
        let linkages = [Some(reference.linkage), reference.linkage2];
        let fits = linkages.iter().flatten().filter_map(|linkage| by_linkage.get(linkage)).flatten();
        let fits: Vec<Place> = fits.copied().filter(|parent| *parent != place).collect();
        let said = reference.relative_path.iter().chain(&reference.absolute_paths);
        let said: Vec<&str> = said.filter_map(|path| path.rsplit(['/', '\\']).next()).collect();
        let named = |parent: &&Place| {
            let name = self.files.get(**parent).map(|file| file.name.as_str());
            name.is_some_and(|name| said.iter().any(|said| said.eq_ignore_ascii_case(name)))
        };
        match (fits.as_slice(), fits.iter().find(named)) {
            ([only], _) => Ok(Some(*only)),
            (_, Some(named)) => Ok(Some(*named)),
            ([], None) => {
                let called = said.first().map_or("a file without a name", |name| *name);
                let linkage = reference.linkage;
                let why = format!(
                    "its parent ({called:?}, recognised by {linkage}) is not in the folder: bring it back"
                );
                Err((FindingKind::Orphan, why))
            }
            (many, None) => {
                let names =
                    many.iter().filter_map(|place| self.files.get(*place)).map(|file| file.name.as_str());
                let names = names.collect::<Vec<_>>().join(", ");
                let why = format!("more than one file can be its parent ({names}): move the copies away");
                Err((FindingKind::Ambiguous, why))
            }
        }
    }

    /// Leaves out what stands on what is left out, and what the catalogue lists.
    fn leave_out(&mut self) {
        for place in 0..self.files.len() {
            if self.files.get(place).is_some_and(|file| file.known) {
                self.out.insert(place);
                continue;
            }
            let (mut at, mut depth) = (place, 1_usize);
            let found = loop {
                let Some(parent) = self.parents.get(at).copied().flatten() else { break None };
                depth = depth.saturating_add(1);
                let Some(file) = self.files.get(parent) else { break None };
                let called = file.name.as_str();
                if file.known {
                    let why = format!(
                        "it stands on {called:?}, which belongs to a version of the catalogue: headwater image convert \
                         makes a whole image of it, which can be taken over under another name"
                    );
                    break Some((FindingKind::Extends, why));
                }
                if self.out.contains(&parent) && self.parents.get(parent).is_some_and(Option::is_none) {
                    break Some((
                        FindingKind::Orphan,
                        format!("it stands on {called:?}, which cannot be adopted"),
                    ));
                }
                if depth > MAX_CHAIN {
                    let why = format!(
                        "it stands on more than {MAX_CHAIN} files: merge them with headwater image merge"
                    );
                    break Some((FindingKind::Ambiguous, why));
                }
                at = parent;
            };
            if let Some((kind, why)) = found {
                self.find(place, kind, why);
            }
        }
    }

    fn find(&mut self, place: Place, kind: FindingKind, why: String) {
        self.out.insert(place);
        let Some(file) = self.files.get(place) else { return };
        if !file.known {
            self.findings.push(Finding { file: file.name.to_string(), kind, why });
        }
    }

    /// The whole image that a file stands on. Circles were left out: they are too long.
    fn root_of(&self, place: Place) -> Place {
        let mut at = place;
        for _ in 0..MAX_CHAIN {
            match self.parents.get(at).copied().flatten() {
                Some(parent) => at = parent,
                None => break,
            }
        }
        at
    }

    /// A vDisk of these files.
    fn chain(&mut self, name: VdiskName, places: &[Place]) -> Option<FoundChain> {
        let places = &self.without_strays(&name, places);
        let numbers = self.numbers_by_name(&name, places).or_else(|| self.numbers_by_depth(places));
        let Some(numbers) = numbers else {
            for place in places {
                let why = format!(
                    "it cannot be told which version of \"{name}\" it is: call the files \"{name}.vhdx\", \"{name}.1.avhdx\" and so \
                     on, each with a higher number than the one on which it stands"
                );
                self.find(*place, FindingKind::Ambiguous, why);
            }
            return None;
        };
        let version = |place: &Place| {
            let file = self.files.get(*place)?;
            let lineage = match self.parents.get(*place).copied().flatten() {
                None => Lineage::Base,
                Some(parent) => Lineage::Difference { parent: *numbers.get(&parent)? },
            };
            let number = *numbers.get(place)?;
            Some(FoundVersion { number, lineage, file: file.name.clone(), mark: file.mark })
        };
        let mut versions: Vec<_> = places.iter().filter_map(version).collect();
        versions.sort_by_key(|version| version.number);
        Some(FoundChain { name, versions })
    }

    /// The files without those that stand on others of them and are called otherwise, where the others are called as versions
    /// are: a copy that somebody made beside a chain must not become what devices boot.
    fn without_strays(&mut self, name: &VdiskName, places: &[Place]) -> Vec<Place> {
        let fits = |place: &Place| {
            let called = self.files.get(*place).and_then(|file| version_of(&file.name));
            called.is_some_and(|(own, _)| own.folded() == name.folded())
        };
        let (own, strays): (Vec<Place>, Vec<Place>) = places.iter().partition(|place| fits(place));
        // With the whole image alone, names say nothing: they may be those of another program.
        let carries = |place: &Place| own.iter().any(|own| self.parents.get(*own) == Some(&Some(*place)));
        if own.len() < 2 || strays.iter().any(carries) {
            return places.to_vec();
        }
        for place in strays {
            let why = format!(
                "it stands on a version of \"{name}\" and is not called like one (\"{name}.NUMBER.avhdx\"): rename it, or move \
                 it away"
            );
            self.find(place, FindingKind::Name, why);
        }
        own
    }

    /// The numbers that names give, where all names do, and each another one.
    fn numbers_by_name(&self, name: &VdiskName, places: &[Place]) -> Option<HashMap<Place, VersionNumber>> {
        let mut numbers = HashMap::new();
        let mut given = HashSet::new();
        for place in places {
            let (own, number) = version_of(&self.files.get(*place)?.name)?;
            (own.folded() == name.folded() && given.insert(number)).then_some(())?;
            numbers.insert(*place, number);
        }
        let upwards = |place: &Place| {
            let parent = self.parents.get(*place).copied().flatten();
            parent.is_none_or(|parent| numbers.get(&parent) < numbers.get(place))
        };
        places.iter().all(upwards).then_some(numbers)
    }

    /// Numbers in the order in which files stand on each other, where there is one whole image among them, and no two stand
    /// on the same: which of those is the newer one, cannot be told.
    fn numbers_by_depth(&self, places: &[Place]) -> Option<HashMap<Place, VersionNumber>> {
        let depth = |place: &Place| {
            let mut at = *place;
            let mut depth = 0_usize;
            while let Some(parent) = self.parents.get(at).copied().flatten().filter(|_| depth < MAX_CHAIN) {
                at = parent;
                depth = depth.saturating_add(1);
            }
            depth
        };
        let mut ordered: Vec<(usize, Place)> = places.iter().map(|place| (depth(place), *place)).collect();
        ordered.sort_unstable();
        let roots = ordered.iter().filter(|(depth, _)| *depth == 0).count();
        let depths: HashSet<usize> = ordered.iter().map(|(depth, _)| *depth).collect();
        (roots == 1 && depths.len() == ordered.len()).then_some(())?;
        let numbered = ordered
            .iter()
            .zip(0_u32..)
            .map(|((_, place), number)| VersionNumber::new(number).ok().map(|number| (*place, number)));
        numbered.collect()
    }
}
