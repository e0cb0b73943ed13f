//! What happens, for pages that renew themselves: the events of the REST API, by the session of the console.
use axum::http::Method;

use crate::answer::Answer;
use crate::ask::Refusal;
use crate::door::{Route, Visit};
use crate::paths;

pub(super) fn all() -> Vec<Route> {
    vec![Route::get(paths::LIVE, live)]
}

async fn live(visit: Visit) -> Result<Answer, Refusal> {
    // A page that comes back reads its parts anew, so nothing that was missed needs to be told again.
    visit.ask.forward(Method::GET, "/v1/events", None, None).await.map(Answer::Raw)
}
