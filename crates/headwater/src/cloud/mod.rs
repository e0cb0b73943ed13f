//! What the operating system of a device is told about itself: the documents of cloud-init's NoCloud source, for each device.
//!
//! Devices share one image, and must not share a host name, a machine id and host keys. The golden image holds none of
//! these; whoever boots from it asks the server, `GET <seed>meta-data`. There are two ways to know the seed:
//!
//! - **By token**, `/v1/cloud/<device>.<boot>.<seal>/`: on the kernel's command line, which the server writes for a direct
//!   kernel boot (`{seed}`). The [seal](token) is a keyed hash: nobody can make one for another device or boot.
//! - **By address**, `/v1/cloud/self/`: whoever asks is the device that uses its disk from that very address. It is the
//!   same for all devices, so it can stand in the golden image, and it needs nothing of the firmware: the way for a SAN boot, whose
//!   command line is the image's own. The proof is the disk's session, which CHAP can guard.
//!
//! A MAC address or UUID proves nothing, so nothing is told for one. [Secrets](secrets) are told once in each boot: who comes second
//! gets nothing, and the administrator a line in the log. The seal holds over restarts of the server, and so does the
//! memory of what was told.
//!
//! [`documents`] makes the documents out of facts and knows no more; the routes are in `serve::cloud`.
pub mod documents;
pub mod secrets;
pub mod token;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use vdisk::BootId;

use crate::config::DeviceName;
use token::Seal;

/// The path below which the documents are.
pub const CLOUD_PATH: &str = "/v1/cloud/";

/// The word that stands for "whoever uses a disk from this address".
pub const SELF: &str = "self";

/// Says where a boot's documents are.
#[derive(Debug)]
pub struct Seeds {
    seal: Seal,
    http_port: u16,
}

impl Seeds {
    /// Those of this server, whose key lies in the state directory.
    ///
    /// # Errors
    /// The key cannot be read or made.
    pub fn open(state_dir: &Path, http_port: u16) -> std::io::Result<Self> {
        Ok(Self { seal: Seal::open(&state_dir.join("cloud.key"))?, http_port })
    }

    /// The seed of a boot, for a device that reaches the server at this address. It ends with a slash.
    #[must_use]
    pub fn url(&self, server: IpAddr, device: &DeviceName, boot: &BootId) -> String {
        format!("{}{CLOUD_PATH}{}/", self.server_url(server), self.seal.token(device, boot))
    }

    /// Where this server's HTTP is, without a slash at its end.
    #[must_use]
    pub fn server_url(&self, server: IpAddr) -> String {
        format!("http://{}", SocketAddr::new(server, self.http_port))
    }

    /// Whose token this is.
    #[must_use]
    pub fn read(&self, token: &str) -> Option<(DeviceName, BootId)> {
        self.seal.read(token)
    }
}
