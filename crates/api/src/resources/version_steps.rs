//! The life of versions: made, promoted, taken back, merged, deleted; and whether their files are what they should be.
use std::time::Duration;

use control::{ControlError, inspect, merge, versions};
use farm::model::{
    Description, MergeResult, Revision, Store, Stored, Timestamp, Vdisk, Version, VersionNumber, VersionState,
};
use farm::rules::lifecycle::{Deletion, MergeKind, Promotion, Reversion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object::{Told, tell};
use super::tasks::{Tasks, begun};
use super::text;
use super::versions::Versions;
use crate::asked::Asked;
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, Word, find};

pub(super) fn all() -> Vec<Operation> {
    let mut all = steps();
    all.extend(work());
    all
}

fn steps() -> Vec<Operation> {
    let step = |path: &str, id: &str, summary: &str, handler| {
        Operation::post(format!("/v1/versions/{{version}}/{path}"), id, "versions", summary, handler)
            .if_match()
    };
    vec![
        Operation::post(
            "/v1/vdisks/{vdisk}/versions",
            "createVersion",
            "versions",
            "Makes a version under maintenance, which one maintenance device can boot and change.",
            make,
        )
        .takes::<NewBody>()
        .makes::<Told<Versions>>(),
        step(
            "promote",
            "promoteVersion",
            "Promotes a version to test or production, now or at a time.",
            promote,
        )
        .takes::<PromoteBody>()
        .gives::<Told<Versions>>(),
        step("schedule", "scheduleVersion", "Moves the time of a release that is to come.", schedule)
            .takes::<ScheduleBody>()
            .gives::<Told<Versions>>(),
        step("revert", "revertVersion", "Lets the newest version go back to test or maintenance.", revert)
            .takes::<RevertBody>()
            .gives::<Told<Versions>>(),
        step("accept", "acceptVersion", "Takes a version's file that was changed for what it is.", accept)
            .gives::<Told<Versions>>(),
        Operation::delete(
            "/v1/versions/{version}",
            "deleteVersion",
            "versions",
            "Deletes a version and its file: at once, or when the last who uses it has ended.",
            delete,
        )
        .gives::<DeleteAnswer>(),
    ]
}

fn work() -> Vec<Operation> {
    vec![
        Operation::post(
            "/v1/vdisks/{vdisk}/merge",
            "mergeVdisk",
            "versions",
            "Begins to merge a vDisk's newest version with what it stands on, while devices run.",
            begin_merge,
        )
        .takes::<MergeBody>()
        .begins::<Told<Tasks>>(),
        Operation::post(
            "/v1/vdisks/{vdisk}/convert",
            "convertVdisk",
            "versions",
            "Begins to convert a vDisk's newest version from VHD to VHDX.",
            begin_conversion,
        )
        .takes::<ConvertBody>()
        .begins::<Told<Tasks>>(),
        Operation::post(
            "/v1/vdisks/{vdisk}/delete-obsolete",
            "deleteObsoleteVersions",
            "versions",
            "Deletes all versions that nothing needs any more since they were merged.",
            delete_obsolete,
        )
        .query("dry_run", ParameterKind::Flag, "tells what would be deleted, and does nothing")
        .gives::<ObsoleteAnswer>(),
        Operation::post(
            "/v1/stores/{store}/inspect",
            "inspectStore",
            "stores",
            "Compares the files of a store with what the catalogue says of them.",
            inspect_store,
        )
        .gives::<StoreReportAnswer>(),
    ]
}

/// A new version.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewBody {
    /// What it is to stand on; null: the newest published version.
    #[serde(default)]
    #[schemars(range(max = 999_999))]
    parent: Option<u32>,
    /// What is written about it.
    #[serde(default)]
    comment: Option<Plain<Description>>,
}

/// What a version is promoted to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PromoteBody {
    /// To whom.
    to: Published,
    /// To production devices from then on; null: from now on.
    #[serde(default)]
    release_at: Option<Plain<Timestamp>>,
}

/// Who boots a published version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Published {
    /// Test devices.
    Test,
    /// Test and production devices.
    Production,
}

/// When a version is released.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScheduleBody {
    /// To production devices from then on.
    release_at: Plain<Timestamp>,
}

/// What a version goes back to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RevertBody {
    /// To whom.
    to: Unpublished,
}

/// Who boots a version that went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Unpublished {
    /// Test devices.
    Test,
    /// One maintenance device, which changes it.
    Maintenance,
}

/// What became of a version that was to be deleted.
#[derive(Debug, Serialize, JsonSchema)]
struct DeleteAnswer {
    /// Whether it is gone already; else it goes when those who use it have ended, and nobody boots it any more.
    deleted: bool,
    /// Who uses it.
    waits_for: Vec<String>,
}

/// Which versions are merged, and for whom.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MergeBody {
    /// `updates`: the differences since the last whole image, into one; `base`: all of it, into a new whole image.
    kind: MergeWhat,
    /// Who boots the result; null: who boots the newest version now.
    #[serde(default)]
    result: Option<Word<MergeResult>>,
    /// Whether the result is read back and compared before it counts.
    #[serde(default)]
    verify: bool,
    /// What is written about the result.
    #[serde(default)]
    comment: Option<Plain<Description>>,
}

/// Which versions are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum MergeWhat {
    /// The differences since the last whole image.
    Updates,
    /// The last whole image and all differences.
    Base,
}

/// A conversion.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ConvertBody {
    /// Whether the result is read back and compared before it counts.
    #[serde(default)]
    verify: bool,
    /// What is written about the result.
    #[serde(default)]
    comment: Option<Plain<Description>>,
}

/// Versions that nothing needed any more.
#[derive(Debug, Serialize, JsonSchema)]
struct ObsoleteAnswer {
    /// Whether nothing was done.
    dry_run: bool,
    /// Their numbers.
    deleted: Vec<u32>,
    /// Those of them that are in use, and go when they are free.
    leaving: Vec<u32>,
}

/// A store as this server finds it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StoreReport")]
struct StoreReportAnswer {
    /// Its folder on this server.
    folder: String,
    /// Why it cannot be used; null: it can.
    unreachable: Option<String>,
    /// The bytes that are free in its file system.
    free_bytes: u64,
    /// The bytes of its file system.
    size_bytes: u64,
    /// How many versions' files are what they should be.
    sound: usize,
    /// The versions whose files are not, or are again.
    findings: Vec<FindingAnswer>,
    /// Images in it that belong to no version: of other programs, or to be adopted.
    strangers: Vec<String>,
}

/// A version whose file is not what it should be, or is again.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "FileFinding")]
struct FindingAnswer {
    /// Which.
    version: Ref,
    /// Its file.
    file: String,
    /// What it is now.
    state: Word<VersionState>,
    /// What differs, in words.
    differences: Vec<String>,
}

fn vdisk(asked: &Asked<'_>) -> Result<Stored<Vdisk>, Problem> {
    let wanted = asked.parameter("vdisk")?;
    Ok(asked.control().read(|reader| find::<Vdisk>(reader, wanted))?)
}

fn version(asked: &Asked<'_>) -> Result<(Stored<Version>, Revision), Problem> {
    let expected = asked.expected()?;
    let wanted = asked.parameter("version")?;
    let version = asked.control().read(|reader| find::<Version>(reader, wanted))?;
    let revision = expected.or(version.revision);
    Ok((version, revision))
}

fn told_version(asked: &Asked<'_>, version: &Stored<Version>) -> Result<Value, Problem> {
    Ok(asked.control().read(|reader| tell::<Versions>(&mut Names::default(), reader, version))?)
}

fn reply(asked: &Asked<'_>, version: &Stored<Version>) -> Result<Reply, Problem> {
    Ok(Reply::json(&told_version(asked, version)?)?.revision(version.revision))
}

fn number(field: &str, number: Option<u32>) -> Result<Option<VersionNumber>, ControlError> {
    number.map(VersionNumber::new).transpose().map_err(|bad| ControlError::bad_value(field, bad))
}

fn make(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let NewBody { parent, comment } = asked.body()?;
    let (parent, comment) = (number("parent", parent)?, text(comment)?);
    let vdisk = vdisk(asked)?;
    let made = versions::new_maintenance(asked.control(), asked.caller()?, vdisk.id, parent, &comment)?;
    Ok(reply(asked, &made)?.made(format!("/v1/versions/{}", made.id)))
}

fn promote(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let PromoteBody { to, release_at } = asked.body()?;
    let to = match (to, release_at) {
        (Published::Test, None) => Promotion::Test,
        (Published::Test, Some(_)) => {
            let why = "test devices boot a version from now on: a time belongs to production";
            return Err(ControlError::bad_value("release_at", why).into());
        }
        (Published::Production, at) => {
            Promotion::Production(at.map_or_else(|| asked.control().now(), |at| at.0))
        }
    };
    let (version, expected) = version(asked)?;
    let promoted = versions::promote(asked.control(), asked.caller()?, version.id, expected, to)?;
    // Where the chain has become as long as the farm lets it, a merge was begun: it stands among the tasks.
    reply(asked, &promoted.version)
}

/// How far in the past a release may be scheduled: clocks differ.
const SLACK: Duration = Duration::from_secs(5);

fn schedule(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let ScheduleBody { release_at: Plain(at) } = asked.body()?;
    if at.after(SLACK) < asked.control().now() {
        let why = format!("{at} has passed: to release it now, promote it to production");
        return Err(ControlError::bad_value("release_at", why).into());
    }
    let (version, expected) = version(asked)?;
    let to = Promotion::Production(at);
    let promoted = versions::promote(asked.control(), asked.caller()?, version.id, expected, to)?;
    reply(asked, &promoted.version)
}

fn revert(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let RevertBody { to } = asked.body()?;
    let to = match to {
        Unpublished::Test => Reversion::Test,
        Unpublished::Maintenance => Reversion::Maintenance,
    };
    let (version, expected) = version(asked)?;
    let reverted = versions::revert(asked.control(), asked.caller()?, version.id, expected, to)?;
    reply(asked, &reverted)
}

fn accept(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (version, expected) = version(asked)?;
    let accepted = inspect::accept(asked.control(), asked.caller()?, version.id, expected)?;
    reply(asked, &accepted)
}

fn delete(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (version, expected) = version(asked)?;
    let answer = match versions::delete(asked.control(), asked.caller()?, version.id, expected)? {
        Deletion::Now => DeleteAnswer { deleted: true, waits_for: Vec::new() },
        Deletion::WhenFree(conflict) => DeleteAnswer { deleted: false, waits_for: conflict.names },
    };
    Reply::json(&answer)
}

fn begin_merge(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let MergeBody { kind, result, verify, comment } = asked.body()?;
    let kind = match kind {
        MergeWhat::Updates => MergeKind::Updates,
        MergeWhat::Base => MergeKind::Base,
    };
    let request =
        merge::Request { kind, result: result.map(|result| result.0), verify, comment: text(comment)? };
    let vdisk = vdisk(asked)?;
    begun(asked, &merge::begin(asked.control(), asked.caller()?, vdisk.id, &request)?)
}

fn begin_conversion(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let ConvertBody { verify, comment } = asked.body()?;
    let (vdisk, comment) = (vdisk(asked)?, text(comment)?);
    begun(asked, &merge::begin_conversion(asked.control(), asked.caller()?, vdisk.id, verify, &comment)?)
}

fn delete_obsolete(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let vdisk = vdisk(asked)?;
    let (dry_run, control, caller) = (asked.flag("dry_run")?, asked.control(), asked.caller()?);
    let deleted = match dry_run {
        true => versions::obsolete(control, caller, vdisk.id)?,
        false => versions::delete_obsolete(control, caller, vdisk.id)?,
    };
    let left = control.read(|reader| Ok(reader.versions(vdisk.id)?))?;
    let is_left = |number: &&VersionNumber| !dry_run && left.iter().any(|version| version.number == **number);
    let numbers = |all: &mut dyn Iterator<Item = &VersionNumber>| all.map(|number| number.get()).collect();
    Reply::json(&ObsoleteAnswer {
        dry_run,
        deleted: numbers(&mut deleted.iter()),
        leaving: numbers(&mut deleted.iter().filter(is_left)),
    })
}

fn inspect_store(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let wanted = asked.parameter("store")?;
    let control = asked.control();
    let store = control.read(|reader| find::<Store>(reader, wanted))?;
    let report = inspect::store(control, asked.caller()?, store.id)?;
    let findings = control.read(|reader| {
        let mut names = Names::default();
        let mut findings = Vec::new();
        for finding in &report.findings {
            findings.push(FindingAnswer {
                version: names.version(reader, finding.version)?,
                file: finding.file.clone(),
                state: Word(finding.state),
                differences: finding.differences.clone(),
            });
        }
        Ok(findings)
    })?;
    Reply::json(&StoreReportAnswer {
        folder: report.folder.display().to_string(),
        unreachable: report.unreachable,
        free_bytes: report.free_bytes,
        size_bytes: report.size_bytes,
        sound: report.sound,
        findings,
        strangers: report.strangers,
    })
}
