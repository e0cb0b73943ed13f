//! `headwater trace record`: has the server record a device, and fetches what it recorded.
use std::fs;
use std::time::Duration;

use ::api::live::TraceStatus;
use anyhow::{Context as _, bail, ensure};
use hyper::Method;
use tokio::signal::ctrl_c;

use crate::cli::RecordArgs;
use crate::commands::client::{Body, Client};

/// How often the server is asked how far it is.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Records until it is over or Ctrl-C; what it prints.
pub(super) async fn record(args: RecordArgs) -> anyhow::Result<String> {
    let device = &args.device;
    let is_name = device.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    ensure!(is_name && !device.is_empty(), "\"{device}\" is no device's name");
    let client = Client::new(&args.client.reach)?;
    let path = format!("/v1/devices/{device}/trace");
    let mut start = format!("{path}/start?next_boot={}&until_ready={}", args.next_boot, args.until_ready);
    if let Some(seconds) = args.seconds {
        start = format!("{start}&seconds={seconds}");
    }
    let mut status = status(&client, Method::POST, &start).await?;
    eprintln!("{device}: {}; Ctrl-C ends it", status.state);
    while status.state != "done" {
        tokio::select! {
            _ = ctrl_c() => status = self::status(&client, Method::POST, &format!("{path}/stop")).await?,
            () = tokio::time::sleep(ASK_EVERY) => {
                let before = status.state;
                status = self::status(&client, Method::GET, &path).await?;
                if status.state != before {
                    eprintln!("{device}: {}", status.state);
                }
            }
        }
    }
    if let Some(trouble) = &status.trouble {
        bail!("the recording ended early: {trouble}");
    }
    ensure!(status.recorded > 0, "device {device} asked for nothing: there is no trace");
    let table = client.bytes(Method::GET, &format!("{path}/table"), Body::default()).await?;
    let trace = trace::read(&table).context("the server's trace is damaged")?;
    let to = args.to.display();
    fs::write(&args.to, trace::write(&trace)).with_context(|| format!("{to} cannot be written"))?;
    let lost = match status.dropped {
        0 => String::new(),
        dropped => format!("; {dropped} MORE WERE NOT KEPT: the server's disk could not keep up"),
    };
    Ok(format!("{to}: {} requests{lost}\n", trace.requests.len()))
}

async fn status(client: &Client, method: Method, path: &str) -> anyhow::Result<TraceStatus> {
    let answer = client.ask(method, path, Body::default()).await?;
    serde_json::from_value(answer)
        .context("the server's answer is not what this version of headwater expects")
}
