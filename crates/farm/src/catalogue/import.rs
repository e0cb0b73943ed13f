//! Devices from and to tables. An import is one change: all rows become true, or none does and every error is told.
use std::collections::HashMap;

use super::change::Change;
use super::error::CatalogueError;
use super::list::{ListQuery, MAX_PAGE};
use super::reader::Reader;
use crate::csv::BadCell;
use crate::csv::devices::{COLUMNS, DeviceRow, MAX_ERRORS, cells};
use crate::filter::Filter;
use crate::model::{
    Collection, CollectionId, Description, Device, DeviceDisk, DeviceProfile, Disks, Name, ObjectKind, Site,
    SiteId, Store, StoreId, Stored, Vdisk, VdiskId, VdiskName,
};
use crate::rules::permission::{Denied, Place};

/// Whether whoever imports may change objects of a kind in a place.
pub type MayChange<'a> = &'a dyn Fn(ObjectKind, Place) -> Result<(), Denied>;

/// What an import may do besides making devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportOptions {
    /// Change devices that are there already; without it, they are errors.
    pub update: bool,
    /// Make collections that are not there, in sites that are.
    pub make_collections: bool,
}

/// What an import did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Devices that were made.
    pub made: usize,
    /// Devices that were changed.
    pub changed: usize,
    /// Devices that were so already.
    pub same: usize,
    /// Collections that were made.
    pub collections: usize,
}

/// What is wrong with a table, place by place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTable(pub Vec<BadCell>);

impl std::error::Error for BadTable {}

impl std::fmt::Display for BadTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 5;
        write!(f, "the table has {} error(s), and nothing of it was imported", self.0.len())?;
        self.0.iter().take(SHOWN).try_for_each(|error| write!(f, "; {error}"))?;
        if self.0.len() > SHOWN { f.write_str("; ...") } else { Ok(()) }
    }
}

/// What rows name, by what they name it.
#[derive(Default)]
struct Known {
    sites: HashMap<String, SiteId>,
    collections: HashMap<(SiteId, String), CollectionId>,
    places: HashMap<CollectionId, Place>,
    stores: HashMap<StoreId, String>,
    vdisks: HashMap<String, Vec<(StoreId, VdiskId)>>,
    templates: HashMap<CollectionId, DeviceProfile>,
    imported: Imported,
}

impl Known {
    fn add(&mut self, collection: &Stored<Collection>) {
        self.collections.insert((collection.site, collection.name.folded()), collection.id);
        self.places.insert(collection.id, Place::of_collection(collection));
    }
}

/// Why a row cannot be imported: its column, and why.
type BadRow = (&'static str, String);

enum RowError {
    Bad(BadRow),
    Fatal(CatalogueError),
}

impl From<BadRow> for RowError {
    fn from(bad: BadRow) -> Self {
        Self::Bad(bad)
    }
}

/// Those that are about the row are told with it; a database that is gone ends the import.
impl From<CatalogueError> for RowError {
    fn from(error: CatalogueError) -> Self {
        match error {
            CatalogueError::Taken { what, .. } => {
                let column = match what {
                    "MAC address" => "mac",
                    "UUID" => "uuid",
                    "address" => "address",
                    _ => "name",
                };
                Self::Bad((column, error.to_string()))
            }
            error @ CatalogueError::Database(_) => Self::Fatal(error),
            error => Self::Bad(("name", error.to_string())),
        }
    }
}

impl Change<'_> {
    /// Imports devices, where whoever does may change them: each at its place, and where it was before.
    ///
    /// # Errors
    /// [`CatalogueError::BadTable`] with every row that cannot be imported, or the database's.
    pub fn import_devices(
        &mut self,
        rows: &[DeviceRow],
        options: ImportOptions,
        may: MayChange<'_>,
    ) -> Result<Imported, CatalogueError> {
        let mut known = self.known()?;
        let mut errors = Vec::new();
        for row in rows {
            match self.import_device(row, options, may, &mut known) {
                Ok(()) => {}
                Err(RowError::Fatal(error)) => return Err(error),
                Err(RowError::Bad((column, why))) => {
                    errors.push(BadCell { line: row.line, column: Some(column.to_owned()), why });
                }
            }
            if errors.len() >= MAX_ERRORS {
                break;
            }
        }
        if errors.is_empty() { Ok(known.imported) } else { Err(CatalogueError::BadTable(BadTable(errors))) }
    }

    fn import_device(
        &mut self,
        row: &DeviceRow,
        options: ImportOptions,
        may: MayChange<'_>,
        known: &mut Known,
    ) -> Result<(), RowError> {
        let old = match self.device(&row.name) {
            Ok(old) => Some(old),
            Err(CatalogueError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if old.is_some() && !options.update {
            let why = format!("device {} is there already; to change it, allow updates", row.name);
            return Err(("name", why).into());
        }
        let was = old.as_ref().map(|old| old.collection);
        if let Some(was) = was {
            may_change(was, "name", may, known)?;
        }
        let place = self.place(row, options, may, known)?;
        if let Some(place) = place.filter(|place| Some(*place) != was) {
            may_change(place, "collection", may, known)?;
        }
        let Some(old) = old else {
            let place = place.ok_or(("collection", "a new device needs a collection".to_owned()))?;
            let profile = self.template(place, known)?;
            let device = filled(row, blank(row, place, profile)?, known)?;
            self.create(device)?;
            known.imported.made = known.imported.made.saturating_add(1);
            return Ok(());
        };
        let mut device = filled(row, old.value.clone(), known)?;
        device.collection = place.unwrap_or(device.collection);
        let new = self.update_as("import", old.id, old.revision, device)?;
        let counter =
            if new.revision == old.revision { &mut known.imported.same } else { &mut known.imported.changed };
        *counter = counter.saturating_add(1);
        Ok(())
    }

    /// The collection that a row names, which is made if that is allowed.
    fn place(
        &mut self,
        row: &DeviceRow,
        options: ImportOptions,
        may: MayChange<'_>,
        known: &mut Known,
    ) -> Result<Option<CollectionId>, RowError> {
        let Some(name) = &row.collection else {
            return match &row.site {
                Some(_) => Err(("collection", "a site is named without a collection".to_owned()).into()),
                None => Ok(None),
            };
        };
        let key = name.folded();
        let Some(site) = &row.site else {
            let mut found = known.collections.iter().filter(|((_, other), _)| *other == key);
            return match (found.next(), found.next()) {
                (Some((_, collection)), None) => Ok(Some(*collection)),
                (None, _) => Err(("collection", format!("no site has a collection {name}")).into()),
                (Some(_), Some(_)) => {
                    Err(("site", format!("several sites have a collection {name}: name the site")).into())
                }
            };
        };
        let id =
            *known.sites.get(&site.folded()).ok_or_else(|| ("site", format!("there is no site {site}")))?;
        if let Some(collection) = known.collections.get(&(id, key)) {
            return Ok(Some(*collection));
        }
        if !options.make_collections {
            let why =
                format!("site {site} has no collection {name}; make it, or allow that collections are made");
            return Err(("collection", why).into());
        }
        may(ObjectKind::Collection, Place::Site(id)).map_err(|denied| ("collection", denied.to_string()))?;
        let description = Description::new("").map_err(CatalogueError::from)?;
        let (name, site) = (name.clone(), id);
        let new = Collection::plain(name, site, description);
        let collection = self.create(new)?;
        known.imported.collections = known.imported.collections.saturating_add(1);
        known.add(&collection);
        Ok(Some(collection.id))
    }

    fn template(&mut self, place: CollectionId, known: &mut Known) -> Result<DeviceProfile, RowError> {
        if let Some(profile) = known.templates.get(&place) {
            return Ok(profile.clone());
        }
        let template = self.get(place)?.template;
        let profile = match template {
            Some(device) => self.get(device)?.value.profile,
            None => DeviceProfile::default(),
        };
        known.templates.insert(place, profile.clone());
        Ok(profile)
    }
}

impl Reader<'_> {
    fn known(&mut self) -> Result<Known, CatalogueError> {
        let mut known = Known::default();
        for site in self.all::<Site>()? {
            known.sites.insert(site.name.folded(), site.id);
        }
        for collection in self.all::<Collection>()? {
            known.add(&collection);
        }
        for store in self.all::<Store>()? {
            known.stores.insert(store.id, store.name.folded());
        }
        for vdisk in self.all::<Vdisk>()? {
            known.vdisks.entry(vdisk.name.folded()).or_default().push((vdisk.store, vdisk.id));
        }
        Ok(known)
    }

    /// The devices that fit a filter as a table, which can be imported again.
    ///
    /// # Errors
    /// [`CatalogueError::BadFilter`], or the database's.
    pub fn export_devices(&mut self, filter: &Filter) -> Result<String, CatalogueError> {
        let sites: HashMap<SiteId, Name> =
            self.all::<Site>()?.into_iter().map(|site| (site.id, site.value.name)).collect();
        let collections: HashMap<CollectionId, Stored<Collection>> =
            self.all::<Collection>()?.into_iter().map(|collection| (collection.id, collection)).collect();
        let stores: HashMap<StoreId, Name> =
            self.all::<Store>()?.into_iter().map(|store| (store.id, store.value.name)).collect();
        let vdisks: HashMap<VdiskId, Stored<Vdisk>> =
            self.all::<Vdisk>()?.into_iter().map(|vdisk| (vdisk.id, vdisk)).collect();
        let mut table = String::new();
        crate::csv::write(&mut table, &COLUMNS.map(str::to_owned));
        let mut query = ListQuery { filter: filter.clone(), limit: MAX_PAGE, ..ListQuery::default() };
        loop {
            let page = self.list::<Device>(&query)?;
            for device in &page.items {
                let Some(collection) = collections.get(&device.collection) else { continue };
                let Some(site) = sites.get(&collection.site) else { continue };
                let disks = device.profile.disks.as_slice().iter().filter_map(|disk| vdisks.get(&disk.vdisk));
                let names = disks.filter_map(|vdisk| {
                    stores.get(&vdisk.store).map(|store| format!("{store}/{}", vdisk.name))
                });
                let row = cells(device, site, &collection.name, &names.collect::<Vec<_>>());
                crate::csv::write(&mut table, &row);
            }
            query.after = page.next;
            if query.after.is_none() {
                return Ok(table);
            }
        }
    }
}

/// Refuses a row that is about a device of a collection in which its devices may not be changed.
fn may_change(
    collection: CollectionId,
    column: &'static str,
    may: MayChange<'_>,
    known: &Known,
) -> Result<(), RowError> {
    let place = known.places.get(&collection).copied().unwrap_or(Place::Farm);
    Ok(may(ObjectKind::Device, place).map_err(|denied| (column, denied.to_string()))?)
}

fn blank(row: &DeviceRow, collection: CollectionId, profile: DeviceProfile) -> Result<Device, RowError> {
    let description = Description::new("").map_err(CatalogueError::from)?;
    Ok(Device { profile, ..Device::plain(row.name.clone(), collection, description) })
}

/// The device, with what the row says.
fn filled(row: &DeviceRow, mut device: Device, known: &Known) -> Result<Device, RowError> {
    if let Some(vdisks) = &row.vdisks {
        device.profile.disks = disks(vdisks, &device.profile.disks, known)?;
    }
    let profile = &mut device.profile;
    profile.kind = row.kind.unwrap_or(profile.kind);
    profile.local_disk = row.local_disk.unwrap_or(profile.local_disk);
    profile.write_cache.kind = row.write_cache.or(profile.write_cache.kind);
    profile.write_cache.limit = row.write_cache_limit.or(profile.write_cache.limit);
    profile.menu.show = row.menu.or(profile.menu.show);
    profile.menu.wait = row.menu_wait.or(profile.menu.wait);
    if let Some(keys) = &row.ssh_keys {
        profile.guest.ssh_keys = keys.clone();
    }
    if let Some(data) = &row.user_data {
        profile.guest.user_data = Some(data.clone());
    }
    device.macs = row.macs.clone().unwrap_or(device.macs);
    device.disabled = row.disabled.unwrap_or(device.disabled);
    device.description = row.description.clone().unwrap_or(device.description);
    device.uuid = row.uuid.or(device.uuid);
    device.address = row.address.or(device.address);
    Ok(device)
}

/// The vDisks that a row names; those that the device has already stay as they are set up there.
fn disks(vdisks: &[(Option<Name>, VdiskName)], present: &Disks, known: &Known) -> Result<Disks, RowError> {
    let mut disks = Vec::new();
    for (store, name) in vdisks {
        let all = known.vdisks.get(&name.folded()).map(Vec::as_slice).unwrap_or_default();
        let store = store.as_ref().map(Name::folded);
        let in_store =
            |(id, _): &&(StoreId, VdiskId)| store.is_none() || known.stores.get(id) == store.as_ref();
        let mut found = all.iter().filter(in_store);
        let vdisk = match (found.next(), found.next()) {
            (Some((_, vdisk)), None) => *vdisk,
            (None, _) => {
                return Err(("vdisks", format!("there is no vDisk {name} in that store, or in any")).into());
            }
            (Some(_), Some(_)) => {
                return Err(
                    ("vdisks", format!("several stores have a vDisk {name}: write store/{name}")).into()
                );
            }
        };
        let known = present.as_slice().iter().find(|disk| disk.vdisk == vdisk).cloned();
        disks.push(known.unwrap_or(DeviceDisk { vdisk, menu_text: None, disabled: false }));
    }
    Disks::new(disks).map_err(|error| ("vdisks", error.to_string()).into())
}
