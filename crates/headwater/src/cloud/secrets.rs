//! Secrets that devices are told: files below a folder of the server's, never in the catalogue.
//!
//! `all/NAME` is for every device, `collection/COLLECTION/NAME` for those of a collection, `device/DEVICE/NAME` for one;
//! of the same name, the nearest counts. The text in the file is the secret, without the line's end at its own.
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The most secrets of one device.
const MAX_SECRETS: usize = 64;
/// The longest secret: a private key with its certificate chain.
const MAX_SECRET_BYTES: u64 = 16 << 10;
/// The longest name.
const MAX_NAME_BYTES: usize = 64;
/// Permissions of others than the owner.
const OF_OTHERS: u32 = 0o077;

/// The secrets of one device. Nothing where there are no folders for it.
///
/// # Errors
/// A file that cannot be read, is too long, is no text, or may be read by others; with its path.
pub fn of_device(folder: &Path, device: &str, collection: &str) -> io::Result<BTreeMap<String, String>> {
    let mut secrets = BTreeMap::new();
    let places =
        [folder.join("all"), folder.join("collection").join(collection), folder.join("device").join(device)];
    // A name of the catalogue holds no slash; these two lead out of the folder all the same.
    let safe = |name: &str| !matches!(name, "." | "..");
    if !safe(device) || !safe(collection) {
        return Ok(secrets);
    }
    for place in places {
        let entries = match fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(at(&place, &error)),
        };
        for entry in entries {
            let path = entry.map_err(|error| at(&place, &error))?.path();
            let Some(name) = name_of(&path) else { continue };
            secrets.insert(name, read(&path)?);
            if secrets.len() > MAX_SECRETS {
                return Err(bad(&place, &format!("a device may have {MAX_SECRETS} secrets")));
            }
        }
    }
    Ok(secrets)
}

/// The name of a secret; what editors and version control leave behind begins with a dot, and is none.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let fits = name.len() <= MAX_NAME_BYTES && name.bytes().all(plain) && !name.starts_with('.');
    fits.then(|| name.to_owned())
}

fn read(path: &PathBuf) -> io::Result<String> {
    let file = File::open(path).map_err(|error| at(path, &error))?;
    let about = file.metadata().map_err(|error| at(path, &error))?;
    if about.mode() & OF_OTHERS != 0 {
        return Err(bad(path, "others may read it; chmod 600"));
    }
    if !about.is_file() || about.len() > MAX_SECRET_BYTES {
        return Err(bad(path, &format!("it is no file of at most {MAX_SECRET_BYTES} bytes")));
    }
    let mut text = String::new();
    file.take(MAX_SECRET_BYTES).read_to_string(&mut text).map_err(|error| at(path, &error))?;
    let line = text.strip_suffix('\n').filter(|line| !line.contains('\n'));
    Ok(line.map_or_else(|| text.clone(), str::to_owned))
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn bad(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn put(folder: &Path, place: &str, text: &str, mode: u32) {
        let path = folder.join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn nearest_secret_of_a_name_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert!(of_device(dir.path(), "lab-01", "Lab").unwrap().is_empty());
        put(dir.path(), "all/join", "everybody\n", 0o600);
        put(dir.path(), "all/.join.swp", "x", 0o600);
        put(dir.path(), "collection/Lab/join", "the lab", 0o400);
        put(dir.path(), "device/lab-01/key", "one\ntwo\n", 0o600);
        let of = |device, collection| of_device(dir.path(), device, collection).unwrap();
        let pairs = |map: BTreeMap<String, String>| map.into_iter().collect::<Vec<_>>();
        assert_eq!(
            pairs(of("lab-01", "Lab")),
            [("join".into(), "the lab".into()), ("key".into(), "one\ntwo\n".into())]
        );
        assert_eq!(pairs(of("lab-02", "Other")), [("join".into(), "everybody".into())]);
        assert!(of("..", "Lab").is_empty());
    }

    #[test]
    fn secret_that_others_may_read_or_that_is_too_long_is_refused_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "all/open", "x", 0o644);
        let why = of_device(dir.path(), "a", "b").unwrap_err().to_string();
        assert!(why.contains("all/open") && why.contains("chmod 600"), "{why}");
        put(dir.path(), "all/open", &"x".repeat(20_000), 0o600);
        assert!(of_device(dir.path(), "a", "b").unwrap_err().to_string().contains("16384 bytes"));
    }
}
