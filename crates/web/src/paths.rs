//! The addresses of the pages, each once.
use crate::fields::encode;

pub(crate) const HOME: &str = "/";
pub(crate) const LOG_IN: &str = "/log-in";
pub(crate) const LOG_OUT: &str = "/log-out";
pub(crate) const FIRST: &str = "/first-log-in";
pub(crate) const PASSWORD: &str = "/password";
pub(crate) const THEME: &str = "/theme";
pub(crate) const SEARCH: &str = "/search";
pub(crate) const FIRST_RUN: &str = "/first-run";
pub(crate) const LIVE: &str = "/live";
pub(crate) const OVERVIEW_LIVE: &str = "/overview/live";
pub(crate) const RATES: &str = "/overview/rates";
pub(crate) const DEVICES: &str = "/devices";
pub(crate) const DEVICES_TABLE: &str = "/devices/table";
pub(crate) const DEVICES_DO: &str = "/devices/do";
pub(crate) const BOOTS: &str = "/boots";
pub(crate) const VDISKS: &str = "/vdisks";
pub(crate) const DOCTOR: &str = "/doctor";
pub(crate) const SETTINGS: &str = "/settings";
pub(crate) const TASKS: &str = "/tasks";
pub(crate) const TASK_LOG: &str = "/tasks/log";

/// A device, by its id.
pub(crate) fn device(id: i64) -> String {
    format!("{DEVICES}/{id}")
}

/// A device, by its name.
pub(crate) fn device_named(name: &str) -> String {
    format!("{DEVICES}/{}", named(name))
}

/// A boot, by its id.
pub(crate) fn boot(id: &str) -> String {
    format!("{BOOTS}/{}", encode(id))
}

/// A vDisk, by its id.
pub(crate) fn vdisk(id: i64) -> String {
    format!("{VDISKS}/{id}")
}

/// A task.
pub(crate) fn task(id: i64) -> String {
    format!("{TASKS}/{id}")
}

/// An object of another kind.
pub(crate) fn object(kind: &str, id: i64) -> String {
    format!("/{kind}/{id}")
}

/// A name as the API takes it in a path: one that could pass for a number or a route says that it is a name.
pub(crate) fn named(name: &str) -> String {
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if digits || ["import", "export", "table", "do", "new"].contains(&name) {
        format!("name:{}", encode(name))
    } else {
        encode(name)
    }
}
