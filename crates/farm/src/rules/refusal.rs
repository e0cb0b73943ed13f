//! Why a rule says no to a change.
use super::leases::Conflict;
use crate::model::Choice as _;
use crate::model::{Timestamp, VersionNumber, VersionState};

/// Why a rule says no to a change. Messages name the way out, where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The version is not there.
    #[error("the vDisk has no version {0}")]
    NoSuchVersion(VersionNumber),
    /// The vDisk has no version at all that could be built on.
    #[error("the vDisk has no version that is published and whole")]
    NothingPublished,
    /// One device writes into a private vDisk itself; it has no further versions.
    #[error(
        "the vDisk is private: a device writes into it, and versions cannot be made of it; make it standard first"
    )]
    Private,
    /// There is a maintenance version already.
    #[error("version {0} is under maintenance: promote or delete it first")]
    UnderMaintenance(VersionNumber),
    /// The version is not what it should be.
    #[error("version {number} is {}: {}", state.word(), remedy(*state))]
    NotReady {
        /// Which.
        number: VersionNumber,
        /// What it is.
        state: VersionState,
    },
    /// Maintenance versions change: nothing can stand on one.
    #[error("version {0} is under maintenance and may still change: promote it first")]
    NotPublished(VersionNumber),
    /// It is what it should become.
    #[error("version {0} is that already")]
    AlreadySo(VersionNumber),
    /// It was released.
    #[error("version {number} was released at {released}: the time of its release cannot be moved any more")]
    AlreadyReleased {
        /// Which.
        number: VersionNumber,
        /// When.
        released: Timestamp,
    },
    /// Others stand on it.
    #[error("version {number} is the parent of {}: delete or merge what stands on it first", list(children))]
    HasChildren {
        /// Which.
        number: VersionNumber,
        /// What stands on it.
        children: Vec<VersionNumber>,
    },
    /// A whole image is not put under maintenance itself.
    #[error("version {0} is a whole image, and would be changed itself: make a maintenance version on it")]
    WholeImage(VersionNumber),
    /// Only the newest can go back.
    #[error(
        "version {number} is not the newest: {newest} is; to go back to an older one, hold the vDisk at it"
    )]
    NotNewest {
        /// Which.
        number: VersionNumber,
        /// The newest.
        newest: VersionNumber,
    },
    /// The vDisk is held at it.
    #[error("the vDisk is held at version {0}: release it first")]
    Held(VersionNumber),
    /// The vDisk can be held at production versions alone.
    #[error("version {0} is not in production: a vDisk can be held at what production devices may boot")]
    NotProduction(VersionNumber),
    /// Devices would have nothing left to boot.
    #[error(
        "{devices} device(s) would have nothing to boot without version {number}: give them another vDisk first"
    )]
    LastOne {
        /// Which.
        number: VersionNumber,
        /// How many.
        devices: u64,
    },
    /// Somebody uses it.
    #[error(transparent)]
    InUse(#[from] Conflict),
    /// There is nothing to merge.
    #[error("there is nothing to merge: {0}")]
    NothingToMerge(&'static str),
    /// A merge would release what is in test.
    #[error(
        "version {0} is in test, and merging it to production would release it: promote it first, or merge to test"
    )]
    WouldRelease(VersionNumber),
    /// The chain is too long to be opened.
    #[error("the chain of version {number} has {length} files, and {limit} is the most: merge first")]
    ChainTooLong {
        /// Of which version.
        number: VersionNumber,
        /// Its length.
        length: usize,
        /// The most.
        limit: usize,
    },
    /// There are no numbers left.
    #[error("the vDisk has used up its version numbers: import its newest version as a new vDisk")]
    NumbersUsedUp,
    /// The parents of a version do not lead to a whole image.
    #[error("the chain of version {0} is broken: a parent of it is not in the catalogue")]
    BrokenChain(VersionNumber),
    /// There are no names left.
    #[error("the naming pattern {pattern} has no free number left: give it more digits")]
    NamesUsedUp {
        /// The pattern.
        pattern: String,
    },
    /// What is known of a boot, is known by the device's name.
    #[error(
        "device {device} runs, since {since}: shut it down first, or end its boot (headwater device reset {device})"
    )]
    DeviceRuns {
        /// Which.
        device: String,
        /// Since when.
        since: Timestamp,
    },
    /// What a device keeps, it keeps under its name.
    #[error(
        "device {device} keeps a write cache over its boots: make a version of it, or discard it, first (headwater \
         write-cache show {device})"
    )]
    DeviceKeeps {
        /// Which.
        device: String,
    },
    /// Nobody is expected.
    #[error("no collection of the site takes newcomers")]
    NoNewcomers,
}

fn remedy(state: VersionState) -> &'static str {
    match state {
        VersionState::Making => "wait until it is made",
        VersionState::Ready => "nothing needs to be done",
        VersionState::Missing => "bring its file back to the store",
        VersionState::Changed => "somebody else wrote to its file; restore it, or accept it as it is",
        VersionState::Leaving => "it goes as soon as nobody uses it",
    }
}

fn list(numbers: &[VersionNumber]) -> String {
    let names: Vec<String> = numbers.iter().map(|number| format!("version {number}")).collect();
    names.join(", ")
}
