//! How the files of a chain are called: for people as the chain names them, seen from the store; for programs by paths
//! that they can open from where they are.
use std::path::Path;

use diskimage::Image;

use crate::cli::ImageOptions;

/// The names of the files of the image that was opened at `file`, the base first: paths from the store's folder on, and
/// whole paths of files that do not lie in it (a single image may lie anywhere).
pub(super) fn names(image: &Image, file: &Path, options: &ImageOptions) -> Vec<String> {
    let real = |path: &Path| path.canonicalize().ok();
    let store = match &options.store {
        Some(store) => real(store),
        None => real(file).and_then(|file| Some(file.parent()?.to_owned())),
    };
    let name = |path: &Path| {
        let within =
            store.as_ref().and_then(|store| real(path)?.strip_prefix(store).ok().map(Path::to_owned));
        within.as_deref().unwrap_or(path).display().to_string()
    };
    image.layers().iter().map(|layer| layer.path.as_deref().map_or_else(String::new, name)).collect()
}

/// The paths of the files of the image, the base first.
pub(super) fn paths(image: &Image) -> Vec<String> {
    let name = |path: &Path| path.display().to_string();
    image.layers().iter().map(|layer| layer.path.as_deref().map_or_else(String::new, name)).collect()
}
