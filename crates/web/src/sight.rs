//! What somebody may see of what runs: all of it, or their own devices alone.
use std::sync::Arc;

use api::Sight;
use api::rates::Rates;
use axum::http::StatusCode;
use farm::model::ObjectKind;
use farm::rules::permission::{Action, Place};

use crate::ask::Refusal;
use crate::boot::Boot;
use crate::door::Visit;
use crate::statuses::Statuses;
use crate::wire::List;

impl Visit {
    /// Whether they see all devices of the farm.
    pub(crate) fn sees_all(&self) -> bool {
        self.may(Action::See, ObjectKind::Device, Place::Farm).is_ok()
    }

    /// What the devices are doing that they see: of the board, which is read once for everybody.
    pub(crate) async fn statuses(&self) -> Arc<Statuses> {
        let all = self.console.board.statuses().await;
        let sight = self.caller().map(|caller| Sight::of(caller, &self.console.control));
        match sight.and_then(Result::ok) {
            None => Arc::new(all.none()),
            Some(sight) if sight.all() => all,
            Some(sight) => Arc::new(all.only(|device| sight.device(&device.name))),
        }
    }

    /// The name of this server in a farm of several, whose boots and throughput it does not know.
    pub(crate) fn one_of_several(&self) -> Option<String> {
        let (control, snapshot) = (&self.console.control, self.console.control.snapshot());
        let several = snapshot.servers().nth(1).is_some();
        several.then(|| snapshot.server(control.server())).flatten().map(|server| server.name.to_string())
    }

    /// Boots of the devices that they see.
    pub(crate) fn boots_seen(&self, statuses: &Statuses, mut boots: Vec<Arc<Boot>>) -> Vec<Arc<Boot>> {
        if !self.sees_all() {
            boots.retain(|boot| statuses.get(&boot.device).is_some());
        }
        boots
    }

    /// What moves on the devices that they see, oldest first.
    pub(crate) fn rates_seen(&self, statuses: &Statuses) -> Vec<Rates> {
        match self.sees_all() {
            true => self.console.board.rates(),
            false => self.console.board.rates_of(statuses.all().map(|device| device.name.as_str())),
        }
    }
}

/// A list, which is empty for those who may not see what is in it.
pub(crate) fn seen<T>(list: Result<List<T>, Refusal>) -> Result<Vec<T>, Refusal> {
    match list {
        Ok(list) => Ok(list.items),
        Err(refusal) if refusal.status == StatusCode::FORBIDDEN => Ok(Vec::new()),
        Err(refusal) => Err(refusal),
    }
}
