//! What a farm is made of: plain types whose values are right by construction.
//!
//! Texts and numbers are parsed into types of their own ([`text`], [`Mac`], [`ByteSize`], [`NamingPattern`]); objects are
//! structs of such values with public fields. An object that the catalogue holds is a [`Stored`]: its value with its
//! id and revision. What depends on more than one object (a name that is taken, a version that is in use) is not a
//! property of a value, and is looked at by [`rules`](crate::rules) and by the [catalogue](crate::catalogue).
mod audit;
mod bad_value;
mod choice;
mod device;
pub mod guest;
mod hardware;
mod id;
mod lease;
mod menu;
mod naming;
mod people;
mod places;
mod report;
mod task;
pub mod text;
mod values;
mod vdisk;
mod view;

pub use audit::{Actor, AuditEntry, ChangeNumber, ObjectKind};
pub use bad_value::BadValue;
pub use choice::Choice;
pub use device::{
    Chap, Device, DeviceDisk, DeviceId, DeviceKind, DeviceLimits, DeviceProfile, Disks, LocalDisk,
    MAX_DEVICE_DISKS, MAX_PERSONALITY_BYTES, Macs, Personality, WriteCacheOverride,
};
pub use guest::{GuestSettings, SshKeys, UserData};
pub use hardware::{MAX_MACS, Mac, Uuid};
pub use id::{Id, Revision, Stored};
pub use lease::{Fence, Lease, Owner, Purpose, Sharing, Subject};
pub use menu::{MenuSettings, MenuShow, MenuWait};
pub use naming::NamingPattern;
pub use people::{Grant, GrantId, Role, Scope, Token, TokenDigest, TokenId, User, UserId};
pub use places::{
    AutoMerge, ChainLimit, Collection, CollectionId, Farm, FarmId, MAX_SERVER_ADDRESSES, MergeResult, Server,
    ServerId, Site, SiteId, Store, StoreId,
};
pub use report::{DeviceReport, MAX_REPORT_BYTES, ServerReport, ServerState};
pub use task::{MAX_TASK_LOG_LINES, MAX_TASK_TEXT_BYTES, Progress, Task, TaskId, TaskLine, TaskState};
pub use text::{
    ChapUser, Description, DeviceName, FileName, IdempotencyKey, InitiatorName, MenuText, Name, PasswordHash,
    PersonalityKey, PersonalityValue, SecretName, ServerName, StorePath, Text, TextRule, UserName, VdiskName,
    Word,
};
pub use values::{ByteSize, Percent, Timestamp, Weight};
pub use vdisk::{
    Access, AccessKind, AccessMode, FileMark, Lineage, PersistentCache, SubnetAffinity, Vdisk, VdiskId,
    Version, VersionId, VersionKind, VersionNumber, VersionState, WriteCache, WriteCacheKind,
};
pub use view::{View, ViewId, ViewOf};
