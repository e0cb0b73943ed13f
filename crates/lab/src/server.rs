//! The server under test: a `headwater` binary with a configuration, inside the lab network.
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::network::Network;
use crate::service::Service;

/// How long the server may take to end after SIGTERM: it tells its sessions to log out.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// The `headwater` binary.
    pub program: PathBuf,
    /// The text of its configuration file; it goes to `headwater.toml` in the network's folder.
    pub configuration: String,
    /// The TCP ports that it listens on when it is up.
    pub tcp_ports: Vec<u16>,
    /// The UDP ports that it is bound to when it is up.
    pub udp_ports: Vec<u16>,
    /// More arguments of `headwater serve`.
    pub arguments: Vec<String>,
}

impl ServerSpec {
    /// A server with the usual ports: iSCSI and HTTP, DHCP and TFTP.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, configuration: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            configuration: configuration.into(),
            tcp_ports: vec![3260, 8080],
            udp_ports: vec![67, 69],
            arguments: Vec::new(),
        }
    }
}

/// A server that can be stopped, killed and started again. It is killed when this is dropped.
pub struct Server {
    spec: ServerSpec,
    network: Network,
    service: Service,
}

impl Server {
    /// Writes the configuration, starts `headwater serve --config FILE`, and waits until it listens.
    ///
    /// # Errors
    /// Where it ends or does not listen in half a minute; with the end of its log.
    pub fn start(network: &Network, spec: ServerSpec) -> Result<Self> {
        let service = launch(network, &spec)?;
        Ok(Self { spec, network: network.clone(), service })
    }

    /// Sends SIGTERM and waits for its end.
    ///
    /// # Errors
    /// Where it does not end in half a minute.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        self.service.terminate(ENDS_WITHIN)
    }

    /// Ends it as a crash would.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.service.kill()
    }

    /// Starts it again after [`terminate`](Self::terminate) or [`kill`](Self::kill), with the same configuration.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&mut self) -> Result<()> {
        self.service.kill()?;
        self.service = launch(&self.network, &self.spec)?;
        Ok(())
    }

    /// Its configuration file.
    #[must_use]
    pub fn configuration_path(&self) -> PathBuf {
        configuration_path(&self.network)
    }

    /// The program that runs, for its log and its process.
    pub fn service(&mut self) -> &mut Service {
        &mut self.service
    }
}

fn configuration_path(network: &Network) -> PathBuf {
    network.folder().join("headwater.toml")
}

fn launch(network: &Network, spec: &ServerSpec) -> Result<Service> {
    let file = configuration_path(network);
    std::fs::write(&file, &spec.configuration).with_context(|| format!("cannot write {}", file.display()))?;
    let program: &Path = &spec.program;
    let mut command = network.command(program);
    command.args(["serve", "--config"]).arg(&file).args(&spec.arguments).current_dir(network.folder());
    let mut service = network.service("headwater", command)?;
    service.wait_until_listening(&spec.tcp_ports, &spec.udp_ports)?;
    Ok(service)
}
