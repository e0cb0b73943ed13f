//! What a device that asks is told: the rules of the farm ([`farm::rules::menu`]), with what this server knows besides.
use std::sync::Arc;

use farm::model::{DeviceId, ServerId, Timestamp, VdiskId, VersionNumber};
use farm::rules::boot::{Decision, Entry, Offer};
use farm::rules::menu::{Asked, BootChoice, Menu, Next, next};
use farm::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::boot_disk::BootDisk;
use crate::catalogue::local::Local;

/// What was picked for a boot in a menu, where that is not what boots without a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picked {
    /// The vDisk.
    pub vdisk: VdiskId,
    /// The version; `None`: what the device is entitled to when it logs in.
    pub version: Option<VersionNumber>,
}

/// A device that asks, at one moment.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The farm at that moment.
    pub snapshot: Arc<Snapshot>,
    /// What this server knows besides.
    pub local: &'a Local,
    /// Who asks.
    pub device: DeviceId,
    /// Who is asked.
    pub server: ServerId,
    /// The moment.
    pub now: Timestamp,
}

/// What the device does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It boots this disk.
    Boot {
        /// The disk.
        disk: Box<BootDisk>,
        /// The choice.
        choice: BootChoice,
        /// Whether that is what boots without one.
        default: bool,
        /// What is to be remembered of the choice.
        picked: Option<Picked>,
        /// What the menu calls it.
        text: String,
        /// Whether somebody must log in first.
        asks_login: bool,
    },
    /// It boots its own disk.
    LocalDisk {
        /// Whether that is what boots without a choice.
        default: bool,
    },
    /// It shows a menu.
    Menu(Menu),
    /// It waits so many seconds for the key that calls for the menu, and takes the default.
    Key {
        /// How many.
        wait_s: u16,
        /// The default.
        default: BootChoice,
    },
    /// What it has chosen is no choice.
    NoSuchChoice(BootChoice),
    /// Nothing, and why, in words.
    Nothing(String),
}

impl Turn<'_> {
    /// What it does next.
    #[must_use]
    pub fn next(&self, asked: Asked) -> Told {
        let offer = match self.offer() {
            Ok(Some(offer)) => offer,
            // Without a vDisk there is nothing to choose.
            Ok(None) => return Told::LocalDisk { default: true },
            Err(why) => return Told::Nothing(why),
        };
        let own = self.snapshot.device(self.device);
        let settings = own.map(|device| device.profile.menu).unwrap_or_default();
        let collection = own.and_then(|device| self.snapshot.collection(device.collection));
        let of_collection = collection.map(|collection| collection.menu).unwrap_or_default();
        match next(&offer, settings, of_collection, asked) {
            Next::Boot(entry) => {
                match BootDisk::of(&self.snapshot, self.local, entry, self.pinned(), self.now) {
                    Ok(disk) => Told::Boot {
                        disk: Box::new(disk),
                        choice: entry.choice(),
                        default: entry.choice() == offer.default_choice(),
                        picked: picked(&offer, entry),
                        text: entry.menu_text.clone(),
                        asks_login: entry.asks_login,
                    },
                    Err(why) => Told::Nothing(why),
                }
            }
            Next::LocalDisk => Told::LocalDisk { default: offer.default_choice() == BootChoice::LocalDisk },
            Next::Show(menu) => Told::Menu(menu),
            Next::Key { wait, default } => Told::Key { wait_s: wait.seconds(), default },
            Next::NoSuchChoice(choice) => Told::NoSuchChoice(choice),
        }
    }

    /// What it runs on that picked this, or else the first of its vDisks.
    ///
    /// # Errors
    /// In words, why on nothing.
    pub fn disk(&self, picked: Option<Picked>) -> Result<BootDisk, String> {
        let none = "the device boots from its own disk, and has no vDisk that it could boot";
        let offer = self.offer()?.ok_or(none)?;
        let entry = match picked {
            None => offer.entries.first(),
            Some(Picked { vdisk, version: None }) => offer.entries.iter().find(|entry| entry.vdisk == vdisk),
            Some(Picked { vdisk, version: Some(version) }) => offer.entry(BootChoice::Vdisk(vdisk, version)),
        };
        let entry = entry.ok_or("what was chosen in the boot menu is there no more: restart the device")?;
        BootDisk::of(&self.snapshot, self.local, entry, self.pinned(), self.now)
    }

    /// What it is offered; `None`: its own disk alone.
    fn offer(&self) -> Result<Option<Offer>, String> {
        match self.snapshot.decide_for(self.device, self.server, self.now) {
            None => Err("the catalogue does not know the device any more".to_owned()),
            Some(Decision::Nothing(why)) => Err(why.to_string()),
            Some(Decision::LocalDisk(_)) => Ok(None),
            Some(Decision::Boot(mut offer)) => {
                if self.pinned().is_some() {
                    offer.others.clear();
                }
                Ok(Some(offer))
            }
        }
    }

    /// The version that the configuration holds the device at.
    fn pinned(&self) -> Option<VersionNumber> {
        let name = &self.snapshot.device(self.device)?.name;
        self.local.device(name.as_str()).and_then(|own| own.pinned)
    }
}

/// What is to be remembered of a choice.
fn picked(offer: &Offer, entry: &Entry) -> Option<Picked> {
    let place = offer.entries.iter().position(|usual| usual.choice() == entry.choice());
    let version = place.is_none().then_some(entry.number);
    (place != Some(0)).then_some(Picked { vdisk: entry.vdisk, version })
}
