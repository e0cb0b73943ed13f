//! The administration interface: HTTP on a Unix socket, for `headwater boots` and its kin.
//!
//! Who may open the socket may administrate; its mode is 0660. Answers are the types of [`api`], as JSON. One file for each kind
//! of thing that is asked about.
pub mod api;
mod boots;
mod devices;
mod exposition;
mod stats;
mod status;

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::UnixListener;
use tokio::sync::watch;

use crate::stream::device::SessionEnder;
use crate::stream::devices::Devices;
use crate::timeline::Recorder;

/// What the answers are made of.
pub struct Admin {
    /// The boots.
    pub recorder: Arc<Recorder>,
    /// The devices.
    pub devices: Arc<Devices>,
    /// Ends sessions.
    pub ender: Arc<OnceLock<Box<dyn SessionEnder>>>,
    /// When the server started.
    pub started: Instant,
    /// Where disks are served over iSCSI.
    pub iscsi: Vec<SocketAddr>,
    /// Where they are served over NBD, by TCP.
    pub nbd: Vec<SocketAddr>,
    /// Where scripts are served.
    pub http: SocketAddr,
    /// Becomes true when the server stops: followers are let go.
    pub stopping: watch::Receiver<bool>,
}

/// The routes.
pub fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/v1/boots", get(boots::list))
        .route("/v1/boots/follow", get(boots::follow))
        .route("/v1/boots/{device_or_id}", get(boots::show))
        .route("/v1/devices", get(devices::list))
        .route("/v1/device-status", get(devices::status))
        .route("/v1/devices/{name}/reset", post(devices::reset))
        .route("/v1/metrics", get(stats::metrics))
        .route("/v1/stats", get(stats::show))
        .route("/v1/status", get(status::show))
        .with_state(admin)
}

/// Makes the socket. One that a dead server has left is removed; one that answers is not.
///
/// # Errors
/// `AddrInUse` if another server answers on it; else what the operating system said.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another headwater serve answers on it"));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// An error as its status and `{"error": "..."}`.
struct Failure(StatusCode, String);

impl Failure {
    fn not_found(what: String) -> Self {
        Self(StatusCode::NOT_FOUND, what)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let status = match error.kind() {
            io::ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, axum::Json(api::ErrorAnswer { error: self.1 })).into_response()
    }
}

/// Does what waits for a disk where it holds up no other request.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined
        .map_err(|error| Failure(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?
        .map_err(Failure::from)
}
