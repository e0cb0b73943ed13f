//! `headwater status`: whether the server runs.
use std::net::SocketAddr;

use ::api::live::AdmissionStatus;

use super::boots::print;
use super::client::Client;
use crate::admin::api::StatusAnswer;
use crate::cli::ClientArgs;

/// Runs the command; what it prints.
///
/// # Errors
/// In words for the administrator.
pub async fn run(args: ClientArgs) -> anyhow::Result<String> {
    let answer: StatusAnswer = Client::new(&args.reach)?.get("/v1/status").await?;
    print(&answer, args.output, |status| {
        let list = |addresses: &[SocketAddr]| match addresses {
            [] => "off".to_owned(),
            some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let uptime = humantime::format_duration(std::time::Duration::from_secs(status.uptime_s));
        let trouble = status.catalogue_trouble.as_ref().map_or_else(String::new, |why| {
            format!("the farm's database cannot be used, devices boot from what was known last: {why}\n")
        });
        let network: String = status.network.iter().map(|odd| format!("{odd}\n")).collect();
        let admission = &status.admission;
        let queue = match admission.at_once {
            None => format!("{} booting, as many as come", admission.booting),
            Some(limit) => {
                let AdmissionStatus { booting, waiting, longest_wait_s, .. } = admission;
                format!(
                    "{booting} booting of {limit} at a time, {waiting} waiting, the first for {longest_wait_s} s"
                )
            }
        };
        format!(
            "headwater {} running for {uptime}\niscsi  {}\nnbd    {}\nhttp   {}\n{} devices, {} sessions\n{queue}\n{trouble}{network}",
            status.version,
            list(&status.iscsi),
            list(&status.nbd),
            status.http,
            status.devices,
            status.sessions
        )
    })
}
