//! Target devices: what machines get, alone, as tables, and copied from one to others.
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use control::{Caller, Control, ControlError};
use farm::catalogue::{CatalogueError, ImportOptions, Imported, Reader};
use farm::csv::devices::parse;
use farm::filter::Filter;
use farm::model::{
    ByteSize, Chap, ChapUser, Collection, Description, Device, DeviceDisk, DeviceKind, DeviceLimits,
    DeviceName, DeviceProfile, Disks, GuestSettings, InitiatorName, LocalDisk, Mac, Macs, MenuText,
    ObjectKind, Personality, PersonalityKey, PersonalityValue, SecretName, SshKeys, Stored, UserData, Uuid,
    Vdisk, WriteCacheKind, WriteCacheOverride,
};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::menu::MenuBody;
use super::object::{Resource, Visible, Which, any, operations, seen};
use super::text;
use crate::asked::Asked;
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, Word, find, resolve};

const CSV: &str = "text/csv";
/// The most devices that properties are copied to at once.
const MAX_COPIES: usize = 10_000;

pub(super) fn all() -> Vec<Operation> {
    let mut all = operations::<Devices>(Which::ALL);
    all.extend([
        Operation::post(
            "/v1/devices/import",
            "importDevices",
            "devices",
            "Makes and changes devices by a table: all rows, or none and every error is told.",
            import,
        )
        .takes_text(CSV, farm::csv::MAX_BYTES)
        .query("dry_run", ParameterKind::Flag, "tells what would be done, and does nothing")
        .query("update", ParameterKind::Flag, "changes devices that are there already")
        .query("make_collections", ParameterKind::Flag, "makes collections that are not there")
        .gives::<ImportAnswer>(),
        Operation::get(
            "/v1/devices/export",
            "exportDevices",
            "devices",
            "Gives devices as a table, which can be imported again.",
            export,
        )
        .filtered()
        .gives_text(CSV),
        Operation::post(
            "/v1/devices/{device}/copy-profile",
            "copyDeviceProfile",
            "devices",
            "Gives other devices what this one gets: kind, vDisks, local disk, boot menu, write cache, limits, personality, user data.",
            copy_profile,
        )
        .takes::<CopyBody>()
        .gives::<CopyAnswer>(),
    ]);
    all
}

/// A machine that boots from the farm. A new one of which nothing is said from `kind` on gets what its collection's
/// template gets.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeviceBody {
    /// Its name; no two devices have the same.
    name: Plain<DeviceName>,
    /// The collection that it is in.
    collection: Ref,
    /// What somebody wrote about it.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// The addresses of its network cards; no two devices share one.
    #[serde(default)]
    #[schemars(length(max = 8))]
    macs: Vec<Plain<Mac>>,
    /// Its SMBIOS UUID; no two devices share one.
    #[serde(default)]
    uuid: Option<Plain<Uuid>>,
    /// The address that DHCP gives it; null: one of the pool.
    #[serde(default)]
    address: Option<Plain<Ipv4Addr>>,
    /// The name that its initiator must use; null: one made of its own name.
    #[serde(default)]
    initiator: Option<Plain<InitiatorName>>,
    /// What its initiator must prove.
    #[serde(default)]
    chap: Option<ChapBody>,
    /// A disabled device is not given anything to boot.
    #[serde(default)]
    disabled: bool,
    /// Which versions it is entitled to; production where nothing is said.
    #[serde(default)]
    kind: Option<Word<DeviceKind>>,
    /// Its vDisks, in the order of the boot menu.
    #[serde(default)]
    #[schemars(length(max = 9))]
    disks: Option<Vec<DiskBody>>,
    /// Whether the boot menu offers the device's own disk, and whether that comes first; no where nothing is said.
    #[serde(default)]
    local_disk: Option<Word<LocalDisk>>,
    /// What differs from what its collection says of boot menus.
    #[serde(default)]
    menu: Option<MenuBody>,
    /// What differs from the write cache that the vDisk says.
    #[serde(default)]
    write_cache: Option<OverrideBody>,
    /// Bounds on what it may take.
    #[serde(default)]
    limits: Option<LimitsBody>,
    /// What is told to the system that runs on it.
    #[serde(default)]
    personality: Option<BTreeMap<String, String>>,
    /// User data for cloud-init, a template: `{{device}}`, `{{personality.Room|none}}`; null: that of the collection.
    #[serde(default)]
    user_data: Option<Plain<UserData>>,
    /// Public keys that may log in over SSH, besides those of the collection.
    #[serde(default)]
    #[schemars(length(max = 32))]
    ssh_keys: Option<Vec<String>>,
}

/// What an initiator must prove: the user, and the name under which the secret is kept on the servers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Chap")]
pub(crate) struct ChapBody {
    /// The user.
    user: Plain<ChapUser>,
    /// Names the secret.
    secret: Plain<SecretName>,
}

/// One vDisk of a device.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DeviceDisk")]
pub(crate) struct DiskBody {
    /// Which.
    vdisk: Ref,
    /// What the device's boot menu calls it; null: as the vDisk says.
    #[serde(default)]
    menu_text: Option<Plain<MenuText>>,
    /// Not offered for the time being.
    #[serde(default)]
    disabled: bool,
}

/// What differs, for one device, from the write cache that its vDisk says.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "WriteCacheOverride")]
pub(crate) struct OverrideBody {
    /// Another kind.
    #[serde(default)]
    kind: Option<Word<WriteCacheKind>>,
    /// Another limit.
    #[serde(default)]
    limit_bytes: Option<u64>,
}

/// Bounds on what a device may take; null: as much as there is.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DeviceLimits")]
pub(crate) struct LimitsBody {
    /// Bytes that it may read or write in a second.
    #[serde(default)]
    bytes_per_second: Option<u64>,
    /// Requests that it may make in a second.
    #[serde(default)]
    requests_per_second: Option<u32>,
}

/// What is told of a device besides.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DeviceMore {
    /// The site of its collection.
    site: Ref,
}

pub(crate) enum Devices {}

impl Resource for Devices {
    type Record = Device;
    type Body = DeviceBody;
    type More = DeviceMore;
    const NAME: &'static str = "Device";
    const ONE: &'static str = "a device";
    const PATH: &'static str = "/v1/devices";
    const PARAMETER: &'static str = "device";

    fn place(reader: &mut Reader<'_>, device: &Device) -> Result<Place, ControlError> {
        Ok(Place::of_collection(&reader.get(device.collection)?))
    }

    fn body(names: &mut Names, reader: &mut Reader<'_>, device: &Device) -> Result<DeviceBody, ControlError> {
        let profile = &device.profile;
        let mut disks = Vec::new();
        for disk in profile.disks.as_slice() {
            let DeviceDisk { vdisk, menu_text, disabled } = disk.clone();
            let vdisk = names.vdisk(reader, vdisk)?;
            disks.push(DiskBody { vdisk, menu_text: menu_text.map(Plain), disabled });
        }
        let chap = |Chap { user, secret }| ChapBody { user: Plain(user), secret: Plain(secret) };
        let values = profile.personality.values().iter();
        Ok(DeviceBody {
            name: Plain(device.name.clone()),
            collection: names.collection(reader, device.collection)?,
            description: Some(Plain(device.description.clone())),
            macs: device.macs.as_slice().iter().copied().map(Plain).collect(),
            uuid: device.uuid.map(Plain),
            address: device.address.map(Plain),
            initiator: device.initiator.clone().map(Plain),
            chap: device.chap.clone().map(chap),
            disabled: device.disabled,
            kind: Some(Word(profile.kind)),
            disks: Some(disks),
            local_disk: Some(Word(profile.local_disk)),
            menu: Some(MenuBody::of(profile.menu)),
            write_cache: Some(OverrideBody {
                kind: profile.write_cache.kind.map(Word),
                limit_bytes: profile.write_cache.limit.map(ByteSize::bytes),
            }),
            limits: Some(LimitsBody {
                bytes_per_second: profile.limits.bytes_per_second.map(ByteSize::bytes),
                requests_per_second: profile.limits.requests_per_second,
            }),
            personality: Some(values.map(|(key, value)| (key.to_string(), value.to_string())).collect()),
            user_data: profile.guest.user_data.clone().map(Plain),
            ssh_keys: Some(profile.guest.ssh_keys.clone().into()),
        })
    }

    fn more(
        names: &mut Names,
        reader: &mut Reader<'_>,
        device: &Stored<Device>,
    ) -> Result<DeviceMore, ControlError> {
        let site = reader.get(device.collection)?.site;
        Ok(DeviceMore { site: names.site(reader, site)? })
    }

    fn record(
        reader: &mut Reader<'_>,
        body: DeviceBody,
        old: Option<&Device>,
    ) -> Result<Device, ControlError> {
        let collection = resolve::<Collection>(reader, &body.collection, "collection")?;
        let says_what_it_gets = body.kind.is_some()
            || body.disks.is_some()
            || body.local_disk.is_some()
            || body.menu.is_some()
            || body.write_cache.is_some()
            || body.limits.is_some()
            || body.personality.is_some()
            || body.user_data.is_some()
            || body.ssh_keys.is_some();
        let profile = match collection.template {
            Some(template) if old.is_none() && !says_what_it_gets => reader.get(template)?.value.profile,
            _ => profile(reader, &body)?,
        };
        let macs = Macs::new(body.macs.into_iter().map(|mac| mac.0).collect());
        Ok(Device {
            name: body.name.0,
            collection: collection.id,
            description: text(body.description)?,
            macs: macs.map_err(|bad| ControlError::bad_value("macs", bad))?,
            uuid: body.uuid.map(|uuid| uuid.0),
            address: body.address.map(|address| address.0),
            initiator: body.initiator.map(|initiator| initiator.0),
            chap: body.chap.map(|chap| Chap { user: chap.user.0, secret: chap.secret.0 }),
            disabled: body.disabled,
            profile,
        })
    }

    fn may_become(
        reader: &mut Reader<'_>,
        old: &Stored<Device>,
        new: Option<&Device>,
    ) -> Result<(), ControlError> {
        // What it has at the moment is found by its name: it would be lost to it.
        if new.is_some_and(|new| new.name == old.name) {
            return Ok(());
        }
        Ok(reader.device_is_at_rest(old)?)
    }

    fn inside(visible: &Visible) -> Option<Filter> {
        let sites = visible.sites.iter().map(|site| Filter::equal("site-id", site.id));
        let apart = visible.collections.iter();
        let apart = apart.filter(|one| !visible.sites.iter().any(|site| site.id == one.site));
        Some(any(sites.chain(apart.map(|one| Filter::equal("collection-id", one.id))).collect()))
    }
}

fn profile(reader: &mut Reader<'_>, body: &DeviceBody) -> Result<DeviceProfile, ControlError> {
    let mut disks = Vec::new();
    for (place, disk) in body.disks.iter().flatten().enumerate() {
        let vdisk = resolve::<Vdisk>(reader, &disk.vdisk, &format!("disks[{place}].vdisk"))?;
        let menu_text = disk.menu_text.clone().map(|text| text.0);
        disks.push(DeviceDisk { vdisk: vdisk.id, menu_text, disabled: disk.disabled });
    }
    let size = |bytes: Option<u64>, field: &str| {
        let size = bytes.map(ByteSize::new).transpose();
        size.map_err(|bad| ControlError::bad_value(field, bad))
    };
    let cache = body.write_cache.as_ref();
    let limits = body.limits.as_ref();
    let bytes_per_second = limits.and_then(|limits| limits.bytes_per_second);
    Ok(DeviceProfile {
        kind: body.kind.map(|kind| kind.0).unwrap_or_default(),
        disks: Disks::new(disks).map_err(|bad| ControlError::bad_value("disks", bad))?,
        local_disk: body.local_disk.map(|local| local.0).unwrap_or_default(),
        menu: MenuBody::read(body.menu.as_ref())?,
        write_cache: WriteCacheOverride {
            kind: cache.and_then(|cache| cache.kind).map(|kind| kind.0),
            limit: size(cache.and_then(|cache| cache.limit_bytes), "write_cache.limit_bytes")?,
        },
        limits: DeviceLimits {
            bytes_per_second: size(bytes_per_second, "limits.bytes_per_second")?,
            requests_per_second: limits.and_then(|limits| limits.requests_per_second),
        },
        personality: personality(body.personality.iter().flatten())?,
        guest: guest(body.user_data.clone(), body.ssh_keys.clone().unwrap_or_default())?,
    })
}

/// What operating systems are told, of a device or a collection.
pub(super) fn guest(
    user_data: Option<Plain<UserData>>,
    ssh_keys: Vec<String>,
) -> Result<GuestSettings, ControlError> {
    let ssh_keys = SshKeys::new(ssh_keys).map_err(|bad| ControlError::bad_value("ssh_keys", bad))?;
    Ok(GuestSettings { user_data: user_data.map(|data| data.0), ssh_keys })
}

fn personality<'a>(
    said: impl Iterator<Item = (&'a String, &'a String)>,
) -> Result<Personality, ControlError> {
    let mut values = BTreeMap::new();
    for (key, value) in said {
        let bad = |bad| ControlError::bad_value("personality", bad);
        values.insert(PersonalityKey::new(key).map_err(bad)?, PersonalityValue::new(value).map_err(bad)?);
    }
    Personality::new(values).map_err(|bad| ControlError::bad_value("personality", bad))
}

/// What an import did, or would do.
#[derive(Debug, Serialize, JsonSchema)]
struct ImportAnswer {
    /// Whether nothing was done.
    dry_run: bool,
    /// Devices that were made.
    made: usize,
    /// Devices that were changed.
    changed: usize,
    /// Devices that were so already.
    same: usize,
    /// Collections that were made.
    collections: usize,
}

fn import(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let dry_run = asked.flag("dry_run")?;
    let options =
        ImportOptions { update: asked.flag("update")?, make_collections: asked.flag("make_collections")? };
    let rows = parse(&asked.body).map_err(|errors| Problem::table(&errors))?;
    let caller = asked.caller()?;
    changes_devices(caller, asked.control())?;
    let mut errors = Vec::new();
    let mut work = |change: &mut farm::catalogue::Change<'_>| {
        change.import_devices(&rows, options, &|kind, place| caller.may(Action::Change, kind, place)).map_err(
            |error| {
                if let CatalogueError::BadTable(table) = &error {
                    errors.clone_from(&table.0);
                }
                ControlError::from(error)
            },
        )
    };
    let control = asked.control();
    let done = if dry_run { control.rehearse(caller, &mut work) } else { control.change(caller, &mut work) };
    let Imported { made, changed, same, collections } = match done {
        Ok(imported) => imported,
        Err(_) if !errors.is_empty() => return Err(Problem::table(&errors)),
        Err(error) => return Err(error.into()),
    };
    Reply::json(&ImportAnswer { dry_run, made, changed, same, collections })
}

/// Refuses those who may change devices nowhere; of the others each row tells where.
fn changes_devices(caller: &Caller, control: &Control) -> Result<(), ControlError> {
    let snapshot = control.snapshot();
    let sites = snapshot.sites().map(|site| Place::Site(site.id));
    let places = sites.chain(snapshot.collections().map(Place::of_collection));
    Ok(caller.may_in_any(Action::Change, ObjectKind::Device, places)?)
}

fn export(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let filter = asked.filter()?;
    let caller = asked.caller()?;
    let table = asked.control().read(|reader| {
        let filter = seen::<Devices>(reader, caller, filter.clone())?;
        Ok(reader.export_devices(&filter)?)
    })?;
    Ok(Reply::text("text/csv; charset=utf-8", table))
}

/// Which devices are to get the same.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CopyBody {
    /// The devices.
    #[schemars(length(min = 1, max = 10_000))]
    to: Vec<Ref>,
}

/// What copying did.
#[derive(Debug, Serialize, JsonSchema)]
struct CopyAnswer {
    /// Devices that were changed.
    changed: usize,
    /// Devices that were so already.
    same: usize,
}

fn copy_profile(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let CopyBody { to } = asked.body()?;
    if to.is_empty() || to.len() > MAX_COPIES {
        let why = format!("name 1 to {MAX_COPIES} devices");
        return Err(ControlError::bad_value("to", why).into());
    }
    let (caller, wanted) = (asked.caller()?, asked.parameter("device")?);
    let answer = asked.control().change(caller, |change| {
        let from = find::<Device>(change, wanted)?;
        caller.may(Action::See, ObjectKind::Device, Devices::place(change, &from.value)?)?;
        let mut answer = CopyAnswer { changed: 0, same: 0 };
        for (place, reference) in to.iter().enumerate() {
            let device = resolve::<Device>(change, reference, &format!("to[{place}]"))?;
            caller.may(Action::Change, ObjectKind::Device, Devices::place(change, &device.value)?)?;
            let new = Device { profile: from.profile.clone(), ..device.value };
            let new = change.update_as("copy-profile", device.id, device.revision, new)?;
            let counter =
                if new.revision == device.revision { &mut answer.same } else { &mut answer.changed };
            *counter = counter.saturating_add(1);
        }
        Ok(answer)
    })?;
    Reply::json(&answer)
}
