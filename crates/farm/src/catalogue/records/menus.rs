//! What is said of boot menus, in the rows of devices and collections.
use super::super::cell::{BadRow, Row};
use crate::model::{MenuSettings, MenuWait};

/// Reads the two cells `menu_show` and `menu_wait`.
pub(super) fn menu(row: &mut Row) -> Result<MenuSettings, BadRow> {
    let show = row.optional_choice()?;
    let wait = row.optional_small::<u16>()?.map(MenuWait::new).transpose()?;
    Ok(MenuSettings { show, wait })
}
