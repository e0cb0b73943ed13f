//! What is said of boot menus, of a device or of a collection.
use control::ControlError;
use farm::model::{MenuSettings, MenuShow, MenuWait};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::wire::Word;

/// When a device that has a choice shows its boot menu. What is null is said elsewhere: of a device, by its collection; and
/// where nobody says anything, it is shown at every boot, for 10 s.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Menu")]
pub(crate) struct MenuBody {
    /// When it is shown.
    #[serde(default)]
    show: Option<Word<MenuShow>>,
    /// After how many seconds without a key it takes the default; 0: never.
    #[serde(default)]
    #[schemars(range(max = 3600))]
    wait_s: Option<u16>,
}

impl MenuBody {
    pub(super) fn of(settings: MenuSettings) -> Self {
        Self { show: settings.show.map(Word), wait_s: settings.wait.map(MenuWait::seconds) }
    }

    pub(super) fn read(said: Option<&Self>) -> Result<MenuSettings, ControlError> {
        let Some(said) = said else { return Ok(MenuSettings::default()) };
        let wait = said.wait_s.map(MenuWait::new).transpose();
        let wait = wait.map_err(|bad| ControlError::bad_value("menu.wait_s", bad))?;
        Ok(MenuSettings { show: said.show.as_ref().map(|show| show.0), wait })
    }
}
