//! What there is to be asked: one file for each kind of things.
pub(crate) mod audit;
mod caches;
mod contents;
mod devices;
mod farm;
mod grants;
mod host;
mod live;
mod locks;
mod log_in;
mod menu;
mod newcomers;
pub(crate) mod object;
mod places;
mod power;
mod secrets;
mod server_loads;
mod space;
pub(crate) mod tasks;
mod tokens;
mod traces;
mod uploads;
mod users;
mod vdisk_summaries;
mod vdisks;
mod version_steps;
mod versions;
mod views;

use ::farm::model::{Text, TextRule};
use control::ControlError;

use crate::operation::Operation;
use crate::wire::Plain;

/// All operations, in the order of the document.
pub(crate) fn operations() -> Vec<Operation> {
    [
        farm::all(),
        places::all(),
        server_loads::all(),
        vdisks::all(),
        vdisk_summaries::all(),
        contents::all(),
        uploads::all(),
        versions::all(),
        version_steps::all(),
        devices::all(),
        caches::all(),
        views::all(),
        users::all(),
        grants::all(),
        tokens::all(),
        secrets::all(),
        log_in::all(),
        tasks::all(),
        locks::all(),
        audit::all(),
        newcomers::all(),
        space::all(),
        live::all(),
        host::all(),
        power::all(),
        traces::all(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A text that may be empty, where nothing is said.
fn text<R: TextRule>(said: Option<Plain<Text<R>>>) -> Result<Text<R>, ControlError> {
    match said {
        Some(Plain(text)) => Ok(text),
        None => Ok(Text::new("")?),
    }
}
