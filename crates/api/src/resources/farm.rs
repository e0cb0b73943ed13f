//! The farm itself, of which there is one.
use control::{Caller, Code, ControlError};
use farm::catalogue::Reader;
use farm::model::{
    AutoMerge, ChainLimit, Description, Farm, MergeResult, Name, ObjectKind, Revision, Stored,
};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object::{Nothing, Resource, Told, once, patch_found, tell};
use super::text;
use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Word};

const PATH: &str = "/v1/farm";

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::get(PATH, "getFarm", "farm", "Tells of the farm.", show).gives::<Told<TheFarm>>(),
        Operation::post(PATH, "createFarm", "farm", "Sets the farm up, once.", make)
            .takes::<FarmBody>()
            .makes::<Told<TheFarm>>()
            .once(),
        Operation::patch(PATH, "updateFarm", "farm", "Changes the farm.", patch)
            .takes_patch::<FarmBody>()
            .gives::<Told<TheFarm>>(),
    ]
}

/// Everything that one catalogue describes.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FarmBody {
    /// What people call it.
    name: Plain<Name>,
    /// What somebody wrote about it.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// When and how versions are merged without being asked to; null: never.
    #[serde(default)]
    auto_merge: Option<AutoMergeBody>,
}

/// Merging without being asked to.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AutoMerge")]
pub(crate) struct AutoMergeBody {
    /// The longest chain, base included, that is left alone.
    #[schemars(range(min = 3, max = 50))]
    above: u32,
    /// What a merged version is for at first.
    result: Word<MergeResult>,
}

pub(crate) enum TheFarm {}

impl Resource for TheFarm {
    type Record = Farm;
    type Body = FarmBody;
    type More = Nothing;
    const NAME: &'static str = "Farm";
    const ONE: &'static str = "the farm";
    const PATH: &'static str = PATH;
    const PARAMETER: &'static str = "farm";

    fn place(_: &mut Reader<'_>, _: &Farm) -> Result<Place, ControlError> {
        Ok(Place::Farm)
    }

    fn body(_: &mut Names, _: &mut Reader<'_>, farm: &Farm) -> Result<FarmBody, ControlError> {
        let Farm { name, description, auto_merge } = farm.clone();
        let auto_merge = auto_merge
            .map(|AutoMerge { above, result }| AutoMergeBody { above: above.get(), result: Word(result) });
        Ok(FarmBody { name: Plain(name), description: Some(Plain(description)), auto_merge })
    }

    fn more(_: &mut Names, _: &mut Reader<'_>, _: &Stored<Farm>) -> Result<Nothing, ControlError> {
        Ok(Nothing {})
    }

    fn record(_: &mut Reader<'_>, body: FarmBody, _: Option<&Farm>) -> Result<Farm, ControlError> {
        let FarmBody { name, description, auto_merge } = body;
        let auto_merge = auto_merge
            .map(|AutoMergeBody { above, result }| {
                let above = ChainLimit::new(above);
                let above = above.map_err(|bad| ControlError::bad_value("auto_merge.above", bad))?;
                Ok::<_, ControlError>(AutoMerge { above, result: result.0 })
            })
            .transpose()?;
        Ok(Farm { name: name.0, description: text(description)?, auto_merge })
    }
}

fn the_farm(reader: &mut Reader<'_>) -> Result<Stored<Farm>, ControlError> {
    reader.farm()?.ok_or_else(|| {
        ControlError::new(Code::NotFound, "the farm was not set up yet")
            .hint("POST /v1/farm, or headwater init")
    })
}

fn show(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let caller = asked.caller()?;
    let (told, revision): (Value, Revision) = asked.control().read(|reader| {
        caller.may(Action::See, ObjectKind::Farm, Place::Farm)?;
        let farm = the_farm(reader)?;
        Ok((tell::<TheFarm>(&mut Names::default(), reader, &farm)?, farm.revision))
    })?;
    Ok(Reply::json(&told)?.revision(revision))
}

fn make(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let value = asked.value()?;
    let caller: &Caller = asked.caller()?;
    once(asked, |change| {
        caller.may(Action::Change, ObjectKind::Farm, Place::Farm)?;
        let body: FarmBody = crate::asked::read(value.clone()).map_err(super::object::as_control)?;
        let record = TheFarm::record(change, body, None)?;
        let farm = change.create(record)?;
        let told = tell::<TheFarm>(&mut Names::default(), change, &farm)?;
        let reply = Reply::json(&told).map_err(super::object::as_control)?;
        Ok(reply.revision(farm.revision).made(PATH.to_owned()))
    })
}

fn patch(asked: &Asked<'_>) -> Result<Reply, Problem> {
    patch_found::<TheFarm>(asked, the_farm)
}
