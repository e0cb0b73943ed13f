//! `headwater device`: what the devices are doing.
use super::boots::print;
use super::client::Client;
use crate::admin::api::{DeviceAnswer, DevicesAnswer};
use crate::cli::{DeviceArgs, DeviceVerb};
use crate::columns::{align, bytes, columns};
use crate::config::DeviceName;

/// Runs the command; what it prints.
///
/// # Errors
/// In words for the administrator.
pub async fn run(args: DeviceArgs) -> anyhow::Result<String> {
    let client = Client::new(&args.client)?;
    match args.verb {
        DeviceVerb::List => {
            let answer: DevicesAnswer = client.get("/v1/devices").await?;
            print(&answer, args.client.output, |answer| list(&answer.devices))
        }
        DeviceVerb::Reset { device, discard_persistent } => {
            let device = DeviceName::parse(&device).map_err(anyhow::Error::msg)?;
            let query = if discard_persistent { "?discard_persistent=true" } else { "" };
            client.post(&format!("/v1/devices/{device}/reset{query}")).await?;
            Ok(String::new())
        }
    }
}

fn list(devices: &[DeviceAnswer]) -> String {
    let head = ["DEVICE", "MAC", "VDISK", "STATUS", "BOOT", "SESSIONS", "WRITE CACHE", "LIMIT", "FILL"];
    let mut rows = vec![columns(head)];
    for device in devices {
        let cache = device.write_cache.as_ref();
        let size = |of: fn(&crate::admin::api::WriteCacheAnswer) -> u64| {
            cache.map_or("-".to_owned(), |cache| bytes(of(cache)))
        };
        rows.push(columns([
            &device.name,
            &device.mac,
            &device.vdisk,
            &device.status,
            device.boot.as_deref().unwrap_or("-"),
            &device.sessions.to_string(),
            &size(|cache| cache.used_bytes),
            &size(|cache| cache.limit_bytes),
            cache.map_or("-", |cache| cache.fill.as_str()),
        ]));
    }
    align(&rows, &[5, 6, 7])
}
