//! What stores hold: folders that are adopted, versions that are exported and imported, empty disks.
use control::{Code, ControlError, adopt, transfer, vdisks};
use farm::model::{ByteSize, Choice, Description, Store, Stored, Vdisk, VdiskName, VersionNumber};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::{Resource, Told, tell};
use super::tasks::{Tasks, begun};
use super::text;
use super::vdisks::{Mode, VdiskBody, Vdisks, WriteCacheBody, access_mode};
use crate::asked::Asked;
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, find};

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::post(
            "/v1/stores/{store}/adopt",
            "adoptStore",
            "stores",
            "Looks for images in a store that no version has, says what can become vDisks, and makes them of it.",
            adopt_store,
        )
        .takes::<AdoptBody>()
        .gives::<AdoptAnswer>(),
        Operation::post(
            "/v1/stores/{store}/import",
            "importVdisk",
            "stores",
            "Begins to import an exported vDisk into a store; where the store has it, the versions that are new.",
            import,
        )
        .takes::<ImportBody>()
        .begins::<Told<Tasks>>(),
        Operation::post(
            "/v1/vdisks/{vdisk}/export",
            "exportVdisk",
            "vdisks",
            "Begins to export versions of a vDisk, with a manifest, into a new folder.",
            export,
        )
        .takes::<ExportBody>()
        .begins::<Told<Tasks>>(),
        Operation::post(
            "/v1/vdisks/blank",
            "createBlankVdisk",
            "vdisks",
            "Makes a vDisk with an empty disk, to be installed on.",
            blank,
        )
        .takes::<BlankBody>()
        .makes::<Told<Vdisks>>(),
        Operation::delete("/v1/vdisks/{vdisk}", "deleteVdisk", "vdisks", "Takes a vDisk away, with all versions.", delete)
            .query("remove_files", ParameterKind::Flag, "removes their files as well; else they can be adopted again"),
    ]
}

/// What is to be adopted, and what vDisks are made of it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AdoptBody {
    /// Whether it is only said what would be done.
    dry_run: bool,
    /// Which vDisks; none named: all that are found.
    #[serde(default)]
    names: Vec<Plain<VdiskName>>,
    /// How devices use them.
    #[serde(default)]
    mode: Mode,
    /// Of standard ones, where what devices write is kept.
    #[serde(default)]
    write_cache: Option<WriteCacheBody>,
    /// What is written about them.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// Whether the newest version of each is for test devices at first. All others go to production.
    #[serde(default)]
    newest_in_test: bool,
    /// Versions above this one are for test devices at first; null: production devices boot the newest.
    #[serde(default)]
    #[schemars(range(max = 999_999))]
    production_up_to: Option<u32>,
}

/// What a store holds besides what the catalogue lists.
#[derive(Debug, Serialize, JsonSchema)]
struct AdoptAnswer {
    /// Whether nothing was done.
    dry_run: bool,
    /// Its folder on this server.
    folder: String,
    /// What can become vDisks, or became them, by name.
    chains: Vec<ChainAnswer>,
    /// What cannot, and why, by file.
    findings: Vec<FoundAnswer>,
    /// How many files belong to versions that the catalogue lists.
    known: usize,
}

/// What can become a vDisk.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AdoptableVdisk")]
struct ChainAnswer {
    /// What it is called.
    name: String,
    /// The id of the vDisk that was made of it; null: none.
    vdisk: Option<i64>,
    /// Its versions, lowest number first.
    versions: Vec<ChainVersion>,
}

/// What can become a version.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AdoptableVersion")]
struct ChainVersion {
    /// Its number.
    number: u32,
    /// How it came to be.
    kind: &'static str,
    /// On what it stands; null: on itself.
    parent: Option<u32>,
    /// Its file.
    file: String,
    /// The length of its file.
    length_bytes: u64,
    /// The size of the disk in it.
    disk_bytes: u64,
}

/// A file that cannot be adopted.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NotAdoptable")]
struct FoundAnswer {
    /// Its name.
    file: String,
    /// What is the matter, for programs: `orphan`, `damaged`, `name`, `ambiguous`, `extends`, `unfinished`, `beside`.
    kind: String,
    /// What is the matter, and what to do about it.
    why: String,
}

fn store(asked: &Asked<'_>) -> Result<Stored<Store>, Problem> {
    let wanted = asked.parameter("store")?;
    Ok(asked.control().read(|reader| find::<Store>(reader, wanted))?)
}

fn adopt_store(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let AdoptBody { dry_run, names, mode, write_cache, description, newest_in_test, production_up_to } =
        asked.body()?;
    let most = production_up_to.map(VersionNumber::new).transpose();
    let template = adopt::Template {
        mode: access_mode(mode, write_cache, None)?,
        description: text(description)?,
        newest_in_test,
        production_up_to: most.map_err(|bad| ControlError::bad_value("production_up_to", bad))?,
    };
    let names: Vec<VdiskName> = names.into_iter().map(|name| name.0).collect();
    let (control, caller, store) = (asked.control(), asked.caller()?, store(asked)?);
    let plan = adopt::plan(control, caller, store.id)?;
    let made = match dry_run {
        true => Vec::new(),
        false => adopt::import(control, caller, store.id, &names, &template)?,
    };
    let wanted = |chain: &&adopt::FoundChain| names.is_empty() || names.contains(&chain.name);
    let chains = plan.chains.iter().filter(wanted).map(|chain| ChainAnswer {
        name: chain.name.to_string(),
        vdisk: made.iter().find(|vdisk| vdisk.name == chain.name).map(|vdisk| vdisk.id.get()),
        versions: chain.versions.iter().map(chain_version).collect(),
    });
    let found = plan.findings.iter().map(|finding| FoundAnswer {
        file: finding.file.clone(),
        kind: super::object::told(&finding.kind)
            .ok()
            .and_then(|kind| kind.as_str().map(str::to_owned))
            .unwrap_or_default(),
        why: finding.why.clone(),
    });
    Reply::json(&AdoptAnswer {
        dry_run,
        folder: plan.folder.display().to_string(),
        chains: chains.collect(),
        findings: found.collect(),
        known: plan.known,
    })
}

fn chain_version(version: &adopt::FoundVersion) -> ChainVersion {
    ChainVersion {
        number: version.number.get(),
        kind: version.lineage.kind().word(),
        parent: version.lineage.parent().map(VersionNumber::get),
        file: version.file.to_string(),
        length_bytes: version.mark.length.bytes(),
        disk_bytes: version.mark.disk_size.bytes(),
    }
}

/// What is imported, and what it becomes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ImportBody {
    /// Where the export lies: a name in the server's folder for exchange.
    folder: String,
    /// The vDisk's name; null: the one that it had.
    #[serde(default)]
    name: Option<Plain<VdiskName>>,
    /// How devices use it.
    #[serde(default)]
    mode: Mode,
    /// Of a standard one, where what devices write is kept.
    #[serde(default)]
    write_cache: Option<WriteCacheBody>,
    /// What is written about it; null: what was.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// Whether its versions are for test devices at first, whatever they were.
    #[serde(default)]
    in_test: bool,
}

fn import(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let ImportBody { folder, name, mode, write_cache, description, in_test } = asked.body()?;
    let what = transfer::Importing {
        name: name.map(|name| name.0),
        mode: access_mode(mode, write_cache, None)?,
        description: description.map(|text| text.0),
        in_test,
    };
    let store = store(asked)?;
    let task = transfer::import(asked.control(), asked.caller()?, store.id, &folder, &what);
    begun(asked, &task.map_err(of_folder)?)
}

/// Before a task is begun, the folder that was named is all that is looked at: what cannot be read there was named wrongly.
fn of_folder(error: ControlError) -> ControlError {
    match error.code {
        Code::FileFailed => {
            ControlError { hint: error.hint, ..ControlError::bad_value("folder", error.message) }
        }
        _ => error,
    }
}

/// What is exported, and where to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExportBody {
    /// A new folder: a name in the server's folder for exchange.
    folder: String,
    /// The version that is exported with what it stands on; null: all published versions.
    #[serde(default)]
    #[schemars(range(max = 999_999))]
    version: Option<u32>,
}

fn vdisk(asked: &Asked<'_>) -> Result<Stored<Vdisk>, Problem> {
    let wanted = asked.parameter("vdisk")?;
    Ok(asked.control().read(|reader| find::<Vdisk>(reader, wanted))?)
}

fn export(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let ExportBody { folder, version } = asked.body()?;
    let version = version.map(VersionNumber::new).transpose();
    let version = version.map_err(|bad| ControlError::bad_value("version", bad))?;
    let vdisk = vdisk(asked)?;
    let task = transfer::export(asked.control(), asked.caller()?, vdisk.id, version, &folder);
    begun(asked, &task.map_err(of_folder)?)
}

/// A vDisk with an empty disk.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BlankBody {
    /// The vDisk.
    vdisk: VdiskBody,
    /// The size of the disk.
    size_bytes: u64,
}

fn blank(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let BlankBody { vdisk, size_bytes } = asked.body()?;
    let size = ByteSize::new(size_bytes).map_err(|bad| ControlError::bad_value("size_bytes", bad))?;
    let control = asked.control();
    let mut vdisk = Some(vdisk);
    let record = control.read(|reader| {
        // A read is not begun twice.
        let body = vdisk.take().ok_or_else(|| ControlError::new(control::Code::Unavailable, "try again"))?;
        Vdisks::record(reader, body, None)
    })?;
    let made = vdisks::create_blank(control, asked.caller()?, &record, size)?;
    let told = control.read(|reader| tell::<Vdisks>(&mut Names::default(), reader, &made))?;
    Ok(Reply::json(&told)?.revision(made.revision).made(format!("{}/{}", Vdisks::PATH, made.id)))
}

fn delete(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let files = match asked.flag("remove_files")? {
        true => vdisks::Files::Remove,
        false => vdisks::Files::Keep,
    };
    let expected = asked.expected()?;
    let vdisk = vdisk(asked)?;
    let expected = expected.or(vdisk.revision);
    vdisks::delete(asked.control(), asked.caller()?, vdisk.id, expected, files)?;
    Ok(Reply::nothing())
}
