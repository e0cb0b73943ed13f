//! Versions: the states of vDisks. What is done with them goes by way of [`control`], since it moves files.
use control::ControlError;
use farm::catalogue::Reader;
use farm::filter::Filter;
use farm::model::{
    Access, AccessKind, ByteSize, Description, ObjectKind, Stored, Vdisk, Version, VersionKind,
    VersionNumber, VersionState,
};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::{PageOf, Resource, Told, Which, operations, page};
use super::vdisks::Vdisks;
use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, Word, find};

pub(super) fn all() -> Vec<Operation> {
    let mut all = operations::<Versions>(Which { make: false, change: true, delete: false });
    let of_vdisk = Operation::get(
        "/v1/vdisks/{vdisk}/versions",
        "listVdiskVersions",
        "versions",
        "Lists the versions of a vDisk.",
        of_vdisk,
    );
    all.push(of_vdisk.pages().gives::<PageOf<Told<Versions>>>());
    all
}

/// What can be changed of a version itself.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionBody {
    /// What somebody wrote about it.
    comment: Plain<Description>,
}

/// What is told of a version besides.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VersionMore {
    /// Of what.
    vdisk: Ref,
    /// Its number; no two versions of a vDisk have the same.
    number: u32,
    /// How it came to be.
    kind: Word<VersionKind>,
    /// On what it stands; null: on itself.
    parent: Option<u32>,
    /// Of a merged one, the version whose contents it has.
    contents_of: Option<u32>,
    /// Who boots it.
    access: Word<AccessKind>,
    /// Of one in production, since when or from when on production devices boot it.
    released_at: Option<Plain<farm::model::Timestamp>>,
    /// Whether it can be used.
    state: Word<VersionState>,
    /// Its file, in the vDisk's store.
    file: String,
    /// The length of its file when it was last known to be good.
    length_bytes: Option<u64>,
    /// The size of the disk in it.
    disk_bytes: Option<u64>,
    /// When it was made.
    made_at: Plain<farm::model::Timestamp>,
}

pub(crate) enum Versions {}

impl Resource for Versions {
    type Record = Version;
    type Body = VersionBody;
    type More = VersionMore;
    const NAME: &'static str = "Version";
    const ONE: &'static str = "a version";
    const PATH: &'static str = "/v1/versions";
    const PARAMETER: &'static str = "version";

    fn place(reader: &mut Reader<'_>, version: &Version) -> Result<Place, ControlError> {
        let vdisk = reader.get(version.vdisk)?;
        Vdisks::place(reader, &vdisk.value)
    }

    fn body(_: &mut Names, _: &mut Reader<'_>, version: &Version) -> Result<VersionBody, ControlError> {
        Ok(VersionBody { comment: Plain(version.comment.clone()) })
    }

    fn more(
        names: &mut Names,
        reader: &mut Reader<'_>,
        version: &Stored<Version>,
    ) -> Result<VersionMore, ControlError> {
        let released = match version.access {
            Access::Production { released } => Some(Plain(released)),
            Access::Maintenance | Access::Test => None,
        };
        Ok(VersionMore {
            vdisk: names.vdisk(reader, version.vdisk)?,
            number: version.number.get(),
            kind: Word(version.lineage.kind()),
            parent: version.lineage.parent().map(VersionNumber::get),
            contents_of: version.lineage.contents_of().map(VersionNumber::get),
            access: Word(version.access.kind()),
            released_at: released,
            state: Word(version.state),
            file: version.file.to_string(),
            length_bytes: version.mark.map(|mark| ByteSize::bytes(mark.length)),
            disk_bytes: version.mark.map(|mark| ByteSize::bytes(mark.disk_size)),
            made_at: Plain(version.made_at),
        })
    }

    fn record(_: &mut Reader<'_>, body: VersionBody, old: Option<&Version>) -> Result<Version, ControlError> {
        // Versions are made by what makes their files, never out of a body alone.
        let old = old.ok_or_else(|| ControlError::new(control::Code::Unsupported, "a version has a file"))?;
        Ok(Version { comment: body.comment.0, ..old.clone() })
    }
}

fn of_vdisk(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let mut query = asked.list()?;
    let (caller, wanted) = (asked.caller()?, asked.parameter("vdisk")?);
    let filter = query.filter.clone();
    let page = asked.control().read(|reader| {
        caller.may(Action::See, ObjectKind::Version, Place::Farm)?;
        let vdisk = find::<Vdisk>(reader, wanted)?;
        query.filter = Filter::equal("vdisk-id", vdisk.id).and(filter.clone());
        query.order = query.order.take().or_else(|| Some("number".to_owned()));
        page::<Versions>(reader, &query)
    })?;
    Reply::json(&page)
}
