//! The REST API at its two doors, the socket of this machine and HTTPS; the console stands beside it at the second.
//!
//! It needs the catalogue. Where the database was gone at the start, requests are told so until it is back.
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

use api::live::Live as _;
use api::{Api, Door};
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use control::people::People;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use web::Console;

use crate::admin::Admin;
use crate::catalogue::FarmLink;

/// The API, as soon as it can be served.
pub(super) struct Mount {
    farm: Arc<FarmLink>,
    admin: Arc<Admin>,
    people: Arc<People>,
    stopping: watch::Receiver<bool>,
    api: OnceLock<Arc<Api>>,
    console: OnceLock<Arc<Console>>,
}

impl Mount {
    pub(super) fn new(
        farm: Arc<FarmLink>,
        people: Arc<People>,
        admin: Arc<Admin>,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        Arc::new(Self { farm, admin, people, stopping, api: OnceLock::new(), console: OnceLock::new() })
    }

    /// The routes of a door.
    pub(super) fn router(self: &Arc<Self>, door: Door) -> Router {
        if let Some(router) = self.made(door) {
            return router;
        }
        let (mount, later) = (Arc::clone(self), Arc::new(OnceLock::<Router>::new()));
        Router::new().fallback(move |request: Request| {
            let (mount, later) = (Arc::clone(&mount), Arc::clone(&later));
            async move { mount.answer(&later, door, request).await }
        })
    }

    /// Prints how the first administrator gets in, where there is none yet. Waits for the database.
    pub(super) fn welcome(&self) {
        let Some(control) = self.farm.control() else { return };
        match self.people.first_run(&control) {
            Ok(None) => {}
            Ok(Some(first)) => tracing::info!(
                until = %first.until,
                "the farm has no administrator yet: user \"{}\" sets a password with the token {}",
                first.user,
                first.token.reveal()
            ),
            Err(error) => tracing::warn!(%error, "whether the farm has an administrator cannot be told"),
        }
    }

    fn api(&self) -> Option<Arc<Api>> {
        if let Some(api) = self.api.get() {
            return Some(Arc::clone(api));
        }
        let control = self.farm.control()?;
        let live = Arc::clone(&self.admin);
        let made = || Api::new(control, Arc::clone(&self.people), live, self.stopping.clone());
        Some(Arc::clone(self.api.get_or_init(made)))
    }

    /// The routes of a door, as soon as there is a catalogue. Browsers come over the network alone: none opens a socket.
    fn made(&self, door: Door) -> Option<Router> {
        let (api, control) = (self.api()?, self.farm.control()?);
        let api = api::router(api, door);
        if door == Door::Local {
            return Some(api);
        }
        let console = self.console.get_or_init(|| {
            let (people, live) = (Arc::clone(&self.people), Arc::clone(&self.admin));
            Console::start(control, people, api, live, self.stopping.clone())
        });
        Some(web::router(Arc::clone(console)))
    }

    async fn answer(&self, router: &OnceLock<Router>, door: Door, request: Request) -> Response {
        let known = router.get().cloned();
        let Some(known) = known.or_else(|| self.made(door).map(|made| router.get_or_init(|| made).clone()))
        else {
            return self.not_yet(door, request.uri().path());
        };
        let answered: Result<Response, Infallible> = TowerToHyperService::new(known).call(request).await;
        answered.unwrap_or_else(|never| match never {})
    }

    fn not_yet(&self, door: Door, path: &str) -> Response {
        if (door, path) == (Door::Local, "/v1/status") {
            return axum::Json(self.admin.status()).into_response();
        }
        let why = self.farm.trouble().unwrap_or_else(|| "it is being opened".to_owned());
        let body = serde_json::json!({
            "code": "unavailable",
            "message": format!("the farm's database cannot be used: {why}"),
            "hint": "known devices boot from the last known state meanwhile; headwater status tells when it is back",
        });
        (StatusCode::SERVICE_UNAVAILABLE, axum::Json(body)).into_response()
    }
}
