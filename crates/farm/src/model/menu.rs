//! Boot menus: when a device shows one, and how long it waits for somebody.
use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;
use super::choice::Choice;

/// When the boot menu of a device that has a choice is shown. A device without a choice has no menu.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MenuShow {
    /// At every boot.
    #[default]
    Always,
    /// When somebody presses a key in time.
    OnKey,
    /// Never: the device boots what it boots without a choice.
    Never,
}

impl Choice for MenuShow {
    const WHAT: &'static str = "a use of the boot menu";
    const RULE: &'static str = "always, on-key or never";
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Always, "always"), (Self::OnKey, "on-key"), (Self::Never, "never")];
}

/// How many seconds a boot menu waits until it takes the default; 0: until somebody chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct MenuWait(u16);

impl MenuWait {
    /// Where nothing is said: time to read a few lines, and little beside what a boot takes.
    pub const DEFAULT: Self = Self(10);
    /// The longest: an hour.
    pub const MAX_SECONDS: u16 = 3600;

    /// Checks a number of seconds.
    ///
    /// # Errors
    /// [`BadValue`] above [`MAX_SECONDS`](Self::MAX_SECONDS).
    pub fn new(seconds: u16) -> Result<Self, BadValue> {
        if seconds <= Self::MAX_SECONDS {
            Ok(Self(seconds))
        } else {
            Err(BadValue::number("a wait of a boot menu", seconds, "0 (no end) to 3600 seconds"))
        }
    }

    /// The seconds.
    #[must_use]
    pub const fn seconds(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for MenuWait {
    type Error = BadValue;

    fn try_from(seconds: u16) -> Result<Self, BadValue> {
        Self::new(seconds)
    }
}

impl From<MenuWait> for u16 {
    fn from(wait: MenuWait) -> Self {
        wait.0
    }
}

/// What is said of boot menus in one place: of a device, or of a collection for all its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MenuSettings {
    /// When it is shown; `None`: nothing is said here.
    pub show: Option<MenuShow>,
    /// How long it waits; `None`: nothing is said here.
    pub wait: Option<MenuWait>,
}

impl MenuSettings {
    /// What counts for a device of which `self` is said, in a collection of which `collection` is said.
    #[must_use]
    pub fn within(self, collection: Self) -> (MenuShow, MenuWait) {
        let show = self.show.or(collection.show).unwrap_or_default();
        (show, self.wait.or(collection.wait).unwrap_or(MenuWait::DEFAULT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_overrules_its_collection_property_by_property() {
        let wait = |seconds| Some(MenuWait::new(seconds).unwrap());
        let collection = MenuSettings { show: Some(MenuShow::Never), wait: wait(30) };
        let device = MenuSettings { show: Some(MenuShow::OnKey), wait: None };
        assert_eq!(device.within(collection), (MenuShow::OnKey, MenuWait::new(30).unwrap()));
        let nothing = MenuSettings::default();
        assert_eq!(nothing.within(collection).0, MenuShow::Never);
        assert_eq!(nothing.within(nothing), (MenuShow::Always, MenuWait::DEFAULT));
    }

    #[test]
    fn wait_of_more_than_an_hour_is_refused() {
        assert!(MenuWait::new(3600).is_ok() && MenuWait::new(0).is_ok());
        assert!(MenuWait::new(3601).is_err());
    }
}
