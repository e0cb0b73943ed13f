//! Persistent write caches: which device made one, on which version, and what is to become of it.
use control::{ControlError, cache_version};
use farm::catalogue::Reader;
use farm::filter::Filter;
use farm::model::{Description, PersistentCache, Stored, Timestamp};
use farm::rules::permission::Place;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::devices::Devices;
use super::object::{Resource, Told, Visible, Which, operations};
use super::tasks::{Tasks, begun};
use super::text;
use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, find};

pub(super) fn all() -> Vec<Operation> {
    let mut all = operations::<Caches>(Which { make: false, change: true, delete: true });
    let make = Operation::post(
        "/v1/persistent-caches/{cache}/make-version",
        "makeVersionOfPersistentCache",
        "persistent-caches",
        "Begins to make a new version of what a device wrote into its persistent write cache.",
        make_version,
    );
    all.push(make.takes::<MakeVersionBody>().begins::<Told<Tasks>>());
    all
}

/// A version that is made of a persistent write cache.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MakeVersionBody {
    /// What is written about it.
    #[serde(default)]
    comment: Option<Plain<Description>>,
}

fn make_version(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let MakeVersionBody { comment } = asked.body()?;
    let (comment, wanted) = (text(comment)?, asked.parameter("cache")?);
    let cache = asked.control().read(|reader| find::<PersistentCache>(reader, wanted))?;
    begun(asked, &cache_version::begin(asked.control(), asked.caller()?, cache.id, &comment)?)
}

/// What can be changed of a persistent write cache.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PersistentCacheBody {
    /// Whether the device stays on the version that it was made on, as long as it has this write cache. Until that is said,
    /// the device is refused after a new version was released.
    stays: bool,
}

/// What is told of a persistent write cache besides.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PersistentCacheMore {
    /// Whose.
    device: Ref,
    /// Of what.
    vdisk: Ref,
    /// On which version it was made; it means nothing on any other.
    version: u32,
    /// The server that has it.
    server: Ref,
    /// When it was made.
    made_at: Plain<Timestamp>,
}

pub(crate) enum Caches {}

impl Resource for Caches {
    type Record = PersistentCache;
    type Body = PersistentCacheBody;
    type More = PersistentCacheMore;
    const NAME: &'static str = "PersistentCache";
    const ONE: &'static str = "a persistent write cache";
    const PATH: &'static str = "/v1/persistent-caches";
    const PARAMETER: &'static str = "cache";

    fn place(reader: &mut Reader<'_>, cache: &PersistentCache) -> Result<Place, ControlError> {
        let device = reader.get(cache.device)?;
        Devices::place(reader, &device.value)
    }

    fn inside(visible: &Visible) -> Option<Filter> {
        Devices::inside(visible)
    }

    fn body(
        _: &mut Names,
        _: &mut Reader<'_>,
        cache: &PersistentCache,
    ) -> Result<PersistentCacheBody, ControlError> {
        Ok(PersistentCacheBody { stays: cache.stays })
    }

    fn more(
        names: &mut Names,
        reader: &mut Reader<'_>,
        cache: &Stored<PersistentCache>,
    ) -> Result<PersistentCacheMore, ControlError> {
        Ok(PersistentCacheMore {
            device: names.device(reader, cache.device)?,
            vdisk: names.vdisk(reader, cache.vdisk)?,
            version: cache.version.get(),
            server: names.server(reader, cache.server)?,
            made_at: Plain(cache.made_at),
        })
    }

    fn record(
        _: &mut Reader<'_>,
        body: PersistentCacheBody,
        old: Option<&PersistentCache>,
    ) -> Result<PersistentCache, ControlError> {
        // Devices make them, by writing.
        let old = old.ok_or_else(|| ControlError::new(control::Code::Unsupported, "a device makes it"))?;
        Ok(PersistentCache { stays: body.stays, ..old.clone() })
    }
}
