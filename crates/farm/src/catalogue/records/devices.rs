//! Devices in their tables.
use super::super::cell::{BadRow, Cell, Row};
use super::super::record::{Child, Record, Reference, Table, Unique};
use super::menus::menu;
use super::vdisks::{size, words};
use crate::filter::{Field, FieldKind};
use crate::model::{
    ByteSize, Chap, Choice, Device, DeviceDisk, DeviceKind, DeviceLimits, DeviceProfile, Disks,
    GuestSettings, LocalDisk, Macs, ObjectKind, Personality, Text, UserData, WriteCacheKind,
    WriteCacheOverride,
};

const MACS: usize = 0;
const DISKS: usize = 1;
const PERSONALITY: usize = 2;

impl Record for Device {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Device,
        name: "device",
        columns: &[
            "name",
            "collection_id",
            "description",
            "uuid",
            "address",
            "initiator",
            "chap_user",
            "chap_secret",
            "disabled",
            "kind",
            "local_disk",
            "cache_kind",
            "cache_limit",
            "bytes_per_second",
            "requests_per_second",
            "user_data",
            "ssh_keys",
            "menu_show",
            "menu_wait",
        ],
        unique: &[
            Unique { what: "name", columns: &["name"] },
            Unique { what: "UUID", columns: &["uuid"] },
            Unique { what: "address", columns: &["address"] },
            Unique { what: "initiator name", columns: &["initiator"] },
        ],
        references: &[Reference { column: "collection_id", what: "collection", to: ObjectKind::Collection }],
        children: &[
            Child {
                table: "device_mac",
                columns: &["mac"],
                unique: Some(("mac", "MAC address")),
                references: &[],
            },
            Child {
                table: "device_disk",
                columns: &["vdisk_id", "menu_text", "disabled"],
                unique: None,
                references: &[Reference { column: "vdisk_id", what: "vDisk", to: ObjectKind::Vdisk }],
            },
            Child { table: "device_personality", columns: &["name", "value"], unique: None, references: &[] },
        ],
        label: "t.name",
        joins: "JOIN collection ON collection.id = t.collection_id JOIN site ON site.id = collection.site_id",
        fields: &[
            Field::row("name", FieldKind::Folded, "t.name"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("collection", FieldKind::Folded, "collection.name_key"),
            Field::row("collection-id", FieldKind::Number, "t.collection_id"),
            Field::row("site", FieldKind::Folded, "site.name_key"),
            Field::row("site-id", FieldKind::Number, "collection.site_id"),
            Field::row("description", FieldKind::Text, "lower(t.description)"),
            Field::row("kind", FieldKind::Word(words::<DeviceKind>), "t.kind"),
            Field::row("disabled", FieldKind::YesNo, "t.disabled"),
            Field::row("uuid", FieldKind::Uuid, "coalesce(t.uuid, '')"),
            Field::row("address", FieldKind::Text, "coalesce(t.address, '')"),
            Field::row("local-disk", FieldKind::Word(words::<LocalDisk>), "t.local_disk"),
            Field::row("write-cache", FieldKind::Word(words::<WriteCacheKind>), "coalesce(t.cache_kind, '')"),
            Field::rows(
                "mac",
                FieldKind::Mac,
                "SELECT 1 FROM device_mac WHERE device_mac.owner = t.id",
                "device_mac.mac",
            ),
            Field::rows(
                "vdisk",
                FieldKind::Folded,
                "SELECT 1 FROM device_disk JOIN vdisk ON vdisk.id = device_disk.vdisk_id WHERE device_disk.owner = t.id",
                "vdisk.name_key",
            ),
            Field::rows(
                "vdisk-id",
                FieldKind::Number,
                "SELECT 1 FROM device_disk WHERE device_disk.owner = t.id",
                "device_disk.vdisk_id",
            ),
            // `personality = "room=B12"`, `personality ~ "room=*"`.
            Field::rows(
                "personality",
                FieldKind::Text,
                "SELECT 1 FROM device_personality WHERE device_personality.owner = t.id",
                "lower(device_personality.name || '=' || device_personality.value)",
            ),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        let profile = &self.profile;
        vec![
            self.name.as_str().into(),
            self.collection.into(),
            self.description.as_str().into(),
            self.uuid.map(|uuid| uuid.to_string()).into(),
            self.address.map(|address| address.to_string()).into(),
            self.initiator.as_ref().map(Text::as_str).into(),
            self.chap.as_ref().map(|chap| chap.user.as_str()).into(),
            self.chap.as_ref().map(|chap| chap.secret.as_str()).into(),
            self.disabled.into(),
            profile.kind.word().into(),
            profile.local_disk.word().into(),
            profile.write_cache.kind.map(Choice::word).into(),
            profile.write_cache.limit.map(ByteSize::signed).into(),
            profile.limits.bytes_per_second.map(ByteSize::signed).into(),
            profile.limits.requests_per_second.map(i64::from).into(),
            profile.guest.user_data.as_ref().map(UserData::as_str).into(),
            profile.guest.ssh_keys.lines().into(),
            profile.menu.show.map(Choice::word).into(),
            profile.menu.wait.map(|wait| i64::from(wait.seconds())).into(),
        ]
    }

    fn child_rows(&self, child: usize) -> Vec<Vec<Cell>> {
        match child {
            MACS => self.macs.as_slice().iter().map(|mac| vec![mac.to_string().into()]).collect(),
            DISKS => self.profile.disks.as_slice().iter().map(disk_cells).collect(),
            PERSONALITY => {
                let values = self.profile.personality.values();
                values.iter().map(|(name, value)| vec![name.as_str().into(), value.as_str().into()]).collect()
            }
            _ => Vec::new(),
        }
    }

    fn from_rows(row: &mut Row, children: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let (name, collection, description) = (row.parsed()?, row.id()?, row.parsed()?);
        let (uuid, address, initiator) =
            (row.optional_parsed()?, row.optional_parsed()?, row.optional_parsed()?);
        let chap = match (row.optional_parsed()?, row.optional_parsed()?) {
            (Some(user), Some(secret)) => Some(Chap { user, secret }),
            _ => None,
        };
        let disabled = row.yes_no()?;
        let (kind, local_disk) = (row.choice()?, row.choice()?);
        let write_cache = WriteCacheOverride { kind: row.optional_choice()?, limit: size(row)? };
        let limits =
            DeviceLimits { bytes_per_second: size(row)?, requests_per_second: row.optional_small()? };
        let guest = guest(row)?;
        let menu = menu(row)?;
        let mut lists = children.iter_mut().map(std::mem::take);
        let mut list = || lists.next().unwrap_or_default().into_iter();
        let macs: Result<Vec<_>, BadRow> = list().map(|mut row| row.parsed()).collect();
        let disks: Result<Vec<_>, BadRow> = list().map(|mut row| disk(&mut row)).collect();
        let personality: Result<_, BadRow> =
            list().map(|mut row| Ok((row.parsed()?, row.parsed()?))).collect();
        Ok(Self {
            name,
            collection,
            description,
            macs: Macs::new(macs?)?,
            uuid,
            address,
            initiator,
            chap,
            disabled,
            profile: DeviceProfile {
                kind,
                disks: Disks::new(disks?)?,
                local_disk,
                menu,
                write_cache,
                limits,
                personality: Personality::new(personality?)?,
                guest,
            },
        })
    }

    fn label(&self) -> Option<String> {
        Some(self.name.as_str().to_owned())
    }
}

/// The columns `user_data` and `ssh_keys`.
pub(super) fn guest(row: &mut Row) -> Result<GuestSettings, BadRow> {
    let (user_data, ssh_keys) = (row.optional_parsed()?, row.optional_parsed()?);
    Ok(GuestSettings { user_data, ssh_keys: ssh_keys.unwrap_or_default() })
}

fn disk_cells(disk: &DeviceDisk) -> Vec<Cell> {
    vec![disk.vdisk.into(), disk.menu_text.as_ref().map(Text::as_str).into(), disk.disabled.into()]
}

fn disk(row: &mut Row) -> Result<DeviceDisk, BadRow> {
    Ok(DeviceDisk { vdisk: row.id()?, menu_text: row.optional_parsed()?, disabled: row.yes_no()? })
}
