//! What this server knows of vDisks and devices beside the catalogue, out of its configuration: how images are opened and
//! which kernel they are started with, secrets, certificates. It is found by the names of vDisks and devices.
use std::collections::HashMap;
use std::path::PathBuf;

use farm::model::{Vdisk, VersionNumber};
use farm::snapshot::Snapshot;
use meter::Rates;

use super::survey;
use crate::config::{Chap, Config, DirectKernel, ImageFormat};
use crate::stream::names::base_name;

/// All of it.
#[derive(Debug, Default)]
pub struct Local {
    /// By the names of store and vDisk, in lower case.
    vdisks: HashMap<(String, String), LocalVdisk>,
    devices: HashMap<String, LocalDevice>,
}

/// Of a vDisk.
#[derive(Clone, Debug, Default)]
pub struct LocalVdisk {
    /// The name that the configuration knows it by.
    pub name: String,
    /// Out of which folder no parent may lie, where that is another than its store's.
    pub store: Option<PathBuf>,
    /// The format of its images; `None`: what their contents say.
    pub format: Option<ImageFormat>,
    /// The Linux kernel that its machines are started with; `None`: firmware boots from the disk.
    pub kernel: Option<DirectKernel>,
}

/// Of a device.
#[derive(Clone, Debug, Default)]
pub struct LocalDevice {
    /// The version that it keeps to.
    pub pinned: Option<VersionNumber>,
    /// What its initiator must prove.
    pub chap: Option<Chap>,
    /// The name in the certificate that it shows over NBD.
    pub certificate: Option<String>,
    /// How fast it may read and write.
    pub rates: Option<Rates>,
}

impl Local {
    /// What a configuration says.
    ///
    /// # Errors
    /// A folder that no store can be.
    pub fn of(config: &Config) -> anyhow::Result<Self> {
        let mut local = Self::default();
        for vdisk in config.vdisks.iter().filter(|vdisk| base_name(&vdisk.name) == vdisk.name) {
            let (store, _) = survey::store(config, vdisk)?;
            let own = LocalVdisk {
                name: vdisk.name.clone(),
                store: vdisk.store.clone(),
                format: vdisk.format,
                kernel: vdisk.kernel.clone(),
            };
            local.vdisks.insert((store.folded(), vdisk.name.to_lowercase()), own);
        }
        for device in &config.devices {
            let own = LocalDevice {
                pinned: device.vdisk.split_once('@').and_then(|(_, number)| number.parse().ok()),
                chap: device.chap.clone(),
                certificate: device.certificate.clone(),
                rates: device.limits,
            };
            local.devices.insert(device.name.to_string(), own);
        }
        Ok(local)
    }

    /// Of a vDisk.
    #[must_use]
    pub fn vdisk(&self, snapshot: &Snapshot, vdisk: &Vdisk) -> Option<&LocalVdisk> {
        let store = snapshot.store(vdisk.store)?;
        self.vdisks.get(&(store.name.folded(), vdisk.name.folded()))
    }

    /// Of a device.
    #[must_use]
    pub fn device(&self, name: &str) -> Option<&LocalDevice> {
        self.devices.get(name)
    }
}
