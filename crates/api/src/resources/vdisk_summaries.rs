//! vDisks as lists show them: what all versions of each come to. It stands apart from the vDisks, whose ETags say nothing of their
//! versions.
use farm::model::{AccessKind, Stored, Vdisk, VdiskId};
use schemars::JsonSchema;
use serde::Serialize;

use super::object::{PageOf, seen};
use super::vdisks::Vdisks;
use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Ref, Word};

pub(super) fn all() -> Vec<Operation> {
    let list = Operation::get(
        "/v1/vdisk-summaries",
        "listVdiskSummaries",
        "vdisks",
        "Lists vDisks, as /v1/vdisks does, with what the versions of each come to.",
        list,
    );
    vec![list.pages().gives::<PageOf<VdiskSummary>>()]
}

/// What the versions of a vDisk come to.
#[derive(Debug, Serialize, JsonSchema)]
struct VdiskSummary {
    /// Of which.
    vdisk: Ref,
    /// How many versions it has.
    versions: u64,
    /// Those whose files are missing, or were changed by somebody else.
    damaged: u64,
    /// The newest version; null: there is none.
    newest: Option<NewestVersion>,
    /// The lengths of the versions' files together, as far as they are known.
    files_bytes: u64,
    /// The size of the disk; null: it is not known.
    disk_bytes: Option<u64>,
}

/// The newest version of a vDisk.
#[derive(Debug, Serialize, JsonSchema)]
struct NewestVersion {
    /// Its number.
    number: u32,
    /// Who boots it.
    access: Word<AccessKind>,
}

fn list(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let mut query = asked.list()?;
    let caller = asked.caller()?;
    let page = asked.control().read(|reader| {
        query.filter = seen::<Vdisks>(reader, caller, query.filter.clone())?;
        let page = reader.list::<Vdisk>(&query)?;
        let ids: Vec<VdiskId> = page.items.iter().map(|vdisk| vdisk.id).collect();
        let summaries = reader.version_summaries(&ids)?;
        let items = page.items.iter().map(|vdisk| tell(vdisk, summaries.get(&vdisk.id))).collect();
        Ok(PageOf { items, next: page.next.map(|cursor| cursor.to_string()), total: page.total })
    })?;
    Reply::json(&page)
}

fn tell(vdisk: &Stored<Vdisk>, summary: Option<&farm::catalogue::VersionSummary>) -> VdiskSummary {
    VdiskSummary {
        vdisk: Ref::Both { id: vdisk.id.get(), name: vdisk.name.to_string() },
        versions: summary.map_or(0, |summary| summary.versions),
        damaged: summary.map_or(0, |summary| summary.damaged),
        newest: summary.map(|summary| NewestVersion {
            number: summary.newest.get(),
            access: Word(summary.newest_access),
        }),
        files_bytes: summary.map_or(0, |summary| summary.files_bytes),
        disk_bytes: summary.and_then(|summary| summary.disk_bytes),
    }
}
