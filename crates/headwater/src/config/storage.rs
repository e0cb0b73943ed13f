//! `[stores]`, `[[vdisk]]`, `[write_cache]`: where bytes live.
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use ::farm::model::VdiskName;
use serde::{Deserialize, Serialize};

use super::command_line::CommandLine;
use super::problem::Position;
use super::reader::{Section, nearest};
use super::values::{ByteSize, plain_name};

/// The smallest write cache: less could not hold one boot of anything.
const MIN_LIMIT_BYTES: u64 = 1 << 20;

/// The most versions of one vDisk beside its base, and the highest number of one.
const MAX_VERSIONS: usize = 64;
const MAX_VERSION: u64 = 99_999;

/// An image's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageFormat {
    /// Bytes as they are.
    Raw,
    /// VHD, fixed or dynamic.
    Vhd,
    /// VHDX, fixed or dynamic.
    Vhdx,
}

/// `[[vdisk]]`: a golden image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vdisk {
    /// Its name.
    pub name: String,
    /// The image file.
    pub path: PathBuf,
    /// The store that it lies in, out of which none of its parents may lie; `None`: its own folder.
    pub store: Option<PathBuf>,
    /// Its format; `None`: what the file's contents say.
    pub format: Option<ImageFormat>,
    /// The Linux kernel that its machines are started with; `None`: firmware boots from the disk.
    pub kernel: Option<DirectKernel>,
    /// Where in the configuration.
    pub defined_at: Position,
}

/// A Linux kernel that machines fetch over HTTP, instead of having firmware boot from the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectKernel {
    /// Where it comes from.
    pub source: KernelSource,
    /// Its command line, with places for what the boot is.
    pub command_line: CommandLine,
}

/// Where a kernel and its initramfs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// Files beside the image.
    Files {
        /// The kernel.
        kernel: PathBuf,
        /// Its initramfs.
        initrd: Option<PathBuf>,
    },
    /// The file systems inside the image: the boot entry of this id, or the one that the image's boot loader would take.
    Image {
        /// The id.
        entry: Option<String>,
    },
}

/// Where a device's writes go, and how long they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// To a file, until the next boot.
    Disk,
    /// To the server's memory, until the next boot or the server's end.
    Memory,
    /// To a file, across boots.
    Persistent,
    /// There is none: the one device that uses the vDisk writes the vDisk itself.
    None,
}

impl CacheKind {
    /// Reads a kind.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "disk" => Ok(Self::Disk),
            "memory" => Ok(Self::Memory),
            "persistent" => Ok(Self::Persistent),
            "none" => Ok(Self::None),
            _ => Err(format!("\"{text}\" is none of \"disk\", \"memory\", \"persistent\" and \"none\"")),
        }
    }
}

/// `[write_cache]`: what devices write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteCache {
    /// Where devices' writes go, where a device says nothing else.
    pub kind: CacheKind,
    /// Where the files are.
    pub directory: PathBuf,
    /// What all write caches in memory may take together.
    pub memory_limit: ByteSize,
    /// The most that one device's write cache takes.
    pub limit: ByteSize,
    /// From how much of the limit on the administrator is warned.
    pub warn_percent: u8,
}

/// `[stores]`: name to directory.
pub(super) fn read_stores(root: &mut Section<'_>) -> BTreeMap<String, PathBuf> {
    let mut stores = BTreeMap::new();
    let Some(mut section) = root.section("stores") else { return stores };
    for (name, value) in section.free_keys() {
        let named = plain_name(&name);
        let path = section.one_string(&name, value, |text| {
            if Path::new(text).is_absolute() {
                Ok(PathBuf::from(text))
            } else {
                Err(format!("\"{text}\" is not an absolute path"))
            }
        });
        match (named, path) {
            (Ok(name), Some(path)) => drop(stores.insert(name, path)),
            (Err(why), _) => section.report(&name, format!("stores: {why}")),
            (Ok(_), None) => {}
        }
    }
    stores
}

pub(super) fn read_vdisks(root: &mut Section<'_>, stores: &BTreeMap<String, PathBuf>) -> Vec<Vdisk> {
    let mut vdisks: Vec<Vdisk> = Vec::new();
    for mut section in root.sections("vdisk") {
        let name = section.required("name", vdisk_name);
        let store = section.string("store");
        let file = section.required("file", |text| Ok(PathBuf::from(text)));
        let format = section.string_as("format", |text| match text {
            "raw" => Ok(ImageFormat::Raw),
            "vhd" => Ok(ImageFormat::Vhd),
            "vhdx" => Ok(ImageFormat::Vhdx),
            _ => Err(format!("\"{text}\" is not a format; known: raw, vhd, vhdx")),
        });
        let kernel = read_kernel(&mut section, name.as_deref().unwrap_or_default(), store.as_deref(), stores);
        let versions = read_versions(&mut section);
        section.finish();
        let (Some(name), Some(file)) = (name, file) else { continue };
        if let Some(other) = vdisks.iter().find(|other| other.name == name) {
            let line = other.defined_at.line;
            section.report("name", format!("vDisk \"{name}\" is defined twice; first on line {line}"));
            continue;
        }
        let Some(path) = locate(&section, "file", &name, &file, store.as_deref(), stores) else { continue };
        let store = stores.values().find(|store| !file.is_absolute() && path.starts_with(store)).cloned();
        let base = Vdisk { name, path, store, format, kernel, defined_at: section.position() };
        vdisks.extend(versions.of(base));
    }
    vdisks
}

/// A vDisk's name, which its versions' files and the catalogue must be able to carry.
fn vdisk_name(text: &str) -> Result<String, String> {
    let name = plain_name(text)?;
    VdiskName::new(&name).map(|_| name).map_err(|bad| bad.to_string())
}

/// Which versions of a vDisk are served, and which one it is that devices boot where they name none.
struct Versions {
    /// Without the base, 0.
    numbers: Vec<u64>,
    current: u64,
}

fn read_versions(section: &mut Section<'_>) -> Versions {
    let numbers = section.integers("versions", MAX_VERSIONS, 1..=MAX_VERSION).unwrap_or_default();
    let current = section.integer("version", 0..=MAX_VERSION).unwrap_or(0);
    if current != 0 && !numbers.contains(&current) {
        section.report("version", format!("vdisk.version {current} is not among versions"));
    }
    Versions { numbers, current }
}

impl Versions {
    /// The vDisk under its name alone, and under the name of each version.
    fn of(&self, base: Vdisk) -> Vec<Vdisk> {
        if self.numbers.is_empty() {
            return vec![base];
        }
        let version = |number: u64, name: String| Vdisk {
            name,
            path: version_file(&base.path, number),
            ..base.clone()
        };
        let named = std::iter::once(0).chain(self.numbers.iter().copied());
        let named = named.map(|number| version(number, format!("{}@{number}", base.name)));
        std::iter::once(version(self.current, base.name.clone())).chain(named).collect()
    }
}

/// The file of a version: `name.vhdx` is the base, `name.3.avhdx` its version 3.
fn version_file(base: &Path, number: u64) -> PathBuf {
    if number == 0 {
        return base.to_owned();
    }
    let ending = match base.extension().and_then(std::ffi::OsStr::to_str) {
        Some(ending) if ending.eq_ignore_ascii_case("vhd") => "avhd",
        _ => "avhdx",
    };
    base.with_extension(format!("{number}.{ending}"))
}

/// `boot`, `boot_entry`, `kernel`, `initrd`, `command_line`.
fn read_kernel(
    section: &mut Section<'_>,
    vdisk: &str,
    store: Option<&str>,
    stores: &BTreeMap<String, PathBuf>,
) -> Option<DirectKernel> {
    let directly = section.string_as("boot", |text| match text {
        "disk" => Ok(false),
        "kernel" => Ok(true),
        _ => Err(format!("\"{text}\" is neither \"disk\" nor \"kernel\"")),
    });
    let entry = section.string("boot_entry");
    let kernel = section.string("kernel");
    let initrd = section.string("initrd");
    let command_line = section.string_as("command_line", CommandLine::parse);
    if !directly.unwrap_or(kernel.is_some()) {
        for key in
            ["boot_entry", "kernel", "initrd", "command_line"].into_iter().filter(|key| section.has(key))
        {
            let why = if directly.is_some() {
                "with boot = \"disk\""
            } else {
                "without kernel or boot = \"kernel\""
            };
            section.report(key, format!("vdisk.{key} {why}: the disk itself is booted"));
        }
        return None;
    }
    let Some(kernel) = kernel else {
        if section.has("initrd") {
            section
                .report("initrd", "vdisk.initrd without kernel: both come from inside the image".to_owned());
        }
        let command_line =
            if section.has("command_line") { command_line? } else { CommandLine::of_the_entry() };
        return Some(DirectKernel { source: KernelSource::Image { entry }, command_line });
    };
    if section.has("boot_entry") {
        section.report(
            "boot_entry",
            "vdisk.boot_entry with kernel: a kernel outside the image has no entry".to_owned(),
        );
    }
    if !section.has("command_line") {
        section.report("kernel", "vdisk.kernel without command_line: the kernel must be told its disk");
    }
    if command_line.as_ref().is_some_and(CommandLine::needs_entry) {
        section.report("command_line", "{options} are those of a kernel inside the image".to_owned());
    }
    let place = |key: &str, file: &str| locate(section, key, vdisk, Path::new(file), store, stores);
    let initrd = match initrd {
        Some(file) => Some(place("initrd", &file)?),
        None => None,
    };
    let source = KernelSource::Files { kernel: place("kernel", &kernel)?, initrd };
    Some(DirectKernel { source, command_line: command_line? })
}

/// A file's place: an absolute file stands for itself, any other is looked up in a store.
fn locate(
    section: &Section<'_>,
    key: &str,
    vdisk: &str,
    file: &Path,
    store: Option<&str>,
    stores: &BTreeMap<String, PathBuf>,
) -> Option<PathBuf> {
    if file.is_absolute() && store.is_none() {
        return Some(file.to_owned());
    }
    if file.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        section.report(
            key,
            format!("vDisk \"{vdisk}\": the file must lie below its store, without \"..\" or \"/\" in front"),
        );
        return None;
    }
    let directory = match store {
        Some(name) => stores.get(name),
        None if stores.len() == 1 => stores.values().next(),
        None => None,
    };
    if let Some(directory) = directory {
        return Some(directory.join(file));
    }
    match store {
        Some(name) => {
            let hint = match nearest(name, stores.keys().map(String::as_str)) {
                Some(known) => format!("did you mean \"{known}\"?"),
                None => "add it to [stores]".to_owned(),
            };
            section.report("store", format!("vDisk \"{vdisk}\": there is no store \"{name}\"; {hint}"));
        }
        None if stores.is_empty() => section.report(
            key,
            format!("vDisk \"{vdisk}\": \"{}\" is relative, and [stores] names no directory", file.display()),
        ),
        None => {
            let names: Vec<&str> = stores.keys().map(String::as_str).collect();
            section.report(
                key,
                format!("vDisk \"{vdisk}\": say in which store (store = ...): {}", names.join(", ")),
            );
        }
    }
    None
}

pub(super) fn read_write_cache(root: &mut Section<'_>, state_dir: &Path) -> WriteCache {
    let default = WriteCache {
        kind: CacheKind::Disk,
        directory: state_dir.join("write-cache"),
        memory_limit: ByteSize(4 << 30),
        limit: ByteSize(10 << 30),
        warn_percent: 80,
    };
    let Some(mut section) = root.section("write_cache") else { return default };
    let kind = section.string_as("kind", |text| match CacheKind::parse(text)? {
        CacheKind::None => {
            Err("\"none\" is for one device that writes its vDisk itself: [[device]] write_cache = \"none\""
                .to_owned())
        }
        kind => Ok(kind),
    });
    let directory = section.path("directory");
    let memory_limit = section.string_as("memory_limit", limit);
    let limit = section.string_as("limit", limit);
    let warn = section.integer("warn_percent", 1..=100);
    section.finish();
    WriteCache {
        kind: kind.unwrap_or(default.kind),
        memory_limit: memory_limit.unwrap_or(default.memory_limit),
        directory: directory.unwrap_or(default.directory),
        limit: limit.unwrap_or(default.limit),
        warn_percent: warn.and_then(|percent| u8::try_from(percent).ok()).unwrap_or(default.warn_percent),
    }
}

/// A write cache's limit.
pub(super) fn limit(text: &str) -> Result<ByteSize, String> {
    let size = ByteSize::parse(text)?;
    if size.0 < MIN_LIMIT_BYTES {
        return Err(format!(
            "\"{text}\" is less than the smallest write cache, {}",
            ByteSize(MIN_LIMIT_BYTES)
        ));
    }
    Ok(size)
}
