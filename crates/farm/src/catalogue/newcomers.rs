//! Machines that add themselves.
use super::change::Change;
use super::error::CatalogueError;
use crate::model::{CollectionId, Description, Device, DeviceName, Mac, Macs, Stored, Uuid};
use crate::rules::Refusal;
use crate::rules::newcomers::next_name;

impl Change<'_> {
    /// Makes a device of a machine that nobody knows, in a collection that takes newcomers, with the profile of the
    /// collection's template. A machine that was added meanwhile, by another server, is given as it is.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] where the collection takes none or has no name left, or the database's.
    pub fn admit(
        &mut self,
        mac: Mac,
        uuid: Option<Uuid>,
        collection: CollectionId,
    ) -> Result<Stored<Device>, CatalogueError> {
        self.admit_as(mac, uuid, collection, None)
    }

    /// As [`admit`](Self::admit), by this name if no device has it by now.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub fn admit_as(
        &mut self,
        mac: Mac,
        uuid: Option<Uuid>,
        collection: CollectionId,
        wanted: Option<&DeviceName>,
    ) -> Result<Stored<Device>, CatalogueError> {
        if let Some(known) = self.device_by_mac(mac)? {
            return Ok(known);
        }
        let collection = self.get(collection)?;
        let pattern = collection.newcomers.as_ref().ok_or(Refusal::NoNewcomers)?;
        let rows = self.reader.tx.query("SELECT name FROM device", &[])?;
        let names: Result<Vec<String>, _> = rows.into_iter().map(|mut row| row.text()).collect();
        let names = names.map_err(|bad| self.damaged_at("device", &bad))?;
        let free = wanted.filter(|wanted| !names.iter().any(|name| name == wanted.as_str()));
        let name = match free {
            Some(wanted) => wanted.clone(),
            None => next_name(pattern, names.iter().map(String::as_str))?,
        };
        let profile = match collection.template {
            Some(template) => self.get(template)?.value.profile,
            None => Default::default(),
        };
        // A UUID that another device has tells nothing: boards with the same one exist.
        let uuid = match uuid {
            Some(uuid) if self.device_by_uuid(uuid)?.is_none() => Some(uuid),
            _ => None,
        };
        self.create(Device {
            macs: Macs::new(vec![mac])?,
            uuid,
            profile,
            ..Device::plain(name, collection.id, Description::new("added itself")?)
        })
    }
}
