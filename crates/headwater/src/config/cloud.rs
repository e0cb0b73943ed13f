//! `[cloud]`: what operating systems are told about themselves.
use std::path::PathBuf;

use super::reader::Section;

/// `[cloud]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudConfig {
    /// The folder of the secrets; `None`: there are none.
    pub secrets: Option<PathBuf>,
}

pub(super) fn read(root: &mut Section<'_>) -> CloudConfig {
    let Some(mut section) = root.section("cloud") else { return CloudConfig::default() };
    let secrets = section.path("secrets");
    section.finish();
    CloudConfig { secrets }
}
