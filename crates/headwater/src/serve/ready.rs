//! `POST /v1/ready`: a device says that it is ready. Anybody on the network can send it, so it is small, limited and quick.
//!
//! The device is found by the MAC address in the body (`{"mac": "52:54:00:77:00:10"}`), or, with an empty body, by the address
//! that the beacon comes from, which is the one of the device's session.
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use axum::routing::post;
use netboot::director::MacAddress;
use serde::Deserialize;

use crate::timeline::Recorder;

/// The longest body.
const MAX_BODY_BYTES: usize = 4096;

/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(2);

/// How many requests one address or device may send in a window.
const PER_WINDOW: u32 = 20;

/// The window.
const WINDOW: Duration = Duration::from_secs(10);

/// The most addresses or devices that are counted at once: a full server's, all of which ask within one window.
const MAX_COUNTED: usize = 16_384;

/// The route.
pub(super) fn router(recorder: Arc<Recorder>) -> Router {
    let state = Arc::new(Beacons { recorder, limit: RateLimit::default() });
    Router::new().route("/v1/ready", post(ready)).with_state(state)
}

struct Beacons {
    recorder: Arc<Recorder>,
    limit: RateLimit<IpAddr>,
}

#[derive(Deserialize)]
struct Beacon {
    mac: Option<String>,
}

type Answer = (StatusCode, String);

async fn ready(
    State(beacons): State<Arc<Beacons>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    body: Body,
) -> Answer {
    let address = peer.ip().to_canonical();
    if !beacons.limit.permit(address, Instant::now()) {
        return (StatusCode::TOO_MANY_REQUESTS, "too many beacons\n".to_owned());
    }
    let body = match tokio::time::timeout(BODY_WITHIN, axum::body::to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return (StatusCode::PAYLOAD_TOO_LARGE, format!("the body may have {MAX_BODY_BYTES} bytes\n"));
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the body did not come\n".to_owned()),
    };
    let mac = match mac_of(&body) {
        Ok(mac) => mac,
        Err(why) => return (StatusCode::BAD_REQUEST, format!("{why}\n")),
    };
    match beacons.recorder.ready(mac, address) {
        Some((device, boot, first)) => {
            if first {
                tracing::info!(device, boot, peer = %peer, "device ready");
            }
            (StatusCode::OK, format!("{device} is ready\n"))
        }
        None => {
            tracing::debug!(peer = %peer, ?mac, "ready beacon of no device");
            (StatusCode::NOT_FOUND, "no device with a running boot is known by this address\n".to_owned())
        }
    }
}

/// The MAC address in a body, if there is one.
fn mac_of(body: &[u8]) -> Result<Option<MacAddress>, String> {
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let beacon: Beacon =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let Some(text) = beacon.mac else { return Ok(None) };
    MacAddress::parse(&text).map(Some).ok_or_else(|| "\"mac\" is not a MAC address".to_owned())
}

/// Counts requests for each address, or for each device that has proven to be it.
pub(super) struct RateLimit<K> {
    windows: Mutex<HashMap<K, (Instant, u32)>>,
}

impl<K> Default for RateLimit<K> {
    fn default() -> Self {
        Self { windows: Mutex::default() }
    }
}

impl<K: Eq + Hash> RateLimit<K> {
    /// Whether one more is permitted.
    pub(super) fn permit(&self, whose: K, now: Instant) -> bool {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= MAX_COUNTED && !windows.contains_key(&whose) {
            windows.retain(|_, (began, _)| now.saturating_duration_since(*began) < WINDOW);
            if windows.len() >= MAX_COUNTED {
                return false;
            }
        }
        let (began, count) = windows.entry(whose).or_insert((now, 0));
        if now.saturating_duration_since(*began) >= WINDOW {
            (*began, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        *count <= PER_WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beacons_of_one_address_are_limited_and_free_again_later() {
        let limit = RateLimit::default();
        let (now, address) = (Instant::now(), IpAddr::from([10, 0, 0, 1]));
        let permitted = (0..100).filter(|_| limit.permit(address, now)).count();
        assert_eq!(permitted, usize::try_from(PER_WINDOW).unwrap());
        assert!(limit.permit(IpAddr::from([10, 0, 0, 2]), now));
        assert!(limit.permit(address, now + WINDOW));
    }

    #[test]
    fn body_gives_a_mac_nothing_or_an_error() {
        assert_eq!(mac_of(b" \n"), Ok(None));
        assert_eq!(mac_of(b"{}"), Ok(None));
        assert_eq!(mac_of(b"{\"mac\":\"525400770010\",\"uptime\":3}"), Ok(MacAddress::parse("525400770010")));
        assert!(mac_of(b"{\"mac\":\"x\"}").is_err());
        assert!(mac_of(b"ready").is_err());
    }
}
