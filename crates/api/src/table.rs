//! The table of all operations, with what describes the interface itself.
use std::sync::OnceLock;

use crate::asked::Asked;
use crate::events;
use crate::openapi;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::resources;

/// All operations.
pub(crate) fn operations() -> Vec<Operation> {
    let mut all = resources::operations();
    all.extend(events::all());
    all.push(
        Operation::get(
            "/v1/openapi.json",
            "getDescription",
            "server",
            "Gives this description of the interface.",
            description,
        )
        .gives::<serde_json::Value>()
        .open(),
    );
    all
}

fn description(_: &Asked<'_>) -> Result<Reply, Problem> {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let text = DOCUMENT.get_or_init(openapi::document);
    Ok(Reply::text("application/json", text.clone()))
}
