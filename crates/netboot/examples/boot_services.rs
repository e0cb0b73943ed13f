//! Boot services alone, for the lab: `boot_services INTERFACE dhcp|proxy ADDRESS [HTTP_PORT]`, as root.
//!
//! As DHCP server it gives out .100 to .200 of the interface's /24. Every machine is told to boot LUN 1 of
//! `iqn.2026-01.io.headwater:lab` from port 3260 of this machine, with CHAP. The steps go to standard output, with the
//! milliseconds since each machine's first. Variables: `BOOT_FILES` the directory of the boot files, `BOOT_NAME_UEFI` another
//! boot file for UEFI x64, `NO_RA` no router advertisements, `LEASES` a directory for leases.
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use netboot::boot_files::BootFilesConfig;
use netboot::dhcp::subnet::Subnet;
use netboot::director::{
    BootPlan, BootStep, DhcpClient, DhcpDecision, Director, MacAddress, SanBoot, ScriptRequest,
};
use netboot::service::{InterfaceConfig, Mode, NetbootConfig};

struct Lab {
    first: Mutex<HashMap<MacAddress, Instant>>,
}

impl Lab {
    fn say(&self, mac: MacAddress, text: &str) {
        let Ok(mut first) = self.first.lock() else { return };
        let since = first.entry(mac).or_insert_with(Instant::now).elapsed().as_millis();
        println!("{mac} {since:>6} ms {text}");
    }
}

impl Director for Lab {
    fn dhcp(&self, client: &DhcpClient) -> DhcpDecision {
        self.say(client.mac, &format!("is {:?}, uuid {:?}", client.kind, client.uuid));
        DhcpDecision::Serve { address: None, host_name: Some("lab".to_owned()) }
    }

    fn plan(&self, request: &ScriptRequest) -> BootPlan {
        self.say(request.mac, &format!("{request:?}"));
        BootPlan::San(SanBoot {
            portal: SocketAddr::new(request.local, 3260),
            target: "iqn.2026-01.io.headwater:lab".to_owned(),
            lun: 1,
            initiator: "iqn.2026-01.io.headwater:machine".to_owned(),
            chap: Some(("lab".to_owned(), "twelve bytes or more".to_owned())),
            mutual_chap: None,
            title: "IPXE-SCRIPT".to_owned(),
        })
    }

    fn step(&self, mac: MacAddress, step: BootStep) {
        self.say(mac, &format!("{step:?}"));
    }
}

fn local_subnet(address: Ipv4Addr) -> Subnet {
    let [a, b, c, _] = address.octets();
    Subnet {
        first: Ipv4Addr::new(a, b, c, 100),
        last: Ipv4Addr::new(a, b, c, 200),
        netmask: Ipv4Addr::new(255, 255, 255, 0),
        router: None,
        dns: vec![],
        lease: Duration::from_secs(3600),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let mut args = std::env::args().skip(1);
    let usage = "usage: boot_services INTERFACE dhcp|proxy ADDRESS [HTTP_PORT]";
    let (Some(interface), Some(mode), Some(address)) = (args.next(), args.next(), args.next()) else {
        bail!(usage)
    };
    let http_port = args.next().map_or(Ok(8080), |text| text.parse())?;
    let mode = match mode.as_str() {
        "dhcp" => Mode::Dhcp { subnet: local_subnet(address.parse().context(usage)?), relayed: vec![] },
        "proxy" => Mode::Proxy,
        _ => bail!(usage),
    };
    let mut boot_files = BootFilesConfig::default();
    if let Some(directory) = std::env::var_os("BOOT_FILES") {
        boot_files.directories = vec![directory.into()];
    }
    if let Ok(name) = std::env::var("BOOT_NAME_UEFI") {
        boot_files.names.uefi_x64 = name;
    }
    let config = NetbootConfig {
        interfaces: vec![InterfaceConfig {
            name: interface,
            address: None,
            mode,
            tftp: true,
            router_advertisements: std::env::var_os("NO_RA").map(|_| false),
        }],
        http_port,
        boot_files,
        lease_directory: std::env::var_os("LEASES").map(Into::into),
    };
    let lab = Arc::new(Lab { first: Mutex::default() });
    let handle = netboot::service::start(config, lab).await?;
    let listener = tokio::net::TcpListener::bind((IpAddr::from(Ipv4Addr::UNSPECIFIED), http_port)).await?;
    let app = netboot::http::router(handle.services()).into_make_service_with_connect_info::<SocketAddr>();
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = tokio::signal::ctrl_c() => {}
    }
    handle.shutdown().await;
    Ok(())
}
