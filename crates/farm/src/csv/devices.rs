//! Devices as a table: the columns, and how a row is read and written.
//!
//! | column | holds |
//! |---|---|
//! | `name` | the device's name; needed |
//! | `collection`, `site` | where it is; `site` may be left out where one site alone has such a collection |
//! | `mac` | its addresses, with spaces between them |
//! | `vdisks` | its vDisks in boot order, with a vertical bar between them: `golden` or `store/golden` |
//! | `kind`, `disabled`, `description`, `uuid`, `address`, `local-disk`, `write-cache`, `write-cache-limit` | as in filters |
//! | `menu`, `menu-wait` | when its boot menu is shown (`always`, `on-key`, `never`), and for how many seconds |
//! | `ssh-keys` | public keys that may log in, one on each line of the cell (in quotation marks) |
//! | `user-data` | the device's own template of cloud-init's user data, as many lines as it has |
//!
//! A cell that is empty or a column that is not there says nothing: a new device gets what the collection's template
//! has, a known one keeps what it has.
use std::net::Ipv4Addr;
use std::str::FromStr;

use super::{BadCell, Line};
use crate::model::{
    ByteSize, Choice, Description, Device, DeviceKind, DeviceName, LocalDisk, Mac, Macs, MenuShow, MenuWait,
    Name, SshKeys, UserData, Uuid, VdiskName, WriteCacheKind,
};

/// The columns, in the order in which they are written.
pub const COLUMNS: [&str; 17] = [
    "name",
    "site",
    "collection",
    "mac",
    "kind",
    "vdisks",
    "disabled",
    "description",
    "uuid",
    "address",
    "local-disk",
    "write-cache",
    "write-cache-limit",
    "menu",
    "menu-wait",
    "ssh-keys",
    "user-data",
];

/// The most errors that are told of one table.
pub const MAX_ERRORS: usize = 1000;

/// What a row says. `None`: nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceRow {
    /// The line that it begins on.
    pub line: usize,
    /// The device.
    pub name: DeviceName,
    /// Its site.
    pub site: Option<Name>,
    /// Its collection.
    pub collection: Option<Name>,
    /// Its addresses.
    pub macs: Option<Macs>,
    /// Its kind.
    pub kind: Option<DeviceKind>,
    /// Its vDisks, each with its store where that is said.
    pub vdisks: Option<Vec<(Option<Name>, VdiskName)>>,
    /// Whether it is disabled.
    pub disabled: Option<bool>,
    /// What is said about it.
    pub description: Option<Description>,
    /// Its UUID.
    pub uuid: Option<Uuid>,
    /// The address that DHCP gives it.
    pub address: Option<Ipv4Addr>,
    /// Its use of its own disk.
    pub local_disk: Option<LocalDisk>,
    /// Its write cache's kind.
    pub write_cache: Option<WriteCacheKind>,
    /// Its write cache's limit.
    pub write_cache_limit: Option<ByteSize>,
    /// When its boot menu is shown.
    pub menu: Option<MenuShow>,
    /// How long that waits.
    pub menu_wait: Option<MenuWait>,
    /// Who may log in to its system.
    pub ssh_keys: Option<SshKeys>,
    /// Its own template of user data.
    pub user_data: Option<UserData>,
}

/// Reads a table of devices.
///
/// # Errors
/// Every [`BadCell`] of it, up to [`MAX_ERRORS`].
pub fn parse(bytes: &[u8]) -> Result<Vec<DeviceRow>, Vec<BadCell>> {
    let lines = super::read(bytes).map_err(|bad| vec![bad])?;
    let mut lines = lines.into_iter();
    let Some(head) = lines.next() else { return Err(vec![BadCell::line(1, "the table is empty")]) };
    let columns = columns(&head)?;
    let (mut rows, mut errors) = (Vec::new(), Vec::new());
    for line in lines {
        let mut cells = Cells { line: &line, columns: &columns, errors: &mut errors };
        rows.extend(cells.row());
        if errors.len() >= MAX_ERRORS {
            errors.truncate(MAX_ERRORS);
            break;
        }
    }
    if errors.is_empty() { Ok(rows) } else { Err(errors) }
}

/// Which column each cell is of.
fn columns(head: &Line) -> Result<Vec<&'static str>, Vec<BadCell>> {
    let mut columns: Vec<&'static str> = Vec::new();
    let mut errors = Vec::new();
    for cell in &head.cells {
        let name = cell.to_ascii_lowercase();
        match COLUMNS.iter().find(|known| **known == name) {
            Some(known) if columns.contains(known) => {
                errors.push(BadCell::line(head.number, format!("column {name} is there twice")));
            }
            Some(known) => columns.push(known),
            None => errors.push(BadCell::line(
                head.number,
                format!("there is no column {cell:?}; there are: {}", COLUMNS.join(", ")),
            )),
        }
    }
    if errors.is_empty() && !columns.contains(&"name") {
        errors.push(BadCell::line(head.number, "the first line must name the columns, \"name\" among them"));
    }
    if errors.is_empty() { Ok(columns) } else { Err(errors) }
}

struct Cells<'a> {
    line: &'a Line,
    columns: &'a [&'static str],
    errors: &'a mut Vec<BadCell>,
}

impl Cells<'_> {
    fn row(&mut self) -> Option<DeviceRow> {
        if self.line.cells.len() > self.columns.len() {
            let why = format!(
                "it has {} cells, and there are {} columns",
                self.line.cells.len(),
                self.columns.len()
            );
            self.errors.push(BadCell::line(self.line.number, why));
            return None;
        }
        let before = self.errors.len();
        let name = self.parsed("name");
        if name.is_none() && self.errors.len() == before {
            self.bad("name", "a device needs a name".to_owned());
        }
        let site = self.parsed("site");
        let collection = self.parsed("collection");
        let macs = self.read("mac", |text| {
            let macs: Result<Vec<Mac>, _> = text.split_ascii_whitespace().map(str::parse).collect();
            Macs::new(macs.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
        });
        let kind = self.choice("kind");
        let vdisks = self.read("vdisks", |text| text.split('|').map(|part| vdisk(part.trim())).collect());
        let disabled = self.read("disabled", |text| match text.to_ascii_lowercase().as_str() {
            "yes" | "true" => Ok(true),
            "no" | "false" => Ok(false),
            _ => Err(format!("{text:?} is neither yes nor no")),
        });
        let description = self.parsed("description");
        let uuid = self.parsed("uuid");
        let address = self.read("address", |text| {
            text.parse().map_err(|_| format!("{text:?} is not an IPv4 address such as \"10.0.0.20\""))
        });
        let local_disk = self.choice("local-disk");
        let write_cache = self.choice("write-cache");
        let write_cache_limit = self.parsed("write-cache-limit");
        let menu = self.choice("menu");
        let menu_wait = self.read("menu-wait", |text| {
            let seconds = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
            MenuWait::new(seconds).map_err(|error| error.to_string())
        });
        let ssh_keys = self.parsed("ssh-keys");
        let user_data = self.parsed("user-data");
        let (name, line) = (name?, self.line.number);
        let row = DeviceRow {
            line,
            name,
            site,
            collection,
            macs,
            kind,
            vdisks,
            disabled,
            description,
            uuid,
            address,
            local_disk,
            write_cache,
            write_cache_limit,
            menu,
            menu_wait,
            ssh_keys,
            user_data,
        };
        (self.errors.len() == before).then_some(row)
    }

    fn bad(&mut self, column: &str, why: String) {
        self.errors.push(BadCell { line: self.line.number, column: Some(column.to_owned()), why });
    }

    fn read<T>(&mut self, column: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let place = self.columns.iter().position(|known| *known == column)?;
        let cell = self.line.cells.get(place).filter(|cell| !cell.is_empty())?;
        match read(cell) {
            Ok(value) => Some(value),
            Err(why) => {
                self.bad(column, why);
                None
            }
        }
    }

    fn parsed<T: FromStr>(&mut self, column: &str) -> Option<T>
    where
        T::Err: std::fmt::Display,
    {
        self.read(column, |text| text.parse().map_err(|error: T::Err| error.to_string()))
    }

    fn choice<T: Choice>(&mut self, column: &str) -> Option<T> {
        self.read(column, |text| T::from_word(&text.to_ascii_lowercase()).map_err(|error| error.to_string()))
    }
}

fn vdisk(text: &str) -> Result<(Option<Name>, VdiskName), String> {
    // The last one: a store's name has none, so that there is one at most.
    let (store, name) = match text.rsplit_once('/') {
        Some((store, name)) => {
            (Some(store.parse().map_err(|error: crate::model::BadValue| error.to_string())?), name)
        }
        None => (None, text),
    };
    Ok((store, name.parse().map_err(|error: crate::model::BadValue| error.to_string())?))
}

/// The cells of a device, in the order of [`COLUMNS`]. `vdisks` are its vDisks as they are to be written.
#[must_use]
pub fn cells(device: &Device, site: &Name, collection: &Name, vdisks: &[String]) -> Vec<String> {
    let text = |text: Option<String>| text.unwrap_or_default();
    let profile = &device.profile;
    let macs: Vec<String> = device.macs.as_slice().iter().map(Mac::to_string).collect();
    vec![
        device.name.to_string(),
        site.to_string(),
        collection.to_string(),
        macs.join(" "),
        profile.kind.word().to_owned(),
        vdisks.join("|"),
        if device.disabled { "yes" } else { "no" }.to_owned(),
        device.description.to_string(),
        text(device.uuid.map(|uuid| uuid.to_string())),
        text(device.address.map(|address| address.to_string())),
        profile.local_disk.word().to_owned(),
        text(profile.write_cache.kind.map(|kind| kind.word().to_owned())),
        text(profile.write_cache.limit.map(|limit| limit.to_string())),
        text(profile.menu.show.map(|show| show.word().to_owned())),
        text(profile.menu.wait.map(|wait| wait.seconds().to_string())),
        text(profile.guest.ssh_keys.lines()),
        text(profile.guest.user_data.as_ref().map(UserData::to_string)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_read_by_the_names_of_its_columns() {
        let rows = parse(
            b"MAC;name;vdisks;disabled\n52-54-00-12-34-56 525400123457;lab-1;store x/a | b;yes\n;lab-2\n",
        )
        .unwrap();
        assert_eq!(rows[0].macs.as_ref().unwrap().as_slice().len(), 2);
        assert_eq!(rows[0].disabled, Some(true));
        let vdisks = rows[0].vdisks.as_ref().unwrap();
        assert_eq!((vdisks[0].0.as_ref().unwrap().as_str(), vdisks[0].1.as_str()), ("store x", "a"));
        assert_eq!((&vdisks[1].0, vdisks[1].1.as_str()), (&None, "b"));
        assert_eq!((rows[1].line, rows[1].name.as_str(), &rows[1].macs), (3, "lab-2", &None));
    }

    #[test]
    fn what_the_system_is_told_is_written_in_cells_of_several_lines_and_read_again() {
        let keys = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKj ann@desk\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKk bob; lab, \"2\"";
        let data = "#cloud-config\nroom: \"{{personality.Room}}\"\n";
        let mut table = String::new();
        crate::csv::write(&mut table, &["name", "ssh-keys", "user-data"].map(str::to_owned));
        crate::csv::write(&mut table, &["lab-1", keys, data].map(str::to_owned));
        let [row] = parse(table.as_bytes()).unwrap().try_into().unwrap();
        assert_eq!(row.ssh_keys, Some(keys.parse().unwrap()));
        assert_eq!(row.user_data, Some(data.parse().unwrap()));
        let errors = parse(b"name,ssh-keys,user-data\nlab-1,password,{{devise}}\n").unwrap_err();
        let columns: Vec<_> = errors.iter().filter_map(|error| error.column.as_deref()).collect();
        assert_eq!(columns, ["ssh-keys", "user-data"]);
    }

    #[test]
    fn every_error_is_told_with_its_line_and_column() {
        let table =
            b"name,mac,kind,address\nLab 1,52:54,x,y\n,,,\nlab-2,,,\n,52:54:00:12:34:56,,\na,b,c,d,e\n";
        let errors = parse(table).unwrap_err();
        let places: Vec<(usize, Option<&str>)> =
            errors.iter().map(|error| (error.line, error.column.as_deref())).collect();
        assert_eq!(
            places,
            [
                (2, Some("name")),
                (2, Some("mac")),
                (2, Some("kind")),
                (2, Some("address")),
                (5, Some("name")),
                (6, None)
            ]
        );
        assert!(
            errors[2].to_string().starts_with("line 2, column kind: \"x\" is not a kind of device"),
            "{}",
            errors[2]
        );
    }

    #[test]
    fn table_without_known_columns_is_refused() {
        for table in ["", "mac\n", "name,name\n", "name,colour\n", "lab-1,52:54:00:12:34:56\n"] {
            assert_eq!(parse(table.as_bytes()).unwrap_err()[0].line, 1, "{table:?}");
        }
    }
}
