//! Finding objects by what people and machines call them.
use super::cell::Cell;
use super::error::CatalogueError;
use super::list::ListQuery;
use super::reader::Reader;
use super::record::Record;
use crate::filter::Filter;
use crate::model::{
    Collection, Device, DeviceId, DeviceName, Farm, Grant, Id, Mac, Name, Owner, PersistentCache, Server,
    ServerName, Site, SiteId, Store, StoreId, Stored, Token, TokenDigest, User, UserId, UserName, Uuid,
    Vdisk, VdiskId, VdiskName, Version, VersionNumber, View,
};
use crate::rules::Refusal;

/// Makes a finder's answer an error where it is empty.
fn named<T: Record>(
    found: Option<Stored<T>>,
    name: impl std::fmt::Display,
) -> Result<Stored<T>, CatalogueError> {
    found.ok_or_else(|| CatalogueError::NotFound { kind: T::TABLE.kind, name: format!("\"{name}\"") })
}

/// Of each: [`CatalogueError::NotFound`] where there is none, or the database's error.
#[allow(clippy::missing_errors_doc, reason = "stated once for all of them")]
impl Reader<'_> {
    fn one<T: Record>(&mut self, clause: &str, values: &[Cell]) -> Result<Option<Stored<T>>, CatalogueError> {
        Ok(self.select(clause, values)?.pop())
    }

    /// That a device does not run, and keeps nothing under its name: [`Refusal::DeviceRuns`], [`Refusal::DeviceKeeps`].
    pub fn device_is_at_rest(&mut self, device: &Stored<Device>) -> Result<(), CatalogueError> {
        let name = || device.name.to_string();
        if let Some(lease) = self.leases_of(Owner::Device(device.id))?.first() {
            return Err(Refusal::DeviceRuns { device: name(), since: lease.since }.into());
        }
        let filter = Filter::equal("device-id", device.id);
        let query = ListQuery { filter, limit: 1, ..ListQuery::default() };
        match self.list::<PersistentCache>(&query)?.items.is_empty() {
            true => Ok(()),
            false => Err(Refusal::DeviceKeeps { device: name() }.into()),
        }
    }

    /// The farm, if it was set up.
    pub fn farm(&mut self) -> Result<Option<Stored<Farm>>, CatalogueError> {
        self.one("", &[])
    }

    /// A site by its name.
    pub fn site(&mut self, name: &Name) -> Result<Stored<Site>, CatalogueError> {
        named(self.one("WHERE t.name_key = ?", &[name.folded().into()])?, name)
    }

    /// A server by its name.
    pub fn server(&mut self, name: &ServerName) -> Result<Stored<Server>, CatalogueError> {
        named(self.one("WHERE t.name = ?", &[name.as_str().into()])?, name)
    }

    /// A store by its name.
    pub fn store(&mut self, name: &Name) -> Result<Stored<Store>, CatalogueError> {
        named(self.one("WHERE t.name_key = ?", &[name.folded().into()])?, name)
    }

    /// A vDisk by its name in a store.
    pub fn vdisk(&mut self, store: StoreId, name: &VdiskName) -> Result<Stored<Vdisk>, CatalogueError> {
        let values = [store.into(), name.folded().into()];
        named(self.one("WHERE t.store_id = ? AND t.name_key = ?", &values)?, name)
    }

    /// The vDisks of this name, of which each store can have one.
    pub fn vdisks_named(&mut self, name: &VdiskName) -> Result<Vec<Stored<Vdisk>>, CatalogueError> {
        self.select("WHERE t.name_key = ? ORDER BY t.id", &[name.folded().into()])
    }

    /// The versions of a vDisk, lowest number first.
    pub fn versions(&mut self, vdisk: VdiskId) -> Result<Vec<Stored<Version>>, CatalogueError> {
        self.select("WHERE t.vdisk_id = ? ORDER BY t.number", &[vdisk.into()])
    }

    /// A version by its number.
    pub fn version(
        &mut self,
        vdisk: VdiskId,
        number: VersionNumber,
    ) -> Result<Stored<Version>, CatalogueError> {
        let values = [vdisk.into(), i64::from(number.get()).into()];
        named(self.one("WHERE t.vdisk_id = ? AND t.number = ?", &values)?, number)
    }

    /// A collection by its name in a site.
    pub fn collection(&mut self, site: SiteId, name: &Name) -> Result<Stored<Collection>, CatalogueError> {
        let values = [site.into(), name.folded().into()];
        named(self.one("WHERE t.site_id = ? AND t.name_key = ?", &values)?, name)
    }

    /// The collection of a site that takes newcomers, if one does.
    pub fn newcomers(&mut self, site: SiteId) -> Result<Option<Stored<Collection>>, CatalogueError> {
        self.one("WHERE t.newcomers_of = ?", &[site.into()])
    }

    /// A device by its name.
    pub fn device(&mut self, name: &DeviceName) -> Result<Stored<Device>, CatalogueError> {
        named(self.one("WHERE t.name = ?", &[name.as_str().into()])?, name)
    }

    /// The device with this network card, if there is one.
    pub fn device_by_mac(&mut self, mac: Mac) -> Result<Option<Stored<Device>>, CatalogueError> {
        let clause = "WHERE t.id IN (SELECT owner FROM device_mac WHERE mac = ?)";
        self.one(clause, &[mac.to_string().into()])
    }

    /// The device with this UUID, if there is one.
    pub fn device_by_uuid(&mut self, uuid: Uuid) -> Result<Option<Stored<Device>>, CatalogueError> {
        self.one("WHERE t.uuid = ?", &[uuid.to_string().into()])
    }

    /// The devices that have this vDisk.
    pub fn devices_with(&mut self, vdisk: VdiskId) -> Result<Vec<Stored<Device>>, CatalogueError> {
        let clause = "WHERE t.id IN (SELECT owner FROM device_disk WHERE vdisk_id = ?) ORDER BY t.name";
        self.select(clause, &[vdisk.into()])
    }

    /// The persistent write cache of a device on a vDisk, if there is one.
    pub fn persistent_cache(
        &mut self,
        device: DeviceId,
        vdisk: VdiskId,
    ) -> Result<Option<Stored<PersistentCache>>, CatalogueError> {
        self.one("WHERE t.device_id = ? AND t.vdisk_id = ?", &[device.into(), vdisk.into()])
    }

    /// A view by its name.
    pub fn view(&mut self, name: &Name) -> Result<Stored<View>, CatalogueError> {
        named(self.one("WHERE t.name_key = ?", &[name.folded().into()])?, name)
    }

    /// A user by name.
    pub fn user(&mut self, name: &UserName) -> Result<Stored<User>, CatalogueError> {
        named(self.one("WHERE t.name = ?", &[name.as_str().into()])?, name)
    }

    /// The roles of a user.
    pub fn grants(&mut self, user: UserId) -> Result<Vec<Stored<Grant>>, CatalogueError> {
        self.select("WHERE t.person_id = ? ORDER BY t.id", &[user.into()])
    }

    /// The tokens of a user.
    pub fn tokens(&mut self, user: UserId) -> Result<Vec<Stored<Token>>, CatalogueError> {
        self.select("WHERE t.person_id = ? ORDER BY t.id", &[user.into()])
    }

    /// The token with this digest, if there is one.
    pub fn token(&mut self, digest: TokenDigest) -> Result<Option<Stored<Token>>, CatalogueError> {
        self.one("WHERE t.digest = ?", &[Cell::Bytes(digest.0.to_vec())])
    }

    /// What an object is called.
    pub fn name_of<T: Record>(&mut self, id: Id<T>) -> Result<String, CatalogueError> {
        self.label(T::TABLE, id.get())
    }
}
