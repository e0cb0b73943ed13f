//! How a new differencing image names its parent.
use std::path::{Component, Path, PathBuf};

use super::error::OpError;
use super::partial::directory_of;
use crate::image::{Image, LayerInfo};
use crate::mutable::linkage_of;
use crate::new_image::ParentLink;

/// The link of a child at `target` to the file `parent`, one of `image`'s.
pub(super) fn link_to(image: &Image, parent: &LayerInfo, target: &Path) -> Result<ParentLink, OpError> {
    let format = parent.info.format;
    let (Some(path), Some(storage)) = (&parent.path, image.layer_storage(parent.layer)) else {
        return Err(OpError::unfit("the parent lies in no file that a child could name"));
    };
    let linkage = linkage_of(storage, format).map_err(|refusal| refusal.about(Some(path.clone())))?;
    let Some(linkage) = linkage else {
        return Err(OpError::unfit(format!(
            "a {} image cannot have children; convert it to VHDX first",
            format.title()
        )));
    };
    let real = |path: &Path| {
        path.canonicalize().map_err(|error| OpError::file(path, "found for the parent's path", error))
    };
    let relative_path = relative(&real(directory_of(target))?, &real(path)?)
        .ok_or_else(|| OpError::unfit(format!("the name of the parent, {path:?}, is not Unicode text")))?;
    Ok(ParentLink { linkage, relative_path, absolute_path: None })
}

/// `path` as seen from `folder`, with `/` between names. Both are absolute and without symlinks.
fn relative(folder: &Path, path: &Path) -> Option<String> {
    let (mut up, mut down) = (folder.components().peekable(), path.components().peekable());
    while up.peek().is_some() && up.peek() == down.peek() {
        up.next();
        down.next();
    }
    let names: PathBuf = up.map(|_| Component::ParentDir).chain(down).collect();
    names.to_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_goes_up_as_far_as_it_must() {
        let relative = |folder: &str, path: &str| relative(Path::new(folder), Path::new(path)).unwrap();
        assert_eq!(relative("/store", "/store/base.vhdx"), "base.vhdx");
        assert_eq!(relative("/store/new", "/store/base.vhdx"), "../base.vhdx");
        assert_eq!(relative("/store", "/store/old/base.vhdx"), "old/base.vhdx");
        assert_eq!(relative("/a/b", "/c/base.vhdx"), "../../c/base.vhdx");
        assert_eq!(relative("/", "/base.vhdx"), "base.vhdx");
    }
}
