//! Why a rule says no.
use crate::model::VersionNumber;

/// Why a rule says no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The version is not there.
    #[error("there is no version {0}")]
    NoSuchVersion(VersionNumber),
}
