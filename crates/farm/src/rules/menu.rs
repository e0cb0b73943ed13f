//! The boot menu: what a device does next that asks what to boot.
//!
//! A device asks once, and is given its only choice, its menu, or a moment to call for its menu; then it asks again, with
//! what was chosen. A choice is looked at like the first question: it is one of those that there are now, or it is none. So
//! nobody gets by a made-up choice what the menu would not show.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::boot::{Entry, Offer};
use crate::model::{BadValue, Id, LocalDisk, MenuSettings, MenuShow, MenuWait, VdiskId, VersionNumber};

/// What can be chosen. Written `v12-3` (vDisk #12, version 3) and `local`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BootChoice {
    /// A version of a vDisk.
    Vdisk(VdiskId, VersionNumber),
    /// The device's own disk.
    LocalDisk,
}

impl fmt::Display for BootChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vdisk(vdisk, version) => write!(f, "v{vdisk}-{version}"),
            Self::LocalDisk => f.write_str("local"),
        }
    }
}

impl FromStr for BootChoice {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if text == "local" {
            return Ok(Self::LocalDisk);
        }
        let bad = || BadValue::new("a choice of a boot menu", text, "\"local\", or vDisk and version: v12-3");
        let (vdisk, version) =
            text.strip_prefix('v').and_then(|rest| rest.split_once('-')).ok_or_else(bad)?;
        if !vdisk.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad());
        }
        let vdisk = vdisk.parse().ok().and_then(|number| Id::new(number).ok()).ok_or_else(bad)?;
        Ok(Self::Vdisk(vdisk, version.parse().map_err(|_| bad())?))
    }
}

impl TryFrom<String> for BootChoice {
    type Error = BadValue;

    fn try_from(text: String) -> Result<Self, BadValue> {
        text.parse()
    }
}

impl From<BootChoice> for String {
    fn from(choice: BootChoice) -> Self {
        choice.to_string()
    }
}

/// What a device says when it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// What to boot.
    First,
    /// For its menu: somebody has pressed the key.
    Menu,
    /// For this.
    Choice(BootChoice),
}

/// What it does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// It boots this.
    Boot(&'a Entry),
    /// It boots its own disk.
    LocalDisk,
    /// It shows this menu.
    Show(Menu),
    /// It waits so long for a key that calls for the menu, and then takes the default.
    Key {
        /// How long.
        wait: MenuWait,
        /// What it takes.
        default: BootChoice,
    },
    /// What it has chosen is no choice (any more).
    NoSuchChoice(BootChoice),
}

/// A boot menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Menu {
    /// Its entries; never empty.
    pub entries: Vec<MenuEntry>,
    /// What is taken when nobody chooses: one of them.
    pub default: BootChoice,
    /// How long it waits for somebody.
    pub wait: MenuWait,
}

/// An entry of a boot menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MenuEntry {
    /// What it stands for.
    pub choice: BootChoice,
    /// Its text.
    pub text: String,
    /// Whether somebody must log in before it boots.
    pub asks_login: bool,
}

/// The text of the device's own disk.
pub const LOCAL_DISK_TEXT: &str = "this machine's own disk";

impl Entry {
    /// What it is chosen by.
    #[must_use]
    pub const fn choice(&self) -> BootChoice {
        BootChoice::Vdisk(self.vdisk, self.number)
    }
}

impl Offer {
    /// What boots when nobody chooses.
    #[must_use]
    pub fn default_choice(&self) -> BootChoice {
        match (self.local_disk, self.entries.first()) {
            (LocalDisk::No | LocalDisk::Offered, Some(entry)) => entry.choice(),
            _ => BootChoice::LocalDisk,
        }
    }

    /// The entry that a choice stands for.
    #[must_use]
    pub fn entry(&self, choice: BootChoice) -> Option<&Entry> {
        self.entries.iter().chain(&self.others).find(|entry| entry.choice() == choice)
    }

    /// Every choice, in the order of the menu: each vDisk, behind it its other versions; the own disk last, or first where
    /// it is the default.
    #[must_use]
    pub fn menu(&self, wait: MenuWait) -> Menu {
        let of = |entry: &Entry| MenuEntry {
            choice: entry.choice(),
            text: entry.menu_text.clone(),
            asks_login: entry.asks_login,
        };
        let mut entries: Vec<MenuEntry> = Vec::new();
        for entry in &self.entries {
            entries.push(of(entry));
            entries.extend(self.others.iter().filter(|other| other.vdisk == entry.vdisk).map(of));
        }
        let text = LOCAL_DISK_TEXT.to_owned();
        let local = MenuEntry { choice: BootChoice::LocalDisk, text, asks_login: false };
        match self.local_disk {
            LocalDisk::No => {}
            LocalDisk::Offered => entries.push(local),
            LocalDisk::First => entries.insert(0, local),
        }
        Menu { entries, default: self.default_choice(), wait }
    }
}

/// What a device does next to which this is offered, and of whose menu its own and its collection's settings say so.
#[must_use]
pub fn next(offer: &Offer, own: MenuSettings, collection: MenuSettings, asked: Asked) -> Next<'_> {
    let (show, wait) = own.within(collection);
    let menu = offer.menu(wait);
    let choice = match (asked, show) {
        (Asked::Choice(choice), _) => choice,
        (_, _) if menu.entries.len() < 2 => menu.default,
        (Asked::Menu, MenuShow::Always | MenuShow::OnKey) | (Asked::First, MenuShow::Always) => {
            return Next::Show(menu);
        }
        (Asked::First, MenuShow::OnKey) => {
            // A key is not waited for without end: that would be a menu.
            let wait = if wait.seconds() == 0 { MenuWait::DEFAULT } else { wait };
            return Next::Key { wait, default: menu.default };
        }
        (Asked::First | Asked::Menu, MenuShow::Never) => menu.default,
    };
    // Where there is no menu, a choice other than the default was not made in one.
    let shown = show != MenuShow::Never || choice == menu.default;
    if !shown || !menu.entries.iter().any(|entry| entry.choice == choice) {
        return Next::NoSuchChoice(choice);
    }
    match offer.entry(choice) {
        Some(entry) => Next::Boot(entry),
        None => Next::LocalDisk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AccessMode, Purpose, Sharing, Subject};
    use crate::rules::entitlement::Writes;
    use crate::rules::sample::{n, text, vdisk};

    fn entry(vdisk_number: i64, version: u32) -> Entry {
        let AccessMode::Standard(cache) = vdisk().mode else { panic!("private") };
        let id = Id::new(vdisk_number.saturating_mul(100).saturating_add(i64::from(version))).unwrap();
        Entry {
            vdisk: Id::new(vdisk_number).unwrap(),
            version: id,
            number: n(version),
            path: text("/srv"),
            files: vec![text("golden.vhdx")],
            writes: Writes::Cache(cache),
            menu_text: format!("vDisk {vdisk_number} in version {version}"),
            asks_login: vdisk_number == 2,
            lease: (Subject::Contents(id), Sharing::Shared, Purpose::Boot),
        }
    }

    fn offer(vdisks: &[i64], local_disk: LocalDisk) -> Offer {
        let entries = vdisks.iter().map(|vdisk| entry(*vdisk, 3)).collect();
        Offer { device: Id::new(1).unwrap(), entries, others: Vec::new(), local_disk, left_out: Vec::new() }
    }

    fn said(show: MenuShow) -> MenuSettings {
        MenuSettings { show: Some(show), wait: None }
    }

    fn first(offer: &Offer, show: MenuShow) -> Next<'_> {
        next(offer, MenuSettings::default(), said(show), Asked::First)
    }

    const SHOWS: [MenuShow; 3] = [MenuShow::Always, MenuShow::OnKey, MenuShow::Never];

    #[test]
    fn device_with_one_thing_to_boot_sees_no_menu() {
        let one = offer(&[1], LocalDisk::No);
        for show in SHOWS {
            assert_eq!(first(&one, show), Next::Boot(&one.entries[0]));
            assert_eq!(next(&one, said(show), said(show), Asked::Menu), Next::Boot(&one.entries[0]));
        }
    }

    #[test]
    fn menu_lists_vdisks_with_their_versions_and_the_own_disk_where_it_belongs() {
        let mut both = offer(&[1, 2], LocalDisk::Offered);
        both.others = vec![entry(1, 2), entry(1, 0)];
        let choices = |offer: &Offer| {
            let menu = offer.menu(MenuWait::DEFAULT);
            let words: Vec<String> = menu.entries.iter().map(|entry| entry.choice.to_string()).collect();
            (words.join(" "), menu.default.to_string())
        };
        assert_eq!(choices(&both), ("v1-3 v1-2 v1-0 v2-3 local".into(), "v1-3".into()));
        both.local_disk = LocalDisk::First;
        assert_eq!(choices(&both), ("local v1-3 v1-2 v1-0 v2-3".into(), "local".into()));
        assert!(both.menu(MenuWait::DEFAULT).entries[4].asks_login);
    }

    #[test]
    fn setting_says_whether_there_is_a_menu_a_key_or_neither() {
        let two = offer(&[1, 2], LocalDisk::No);
        assert!(matches!(first(&two, MenuShow::Always), Next::Show(_)));
        let default = two.entries[0].choice();
        assert_eq!(first(&two, MenuShow::OnKey), Next::Key { wait: MenuWait::DEFAULT, default });
        assert_eq!(first(&two, MenuShow::Never), Next::Boot(&two.entries[0]));
        let own = said(MenuShow::OnKey);
        assert!(matches!(next(&two, own, said(MenuShow::Never), Asked::Menu), Next::Show(_)));
    }

    #[test]
    fn choice_is_one_of_the_menu_or_none() {
        let two = offer(&[1, 2], LocalDisk::No);
        let choose = |show, choice| next(&two, said(show), MenuSettings::default(), Asked::Choice(choice));
        assert_eq!(choose(MenuShow::Always, two.entries[1].choice()), Next::Boot(&two.entries[1]));
        for choice in [BootChoice::LocalDisk, entry(1, 2).choice(), entry(7, 3).choice()] {
            assert_eq!(choose(MenuShow::Always, choice), Next::NoSuchChoice(choice));
        }
        let second = two.entries[1].choice();
        assert_eq!(choose(MenuShow::Never, second), Next::NoSuchChoice(second), "it was not shown");
        let local = offer(&[1], LocalDisk::First);
        assert_eq!(first(&local, MenuShow::Never), Next::LocalDisk);
    }

    #[test]
    fn choices_are_read_as_they_are_written() {
        for text in ["local", "v12-3", "v1-0"] {
            assert_eq!(text.parse::<BootChoice>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "v",
            "v1",
            "v-1",
            "v0-1",
            "v+1-2",
            "v1-",
            "v1-1000000",
            "V1-2",
            "v1-2-3",
            "v99999999999999999999-1",
        ] {
            assert!(text.parse::<BootChoice>().is_err(), "{text}");
        }
    }
}
