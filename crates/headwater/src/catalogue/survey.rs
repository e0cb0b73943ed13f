//! What the files of `[[vdisk]]` are: looked at when the server starts, so that one that cannot serve says so at once.
use std::path::Path;

use anyhow::Context;
use diskimage::Image;
use farm::model::{FileMark, FileName, Name, StorePath, VdiskName, VersionNumber};

use crate::config::{Config, Vdisk};
use crate::stream::images::ImageAt;
use crate::stream::names::{base_name, fnv1a_128};

/// The longest part of a folder's path that its store is called by.
const MAX_FOLDER_CHARS: usize = 40;

/// A vDisk of the configuration, with its versions.
#[derive(Clone, Debug)]
pub struct FileVdisk {
    /// Its name, without a version.
    pub name: VdiskName,
    /// The store that its files lie in, and where that is.
    pub store: (Name, StorePath),
    /// Whether a device writes it itself.
    pub is_private: bool,
    /// Whether the file lists its versions.
    pub lists_versions: bool,
    /// Its versions, lowest number first.
    pub versions: Vec<FileVersion>,
    /// The version that it stands for.
    pub current: VersionNumber,
}

/// A version of it.
#[derive(Clone, Debug)]
pub struct FileVersion {
    /// Its number.
    pub number: VersionNumber,
    /// Its file.
    pub file: FileName,
    /// What that looks like.
    pub mark: FileMark,
    /// The version that it stands on, where that is one of the list.
    pub parent: Option<VersionNumber>,
}

/// Looks at every vDisk's image.
///
/// # Errors
/// The first that cannot be used, with vDisk, file and reason.
pub fn survey(config: &Config) -> anyhow::Result<Vec<FileVdisk>> {
    let whole = config.vdisks.iter().filter(|vdisk| base_name(&vdisk.name) == vdisk.name);
    whole.map(|vdisk| survey_one(config, vdisk)).collect()
}

fn survey_one(config: &Config, vdisk: &Vdisk) -> anyhow::Result<FileVdisk> {
    let prefix = format!("{}@", vdisk.name);
    let listed: Vec<(&str, &Vdisk)> = config
        .vdisks
        .iter()
        .filter_map(|other| other.name.strip_prefix(&prefix).map(|number| (number, other)))
        .collect();
    let lists_versions = !listed.is_empty();
    let all = if lists_versions { listed } else { vec![("0", vdisk)] };
    let mut private = config.devices.iter().filter(|device| device.is_private());
    let is_private =
        private.any(|device| config.vdisk(&device.vdisk).is_some_and(|own| own.path == vdisk.path));
    let mut versions = Vec::new();
    let mut current = VersionNumber::BASE;
    for (number, version) in &all {
        let number: VersionNumber = number.parse()?;
        if version.path == vdisk.path {
            current = number;
        }
        let parent_of = |path: &Path| {
            let found = all.iter().find(|(_, other)| is_same_file(&other.path, path));
            found.and_then(|(number, _)| number.parse().ok())
        };
        let found = look(version, number, is_private, parent_of).with_context(|| {
            format!("vDisk \"{}\": its image {} cannot be used", version.name, version.path.display())
        })?;
        versions.push(found);
    }
    versions.sort_by_key(|version| version.number);
    let store = store(config, vdisk)?;
    Ok(FileVdisk { name: VdiskName::new(&vdisk.name)?, store, is_private, lists_versions, versions, current })
}

fn look(
    version: &Vdisk,
    number: VersionNumber,
    is_private: bool,
    parent_of: impl Fn(&Path) -> Option<VersionNumber>,
) -> anyhow::Result<FileVersion> {
    let at = image_at(version);
    // A private one may be in use by the server that runs.
    let (image, _locks) =
        if is_private { (Image::open(&at.path, at.options())?, Vec::new()) } else { at.open()? };
    let layers = image.layers();
    let (leaf, below) = layers.split_last().context("it has no file")?;
    let parent = below.last().and_then(|layer| parent_of(layer.path.as_deref()?));
    let name = version.path.file_name().and_then(|name| name.to_str()).context("its name is not UTF-8")?;
    Ok(FileVersion { number, file: FileName::new(name)?, mark: control::marks::of_layer(leaf)?, parent })
}

/// Where a vDisk of the configuration is, and how it is opened.
fn image_at(vdisk: &Vdisk) -> ImageAt {
    ImageAt { path: vdisk.path.clone(), store: vdisk.store.clone(), format: vdisk.format }
}

/// The store of the catalogue that a vDisk's files lie in: one of `[stores]`, or one for the folder.
pub fn store(config: &Config, vdisk: &Vdisk) -> anyhow::Result<(Name, StorePath)> {
    let folder = vdisk.path.parent().context("an image lies in a folder")?;
    let text = folder.to_str().context("the folder's name is not UTF-8")?;
    let named = config.stores.iter().find(|(_, path)| path.as_path() == folder).map(|(name, _)| name.clone());
    let name = named.unwrap_or_else(|| folder_name(text));
    Ok((store_name(&name)?, StorePath::new(text)?))
}

/// A name for a store as the catalogue has them: names of `[stores]` may be a little longer.
pub fn store_name(name: &str) -> Result<Name, farm::model::BadValue> {
    Name::new(name).or_else(|_| Name::new(&folder_name(name)))
}

/// What the store of a folder is called: the end of its path, and what tells it from others with the same end.
fn folder_name(path: &str) -> String {
    let readable = path.trim_matches('/').replace(['/', '"'], "-");
    let skipped = readable.chars().count().saturating_sub(MAX_FOLDER_CHARS);
    let end: String = readable.chars().skip(skipped).collect();
    let hash = fnv1a_128(path.as_bytes()) & 0xFFFF_FFFF;
    format!("{} {hash:08x}", end.trim_matches(['-', ' '])).trim().to_owned()
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_of_a_folder_has_a_name_of_its_own_that_the_catalogue_takes() {
        let long = format!("/srv/{}/images", "x".repeat(300));
        for path in ["/", "/srv/images", "/srv/\"a\"", &long] {
            let name = folder_name(path);
            assert!(Name::new(&name).is_ok(), "{name}");
        }
        assert_ne!(folder_name("/a/b-c"), folder_name("/a-b/c"));
        assert_eq!(store_name("images").unwrap().as_str(), "images");
    }
}
