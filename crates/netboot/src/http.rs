//! The HTTP routes of the boot services: the iPXE script of a machine, and the boot files for UEFI HTTP Boot.
//!
//! - `GET /v1/boot/script?mac=...&platform=...&uuid=...`: the script that carries out the director's plan. Without a `mac`:
//!   a script that asks again with iPXE's settings, for iPXE that was not started by our DHCP. Boot media add the number of
//!   their format (`media`).
//!   `choice`: what was chosen in the machine's boot menu. With `login`, user and password are asked for (RFC 7617).
//! - `GET` or `HEAD /boot/NAME`: a boot file, with length and ranges (UEFI asks for the length first).
//!
//! The program merges [`router`] with its own routes and serves it with
//! `into_make_service_with_connect_info::<SocketAddr>()`.
mod basic;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::body::{Frame, SizeHint};

use crate::boot_files::BootFiles;
use crate::director::{BootStep, Director, LogIn, MacAddress, ScriptRequest};
use crate::limits::LogGate;
use crate::neighbours::Neighbours;
use crate::script;
use crate::script_url::SCRIPT_PATH;

/// The path of the boot files, with its last slash.
pub const BOOT_PATH: &str = "/boot/";
/// How much of a file is handed to a connection at once.
const CHUNK_BYTES: usize = 64 << 10;
/// The longest platform or UUID in a query: a UUID has 36 characters.
const MAX_WORD_BYTES: usize = 36;
/// The longest name of this server in a request: RFC 1035 §2.3.4, and a port.
const MAX_HOST_BYTES: usize = 259;

/// What the services share.
#[derive(Clone)]
pub struct Services {
    /// The boot files.
    pub files: Arc<BootFiles>,
    /// Who is behind which address.
    pub neighbours: Arc<Neighbours>,
    /// The decisions.
    pub director: Arc<dyn Director>,
}

struct HttpState {
    services: Services,
    gate: Mutex<LogGate>,
}

/// The routes. Needs the peer's address: `into_make_service_with_connect_info::<SocketAddr>()`.
pub fn router(services: Services) -> Router {
    let state = Arc::new(HttpState { services, gate: Mutex::default() });
    Router::new()
        .route(SCRIPT_PATH, get(boot_script))
        .route(&format!("{BOOT_PATH}{{name}}"), get(boot_file))
        .with_state(state)
}

impl HttpState {
    /// Logs a bad request, unless there are too many of them, and answers it.
    fn refuse(&self, status: StatusCode, peer: SocketAddr, reason: &str) -> Response {
        if let Some(suppressed) =
            self.gate.lock().unwrap_or_else(PoisonError::into_inner).open(Instant::now())
        {
            tracing::warn!(%peer, reason, suppressed, "boot request refused");
        }
        (status, format!("{reason}\n")).into_response()
    }
}

async fn boot_script(
    State(state): State<Arc<HttpState>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let log_in = headers.get(header::AUTHORIZATION).and_then(|value| basic::parse(value.to_str().ok()?));
    let asks = query.iter().any(|(name, _)| name == "login");
    if asks && log_in.is_none() {
        // iPXE shows what was typed when it is asked for it, and not before.
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"Headwater\"")];
        return (StatusCode::UNAUTHORIZED, challenge, "log in\n").into_response();
    }
    script_for(&state, peer, &headers, &query, log_in.filter(|_| asks))
}

/// How a client has reached us, as it says itself; else by `local`, where that must do.
fn base(headers: &HeaderMap, local: IpAddr) -> String {
    let harmless =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
    let said = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let said =
        said.filter(|host| !host.is_empty() && host.len() <= MAX_HOST_BYTES && host.bytes().all(harmless));
    match (said, local) {
        (Some(host), _) => format!("http://{host}"),
        (None, IpAddr::V4(local)) => format!("http://{local}"),
        (None, IpAddr::V6(local)) => format!("http://[{local}]"),
    }
}

fn script_for(
    state: &HttpState,
    peer: SocketAddr,
    headers: &HeaderMap,
    query: &[(String, String)],
    log_in: Option<LogIn>,
) -> Response {
    let value = |key: &str| query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    let text = match value("mac") {
        None => script::introduction(),
        Some(mac) => {
            let Some(mac) = MacAddress::parse(mac) else {
                return state.refuse(
                    StatusCode::BAD_REQUEST,
                    peer,
                    "mac in the script's URL is no MAC address",
                );
            };
            let Some(local) = local_address(peer.ip()) else {
                return state.refuse(StatusCode::INTERNAL_SERVER_ERROR, peer, "no route back to the machine");
            };
            let request = ScriptRequest {
                mac,
                platform: value("platform").and_then(word).map(|name| firmware_name(&name)),
                uuid: value("uuid").and_then(word),
                choice: value("choice").and_then(word),
                log_in,
                base: base(headers, local),
                peer,
                local,
            };
            if let IpAddr::V4(address) = peer.ip().to_canonical() {
                state.services.neighbours.learn(address, mac);
            }
            let plan = state.services.director.plan(&request);
            let media = value("media").and_then(word);
            tracing::info!(%mac, %peer, media, ?plan, "boot script handed out");
            state.services.director.step(mac, BootStep::Script);
            script::render(&plan, &request)
        }
    };
    ([(header::CONTENT_TYPE, "text/plain"), (header::CACHE_CONTROL, "no-store")], text).into_response()
}

/// A short value of harmless characters; anything else counts as absent.
fn word(value: &str) -> Option<String> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!value.is_empty() && value.len() <= MAX_WORD_BYTES && value.bytes().all(harmless))
        .then(|| value.to_owned())
}

/// iPXE's word for the platform in ours.
fn firmware_name(platform: &str) -> String {
    match platform {
        "pcbios" => "bios",
        "efi" => "uefi",
        other => other,
    }
    .to_owned()
}

/// Our address on the way to `peer`: the one that the kernel would send from. No packet is sent.
#[must_use]
pub fn local_address(peer: IpAddr) -> Option<IpAddr> {
    let peer = peer.to_canonical();
    let any: IpAddr =
        if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((peer, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

async fn boot_file(
    State(state): State<Arc<HttpState>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let began = Instant::now();
    let Some(file) = state.services.files.get(&name) else {
        let shown: String =
            name.chars().take(64).map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect();
        return state.refuse(StatusCode::NOT_FOUND, peer, &format!("no boot file {shown}"));
    };
    let size = file.len();
    let range =
        headers.get(header::RANGE).and_then(|value| value.to_str().ok()).map(|text| parse_range(text, size));
    let (status, part, content_range) = match range {
        // RFC 9110 §14.2: a range that is not understood is ignored.
        None | Some(Range::NotUnderstood) => (StatusCode::OK, file.clone(), None),
        Some(Range::Part { first, last }) => {
            let part = file.slice(first..=last);
            (StatusCode::PARTIAL_CONTENT, part, Some(format!("bytes {first}-{last}/{size}")))
        }
        Some(Range::Unsatisfiable) => {
            let headers = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, headers).into_response();
        }
    };
    let length = part.len();
    let sent = (length == size).then(|| Sent { services: state.services.clone(), peer, name, size, began });
    let mut response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/octet-stream")
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CONTENT_LENGTH, length);
    if let Some(range) = content_range {
        response = response.header(header::CONTENT_RANGE, range);
    }
    response
        .body(Body::new(FileBody { rest: part, sent }))
        .unwrap_or_else(|error| state.refuse(StatusCode::INTERNAL_SERVER_ERROR, peer, &error.to_string()))
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    /// From `first` to `last`, which are in the file.
    Part {
        first: usize,
        last: usize,
    },
    Unsatisfiable,
    /// Several ranges, another unit, or nonsense.
    NotUnderstood,
}

/// RFC 9110 §14.1.2: `bytes=first-last`, `bytes=first-`, `bytes=-length`.
fn parse_range(text: &str, size: usize) -> Range {
    let parsed = (|| {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let end = size.saturating_sub(1);
        let (first, last) = if first.is_empty() {
            let length: usize = last.parse().ok()?;
            // A suffix of no bytes cannot be had.
            (if length == 0 { size } else { size.saturating_sub(length) }, end)
        } else {
            let last = if last.is_empty() { end } else { last.parse().ok()? };
            (first.parse().ok()?, last)
        };
        Some((first, last.min(end), first <= last || first >= size))
    })();
    match parsed {
        Some((first, last, true)) if first < size && first <= last => Range::Part { first, last },
        Some((_, _, true)) => Range::Unsatisfiable,
        Some((_, _, false)) | None => Range::NotUnderstood,
    }
}

/// A file on its way out. Its last chunk tells when the connection has written it.
struct FileBody {
    rest: Bytes,
    sent: Option<Sent>,
}

impl hyper::body::Body for FileBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(CHUNK_BYTES);
        let chunk = self.rest.split_to(length);
        let last = self.rest.is_empty();
        let frame = match self.sent.take_if(|_| last) {
            Some(sent) => Bytes::from_owner(LastChunk { bytes: chunk, _report: ReportOnDrop(sent) }),
            None => chunk,
        };
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// The last bytes of a file, which are dropped when they are written (or their connection is lost at the very end).
struct LastChunk {
    bytes: Bytes,
    _report: ReportOnDrop,
}

impl AsRef<[u8]> for LastChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What to report when a file is sent.
struct Sent {
    services: Services,
    peer: SocketAddr,
    name: String,
    size: usize,
    began: Instant,
}

struct ReportOnDrop(Sent);

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        let Sent { services, peer, name, size, began } = &self.0;
        let (size_bytes, took) = (*size as u64, began.elapsed());
        tracing::info!(%peer, file = name, size_bytes, ?took, "boot file sent by HTTP");
        if let Some(mac) = services.neighbours.mac_of(peer.ip()) {
            let (name, protocol) = (name.clone(), "http");
            services.director.step(mac, BootStep::BootFile { name, protocol, size_bytes, took, tftp: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_has_them() {
        assert_eq!(parse_range("bytes=0-9", 100), Range::Part { first: 0, last: 9 });
        assert_eq!(parse_range("bytes=90-", 100), Range::Part { first: 90, last: 99 });
        assert_eq!(parse_range("bytes=90-500", 100), Range::Part { first: 90, last: 99 });
        assert_eq!(parse_range("bytes=-5", 100), Range::Part { first: 95, last: 99 });
        assert_eq!(parse_range("bytes=-500", 100), Range::Part { first: 0, last: 99 });
        assert_eq!(parse_range("bytes=100-", 100), Range::Unsatisfiable);
        assert_eq!(parse_range("bytes=-0", 100), Range::Unsatisfiable);
        for bad in ["bytes=9-5", "bytes=0-1,3-4", "lines=1-2", "bytes=", "bytes=-", "bytes=x-y"] {
            assert_eq!(parse_range(bad, 100), Range::NotUnderstood, "{bad}");
        }
    }

    #[test]
    fn base_is_what_the_client_called_us_if_that_is_harmless() {
        let of = |host: &str| {
            let mut headers = HeaderMap::new();
            if let Ok(value) = host.parse() {
                headers.insert(header::HOST, value);
            }
            base(&headers, IpAddr::V4(Ipv4Addr::LOCALHOST))
        };
        assert_eq!(of("10.0.0.1:8080"), "http://10.0.0.1:8080");
        assert_eq!(of("[fd00::1]:80"), "http://[fd00::1]:80");
        for bad in ["", "a b", "a;reboot", "a/${x}"] {
            assert_eq!(of(bad), "http://127.0.0.1", "{bad}");
        }
    }

    #[test]
    fn route_to_this_host_starts_at_this_host() {
        assert_eq!(local_address(IpAddr::V4(Ipv4Addr::LOCALHOST)), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
