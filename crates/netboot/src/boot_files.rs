//! The boot files: read into memory at start, served from there by TFTP and HTTP.
//!
//! There are a few of them and they are small (iPXE has 70 KB to 1 MB), so nothing that a client sends ever becomes a path
//! of the file system. A new file on disk is served after a restart; what comes and goes meanwhile, kernels out of images,
//! stands on a [`Shelf`].
use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Bytes;

/// The largest boot file. A kernel with its initramfs in one EFI file has under 200 MB; iPXE has one.
pub const MAX_BOOT_FILE_BYTES: u64 = 256 << 20;

/// The longest name of a boot file.
const MAX_NAME_BYTES: usize = 80;

/// Which files firmware of each kind boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootFileNames {
    /// BIOS PXE.
    pub bios: String,
    /// UEFI x64, by PXE and by HTTP Boot.
    pub uefi_x64: String,
    /// UEFI on 32-bit x86; `None`: such machines get no boot file.
    pub uefi_ia32: Option<String>,
    /// UEFI on 64-bit Arm; `None`: such machines get no boot file.
    pub uefi_arm64: Option<String>,
}

impl Default for BootFileNames {
    /// The names in Debian's package `ipxe`, which has none for 32-bit UEFI and for Arm.
    fn default() -> Self {
        Self {
            bios: "undionly.kpxe".to_owned(),
            uefi_x64: "ipxe.efi".to_owned(),
            uefi_ia32: None,
            uefi_arm64: None,
        }
    }
}

/// Where the boot files are and which there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootFilesConfig {
    /// Searched in this order.
    pub directories: Vec<PathBuf>,
    /// What firmware boots.
    pub names: BootFileNames,
    /// Other files to serve, by name.
    pub extra: Vec<String>,
    /// Files with places of their own, by the name to serve them under: kernels, say.
    pub placed: Vec<(String, PathBuf)>,
    /// Files that come and go while the services run.
    pub shelf: Shelf,
}

/// Boot files that come and go. Clones are the same shelf.
#[derive(Clone, Debug, Default)]
pub struct Shelf(Arc<RwLock<HashMap<String, Bytes>>>);

impl PartialEq for Shelf {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Shelf {}

impl Shelf {
    /// Serves a file from now on, in place of one of the same name.
    pub fn put(&self, name: String, bytes: Bytes) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name, bytes);
    }

    /// Serves a file no more; whoever is being sent it gets the rest.
    pub fn take(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn get(&self, name: &str) -> Option<Bytes> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

impl Default for BootFilesConfig {
    /// Where Debian's package `ipxe` puts its files.
    fn default() -> Self {
        Self {
            directories: vec![PathBuf::from("/usr/lib/ipxe"), PathBuf::from("/boot")],
            names: BootFileNames::default(),
            extra: Vec::new(),
            placed: Vec::new(),
            shelf: Shelf::default(),
        }
    }
}

/// Why the boot files cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BootFilesError {
    /// A file is in none of the directories.
    #[error(
        "boot file \"{name}\" is in none of the directories {directories:?}: install Debian's package \"ipxe\", or \
         configure the directory that holds it"
    )]
    Missing {
        /// The file.
        name: String,
        /// The directories.
        directories: Vec<PathBuf>,
    },
    /// A name is no plain file name.
    #[error("boot file \"{0}\": the name must be letters, digits and ._- alone, without directories")]
    Name(String),
    /// A file is too large.
    #[error("boot file {path:?} has {size_bytes} bytes; {MAX_BOOT_FILE_BYTES} is the most")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
    /// A file is empty.
    #[error("boot file {0:?} is empty")]
    Empty(PathBuf),
    /// A file cannot be read.
    #[error("cannot read the boot file {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The boot files, by name.
#[derive(Clone, Debug, Default)]
pub struct BootFiles {
    files: BTreeMap<String, Bytes>,
    shelf: Shelf,
}

impl BootFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be served.
    pub fn load(config: &BootFilesConfig) -> Result<Self, BootFilesError> {
        let names = &config.names;
        let optional = names.uefi_ia32.iter().chain(&names.uefi_arm64);
        let wanted = [&names.bios, &names.uefi_x64].into_iter().chain(optional).chain(&config.extra);
        let mut files = BTreeMap::new();
        let placed = config.placed.iter().map(|(name, _)| name);
        if let Some(name) = wanted.clone().chain(placed).find(|name| !is_plain_name(name)) {
            return Err(BootFilesError::Name(name.clone()));
        }
        for (name, path) in &config.placed {
            files.insert(name.clone(), Bytes::from(read(path)?));
        }
        for name in wanted {
            if !files.contains_key(name) {
                files.insert(name.clone(), Bytes::from(find(name, &config.directories)?));
            }
        }
        Ok(Self { files, shelf: config.shelf.clone() })
    }

    /// Files that are in memory already.
    #[must_use]
    pub fn from_memory(files: impl IntoIterator<Item = (String, Bytes)>) -> Self {
        Self { files: files.into_iter().collect(), shelf: Shelf::default() }
    }

    /// The file of this name. Firmware asks for `/name` as well as for `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Bytes> {
        let name = name.trim_start_matches('/');
        self.files.get(name).cloned().or_else(|| self.shelf.get(name))
    }

    /// The names and sizes of the files that stay.
    pub fn list(&self) -> impl Iterator<Item = (&str, usize)> {
        self.files.iter().map(|(name, bytes)| (name.as_str(), bytes.len()))
    }
}

/// Whether a boot file may have this name: letters, digits and `._-`, no directories.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    !name.starts_with('.')
        && !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn find(name: &str, directories: &[PathBuf]) -> Result<Vec<u8>, BootFilesError> {
    for directory in directories {
        let path = directory.join(name);
        match read(&path) {
            Ok(bytes) => return Ok(bytes),
            Err(BootFilesError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Err(BootFilesError::Missing { name: name.to_owned(), directories: directories.to_vec() })
}

fn read(path: &Path) -> Result<Vec<u8>, BootFilesError> {
    let failed = |source| BootFilesError::Read { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    let size_bytes = file.metadata().map_err(failed)?.len();
    if size_bytes > MAX_BOOT_FILE_BYTES {
        return Err(BootFilesError::TooLarge { path: path.to_owned(), size_bytes });
    }
    let mut bytes = Vec::new();
    file.take(MAX_BOOT_FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.is_empty() {
        return Err(BootFilesError::Empty(path.to_owned()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(directory: &Path) -> BootFilesConfig {
        BootFilesConfig { directories: vec![directory.to_owned()], ..BootFilesConfig::default() }
    }

    #[test]
    fn missing_boot_file_names_the_package_and_the_directories() {
        let directory = tempfile::tempdir().unwrap();
        let message = BootFiles::load(&config(directory.path())).unwrap_err().to_string();
        assert!(message.contains("undionly.kpxe") && message.contains("\"ipxe\""), "{message}");
        assert!(message.contains(directory.path().to_str().unwrap()), "{message}");
    }

    #[test]
    fn files_are_found_in_the_first_directory_that_has_them() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(first.path().join("ipxe.efi"), "new").unwrap();
        std::fs::write(second.path().join("ipxe.efi"), "old").unwrap();
        std::fs::write(second.path().join("undionly.kpxe"), "bios").unwrap();
        let mut config = config(first.path());
        config.directories.push(second.path().to_owned());
        let files = BootFiles::load(&config).unwrap();
        assert_eq!(files.get("/ipxe.efi").unwrap(), "new");
        assert_eq!(files.get("undionly.kpxe").unwrap(), "bios");
        assert!(files.get("../ipxe.efi").is_none() && files.get("").is_none());
    }

    #[test]
    fn placed_file_is_served_under_its_name_and_one_that_is_missing_is_named() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["ipxe.efi", "undionly.kpxe", "vmlinuz-6.1"] {
            std::fs::write(directory.path().join(name), name).unwrap();
        }
        let mut config = config(directory.path());
        config.placed.push(("debian.kernel".to_owned(), directory.path().join("vmlinuz-6.1")));
        assert_eq!(BootFiles::load(&config).unwrap().get("debian.kernel").unwrap(), "vmlinuz-6.1");
        config.placed.push(("debian.initrd".to_owned(), directory.path().join("initrd.img")));
        let message = BootFiles::load(&config).unwrap_err().to_string();
        assert!(message.contains("initrd.img"), "{message}");
    }

    #[test]
    fn file_on_the_shelf_is_served_until_it_is_taken_away() {
        let shelf = Shelf::default();
        let files = BootFiles { shelf: shelf.clone(), ..BootFiles::default() };
        assert!(files.get("golden.1.kernel").is_none());
        shelf.put("golden.1.kernel".to_owned(), Bytes::from_static(b"one"));
        assert_eq!(files.get("/golden.1.kernel").unwrap(), "one");
        shelf.put("golden.1.kernel".to_owned(), Bytes::from_static(b"two"));
        assert_eq!(files.get("golden.1.kernel").unwrap(), "two");
        shelf.take("golden.1.kernel");
        assert!(files.get("golden.1.kernel").is_none());
    }

    #[test]
    fn names_with_directories_and_empty_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path());
        config.names.bios = "../etc/passwd".to_owned();
        assert!(matches!(BootFiles::load(&config), Err(BootFilesError::Name(_))));
        config.names.bios = "empty".to_owned();
        std::fs::write(directory.path().join("empty"), "").unwrap();
        assert!(matches!(BootFiles::load(&config), Err(BootFilesError::Empty(_))));
    }
}
