//! Views: filters that somebody gave a name.
use serde::Serialize;

use super::choice::Choice;
use super::id::Id;
use super::places::SiteId;
use super::text::{Description, Name};
use crate::filter::Filter;

/// Names a view.
pub type ViewId = Id<View>;

/// A filter with a name: always the objects that fit it now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// Its name; no two views have the same.
    pub name: Name,
    /// What somebody wrote about it.
    pub description: Description,
    /// Of whose objects alone; `None`: the whole farm's.
    pub site: Option<SiteId>,
    /// Of which list.
    pub of: ViewOf,
    /// Which of them.
    pub filter: Filter,
}

/// The lists that there are views of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViewOf {
    /// Of devices.
    Devices,
    /// Of vDisks.
    Vdisks,
    /// Of versions.
    Versions,
    /// Of servers.
    Servers,
}

impl Choice for ViewOf {
    const WHAT: &'static str = "a list";
    const RULE: &'static str = "devices, vdisks, versions or servers";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Devices, "devices"),
        (Self::Vdisks, "vdisks"),
        (Self::Versions, "versions"),
        (Self::Servers, "servers"),
    ];
}
