//! vDisks: images under a name, and how devices use them.
use control::ControlError;
use farm::catalogue::Reader;
use farm::model::{
    AccessMode, ByteSize, Description, MenuText, Percent, Server, Store, Stored, SubnetAffinity, Vdisk,
    VdiskName, VersionNumber, WriteCache, WriteCacheKind,
};
use farm::rules::permission::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::{Resource, Told, Which, operations, tell};
use super::places::place_of_store;
use super::text;
use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, Word, find, resolve};

/// What one device may write where nothing is said.
const USUAL_LIMIT_BYTES: u64 = 10 << 30;
/// From where on there are warnings.
const USUAL_WARNING: u8 = 80;

pub(super) fn all() -> Vec<Operation> {
    let mut all = operations::<Vdisks>(Which { make: true, change: true, delete: false });
    all.push(
        Operation::post(
            "/v1/vdisks/{vdisk}/hold",
            "holdVdisk",
            "vdisks",
            "Holds production devices at a version instead of the newest released one, or lets go.",
            hold,
        )
        .takes::<HoldBody>()
        .gives::<Told<Vdisks>>()
        .if_match(),
    );
    all
}

/// An image that devices boot, in all its versions.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VdiskBody {
    /// Its name; no two vDisks of a store have the same.
    name: Plain<VdiskName>,
    /// Where its files lie.
    store: Ref,
    /// What somebody wrote about it.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// What boot menus call it; null: its name.
    #[serde(default)]
    menu_text: Option<Plain<MenuText>>,
    /// Whether a boot menu lets nobody boot it who does not log in as an operator of the device.
    #[serde(default)]
    asks_login: bool,
    /// How devices use it; standard where nothing is said.
    #[serde(default)]
    mode: Mode,
    /// Of a standard vDisk, where what a device writes is kept: on the server's disk, at most 10 GiB, where nothing is
    /// said.
    #[serde(default)]
    write_cache: Option<WriteCacheBody>,
    /// The one server that may serve it; null: every server that reaches its store.
    #[serde(default)]
    server: Option<Ref>,
    /// Whether servers in the device's subnet come first.
    #[serde(default)]
    affinity: Word<SubnetAffinity>,
    /// Nothing boots from a disabled vDisk.
    #[serde(default)]
    disabled: bool,
}

/// How devices use a vDisk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Any number of devices, each with a write cache of its own.
    #[default]
    Standard,
    /// One device at a time, which writes into the vDisk itself.
    Private,
}

/// Where what a device writes is kept, and how much of it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WriteCache")]
pub(crate) struct WriteCacheBody {
    /// Where, and for how long; on the server's disk, begun anew at each boot, where nothing is said.
    #[serde(default = "usual_kind")]
    kind: Word<WriteCacheKind>,
    /// The most that one device may write.
    #[schemars(range(max = 9_223_372_036_854_775_807_u64))]
    limit_bytes: u64,
    /// The part of the limit from which on there are warnings; 80 where nothing is said.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    warn_percent: Option<u8>,
}

const fn usual_kind() -> Word<WriteCacheKind> {
    Word(WriteCacheKind::ServerDisk)
}

/// What is told of a vDisk besides.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct VdiskMore {
    /// The version that production devices boot instead of the newest released one; null: none.
    held_at: Option<u32>,
}

/// Which version to hold a vDisk at.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HoldBody {
    /// Its number; null: let go.
    #[schemars(range(max = 999_999))]
    version: Option<u32>,
}

pub(crate) enum Vdisks {}

impl Resource for Vdisks {
    type Record = Vdisk;
    type Body = VdiskBody;
    type More = VdiskMore;
    const NAME: &'static str = "Vdisk";
    const ONE: &'static str = "a vDisk";
    const PATH: &'static str = "/v1/vdisks";
    const PARAMETER: &'static str = "vdisk";

    fn place(reader: &mut Reader<'_>, vdisk: &Vdisk) -> Result<Place, ControlError> {
        place_of_store(reader, vdisk.store)
    }

    fn body(names: &mut Names, reader: &mut Reader<'_>, vdisk: &Vdisk) -> Result<VdiskBody, ControlError> {
        let (mode, write_cache) = match vdisk.mode {
            AccessMode::Private => (Mode::Private, None),
            AccessMode::Standard(WriteCache { kind, limit, warn_at }) => {
                let warn_percent = Some(warn_at.get());
                let limit_bytes = limit.bytes();
                (Mode::Standard, Some(WriteCacheBody { kind: Word(kind), limit_bytes, warn_percent }))
            }
        };
        Ok(VdiskBody {
            name: Plain(vdisk.name.clone()),
            store: names.store(reader, vdisk.store)?,
            description: Some(Plain(vdisk.description.clone())),
            menu_text: vdisk.menu_text.clone().map(Plain),
            asks_login: vdisk.asks_login,
            mode,
            write_cache,
            server: vdisk.server.map(|server| names.server(reader, server)).transpose()?,
            affinity: Word(vdisk.affinity),
            disabled: vdisk.disabled,
        })
    }

    fn more(_: &mut Names, _: &mut Reader<'_>, vdisk: &Stored<Vdisk>) -> Result<VdiskMore, ControlError> {
        Ok(VdiskMore { held_at: vdisk.override_version.map(VersionNumber::get) })
    }

    fn record(reader: &mut Reader<'_>, body: VdiskBody, old: Option<&Vdisk>) -> Result<Vdisk, ControlError> {
        let mode = access_mode(body.mode, body.write_cache, old)?;
        let server = body.server.map(|server| resolve::<Server>(reader, &server, "server")).transpose()?;
        let store = resolve::<Store>(reader, &body.store, "store")?.id;
        if let Some(old) = old
            && (old.store != store || old.name != body.name.0)
        {
            let field = if old.store == store { "name" } else { "store" };
            let why = "its files lie in the store under its name, and stay there: export it, and import it elsewhere";
            return Err(ControlError::bad_value(field, why));
        }
        Ok(Vdisk {
            name: body.name.0,
            store,
            description: text(body.description)?,
            menu_text: body.menu_text.map(|text| text.0),
            asks_login: body.asks_login,
            mode,
            override_version: old.and_then(|old| old.override_version),
            server: server.map(|server| server.id),
            affinity: body.affinity.0,
            disabled: body.disabled,
        })
    }
}

pub(super) fn access_mode(
    mode: Mode,
    write_cache: Option<WriteCacheBody>,
    old: Option<&Vdisk>,
) -> Result<AccessMode, ControlError> {
    match (mode, write_cache) {
        (Mode::Private, None) => Ok(AccessMode::Private),
        // Of a vDisk that becomes private, what was said of its write cache is what it had.
        (Mode::Private, Some(_)) if old.is_some_and(|old| old.mode != AccessMode::Private) => {
            Ok(AccessMode::Private)
        }
        (Mode::Private, Some(_)) => Err(ControlError::bad_value(
            "write_cache",
            "a private vDisk has none: its one device writes into it",
        )),
        (Mode::Standard, said) => {
            let said = said.unwrap_or(WriteCacheBody {
                kind: usual_kind(),
                limit_bytes: USUAL_LIMIT_BYTES,
                warn_percent: None,
            });
            let limit = ByteSize::new(said.limit_bytes);
            let limit = limit.map_err(|bad| ControlError::bad_value("write_cache.limit_bytes", bad))?;
            let warn_at = Percent::new(said.warn_percent.unwrap_or(USUAL_WARNING));
            let warn_at = warn_at.map_err(|bad| ControlError::bad_value("write_cache.warn_percent", bad))?;
            Ok(AccessMode::Standard(WriteCache { kind: said.kind.0, limit, warn_at }))
        }
    }
}

fn hold(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let expected = asked.expected()?;
    let HoldBody { version } = asked.body()?;
    let version = version.map(VersionNumber::new).transpose();
    let version = version.map_err(|bad| Problem::from(ControlError::bad_value("version", bad)))?;
    let (caller, wanted) = (asked.caller()?, asked.parameter("vdisk")?);
    let control = asked.control();
    let vdisk = control.read(|reader| find::<Vdisk>(reader, wanted))?;
    let held = control::versions::hold(control, caller, vdisk.id, expected.or(vdisk.revision), version)?;
    let told = control.read(|reader| tell::<Vdisks>(&mut Names::default(), reader, &held))?;
    Ok(Reply::json(&told)?.revision(held.revision))
}
