//! `GET /v1/cloud/...`: what devices' operating systems are told about themselves. The theory is in [`crate::cloud`].
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use vdisk::BootId;

use super::ready::RateLimit;
use crate::cloud::documents::{Facts, NETWORK_CONFIG, SECRETS_URL, machine_id};
use crate::cloud::{CLOUD_PATH, SELF, Seeds, secrets};
use crate::config::DeviceName;
use crate::stream::devices::{Devices, Served};
use crate::timeline::Recorder;

/// What the routes need.
pub(super) struct Cloud {
    pub(super) devices: Arc<Devices>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) seeds: Arc<Seeds>,
    pub(super) limits: Limits,
}

/// The routes. Needs the peer's address: `into_make_service_with_connect_info::<SocketAddr>()`.
pub(super) fn router(cloud: Arc<Cloud>) -> Router {
    Router::new().route(&format!("{CLOUD_PATH}{{seed}}/{{document}}"), get(document)).with_state(cloud)
}

/// How often may be asked. A device that shows the token of its boot is counted by itself, however many others have the same address;
/// who shows none is counted by address.
#[derive(Default)]
pub(super) struct Limits {
    addresses: RateLimit<IpAddr>,
    devices: RateLimit<DeviceName>,
}

/// A refusal, in words for whoever reads the machine's log.
pub(super) type Refused = (StatusCode, String);

/// Whose documents are asked for.
struct Asking {
    served: Served,
    boot: BootId,
    peer: IpAddr,
}

async fn document(
    State(cloud): State<Arc<Cloud>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path((seed, document)): Path<(String, String)>,
) -> Response {
    let peer = peer.ip().to_canonical();
    // Files are read, and state is written.
    respond(
        peer,
        "text/plain",
        tokio::task::spawn_blocking(move || cloud.answer(&seed, &document, peer)).await,
    )
}

/// What a device is answered, or why it is not.
pub(super) fn respond(
    peer: IpAddr,
    content_type: &'static str,
    done: Result<Result<String, Refused>, tokio::task::JoinError>,
) -> Response {
    match done {
        Ok(Ok(text)) => {
            let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-store")];
            (headers, text).into_response()
        }
        Ok(Err((status, why))) => {
            tracing::debug!(%peer, %status, why, "a device was refused");
            (status, format!("{why}\n")).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn too_often(permitted: bool, from: &str) -> Result<(), Refused> {
    match permitted {
        true => Ok(()),
        false => Err((StatusCode::TOO_MANY_REQUESTS, format!("too many requests from this {from}"))),
    }
}

impl Cloud {
    fn answer(&self, seed: &str, document: &str, peer: IpAddr) -> Result<String, Refused> {
        let asking = self.asking(seed, peer, &self.limits)?;
        match document {
            "meta-data" => Ok(self.facts(&asking)?.meta_data()),
            "user-data" => self.facts(&asking)?.user_data().map_err(|why| {
                let device = asking.served.device.name.as_str();
                tracing::error!(device, %why, "the user data of a device cannot be made");
                (StatusCode::INTERNAL_SERVER_ERROR, format!("user data of device \"{device}\": {why}"))
            }),
            "vendor-data" => Ok(self.facts(&asking)?.vendor_data()),
            "network-config" => Ok(NETWORK_CONFIG.to_owned()),
            "secrets" => self.hand_out_secrets(&asking),
            _ => Err((StatusCode::NOT_FOUND, "no such document".to_owned())),
        }
    }

    /// Which boot of which device asks, if it has not asked too often.
    pub(super) fn who(
        &self,
        seed: &str,
        peer: IpAddr,
        limits: &Limits,
    ) -> Result<(DeviceName, BootId), Refused> {
        let Asking { served, boot, .. } = self.asking(seed, peer, limits)?;
        Ok((served.device.name, boot))
    }

    fn asking(&self, seed: &str, peer: IpAddr, limits: &Limits) -> Result<Asking, Refused> {
        let now = Instant::now();
        // A token is checked before anything is counted: that takes no lock and no disk.
        let shown = if seed == SELF { None } else { self.seeds.read(seed) };
        let (device, boot) = match shown {
            Some((device, boot)) => {
                too_often(limits.devices.permit(device.clone(), now), "device")?;
                (device, boot)
            }
            None => {
                too_often(limits.addresses.permit(peer, now), "address")?;
                if seed != SELF {
                    return Err((StatusCode::NOT_FOUND, "this server has made no such token".to_owned()));
                }
                self.recorder.boot_from(peer).ok_or_else(|| {
                    let why = "not exactly one device uses its disk from this address; where devices share an address, put \
                               {seed} into the command line of their kernel";
                    (StatusCode::NOT_FOUND, why.to_owned())
                })?
            }
        };
        let gone = |what: &str| (StatusCode::GONE, format!("{what}; restart the machine"));
        let served = self.devices.by_name(&device).ok_or_else(|| gone("there is no such device any more"))?;
        if !served.slot.counts(&boot) {
            return Err(gone("a later boot of the device has replaced this one"));
        }
        Ok(Asking { served, boot, peer })
    }

    fn facts(&self, asking: &Asking) -> Result<Facts, Refused> {
        let Asking { served, boot, peer } = asking;
        let snapshot = self.devices.farm().snapshot();
        let gone = || (StatusCode::GONE, "the device has just been deleted".to_owned());
        let device = snapshot.device(served.device.id).ok_or_else(gone)?;
        let collection = snapshot.collection(device.collection).ok_or_else(gone)?;
        let site = snapshot.site(collection.site).ok_or_else(gone)?;
        let farm = snapshot.farm().map(|farm| farm.name.to_string()).unwrap_or_default();
        let id = i64::from(device.id).unsigned_abs();
        let mut known: BTreeMap<&'static str, String> = [
            ("device", device.name.to_string()),
            ("collection", collection.name.to_string()),
            ("site", site.name.to_string()),
            ("machine-id", machine_id(&farm, id)),
            ("farm", farm),
            ("boot", boot.as_str().to_owned()),
            ("address", peer.to_string()),
        ]
        .into();
        known.extend(device.macs.as_slice().first().map(|mac| ("mac", mac.to_string())));
        known.extend(device.uuid.map(|uuid| ("uuid", uuid.to_string())));
        let disk = served
            .slot
            .disk_of(boot)
            .or_else(|| self.devices.decide(device.id, served.slot.picked(boot)).ok());
        if let Some(disk) = disk {
            known.extend([("vdisk", disk.name), ("version", disk.number.to_string())]);
        }
        if let Some(local) = netboot::http::local_address(*peer) {
            let ready = format!("{}/v1/ready", self.seeds.server_url(local));
            known.extend([("server", local.to_string()), ("ready-url", ready)]);
            if !served.slot.secrets_told(boot.as_str()) && !self.secrets(asking)?.is_empty() {
                let seed = self.seeds.url(local, &served.device.name, boot);
                known.insert(SECRETS_URL, format!("{seed}secrets"));
            }
        }
        Ok(Facts {
            known,
            personality: device.profile.personality.clone(),
            device: device.profile.guest.clone(),
            collection: collection.guest.clone(),
        })
    }

    fn secrets(&self, asking: &Asking) -> Result<BTreeMap<String, String>, Refused> {
        let Some(folder) = &self.devices.config().cloud.secrets else { return Ok(BTreeMap::new()) };
        let snapshot = self.devices.farm().snapshot();
        let device = snapshot.device(asking.served.device.id);
        let collection = device.and_then(|device| snapshot.collection(device.collection));
        let collection = collection.map(|collection| collection.name.to_string()).unwrap_or_default();
        let name = asking.served.device.name.as_str();
        secrets::of_device(folder, name, &collection).map_err(|error| {
            tracing::error!(device = name, %error, "the secrets of a device cannot be read");
            (StatusCode::INTERNAL_SERVER_ERROR, "the secrets cannot be read".to_owned())
        })
    }

    /// Once in each boot. That they were told is stored first: a server that dies in between has told nobody twice.
    fn hand_out_secrets(&self, asking: &Asking) -> Result<String, Refused> {
        let Asking { served, boot, peer } = asking;
        let device = served.device.name.as_str();
        let secrets = self.secrets(asking)?;
        if secrets.is_empty() {
            return Err((StatusCode::NOT_FOUND, "there are no secrets for this device".to_owned()));
        }
        match served.slot.tell_secrets(boot) {
            Ok(true) => {}
            Ok(false) => {
                let boot = boot.as_str();
                tracing::warn!(device, boot, %peer, "the secrets of a boot were asked for once more: refused");
                return Err((StatusCode::GONE, "the secrets of this boot have been told already".to_owned()));
            }
            Err(error) => {
                tracing::error!(device, %error, "cannot remember that secrets are told; they are not");
                return Err((StatusCode::INTERNAL_SERVER_ERROR, "the state cannot be stored".to_owned()));
            }
        }
        tracing::info!(device, boot = boot.as_str(), %peer, secrets = secrets.len(), "secrets told");
        let names: serde_json::Map<String, serde_json::Value> =
            secrets.into_iter().map(|(name, text)| (name, text.into())).collect();
        Ok(format!("{:#}\n", serde_json::Value::from(names)))
    }
}
