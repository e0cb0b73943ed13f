//! What the files of a vDisk take in their file system, and how much of that reflinks share.
use maud::{Markup, html};
use serde::Deserialize;

use crate::answer::{Answer, Page};
use crate::ask::{Ask, Refusal};
use crate::door::{Route, Visit};
use crate::fields::encode;
use crate::markup::bytes;
use crate::paths;

pub(super) fn all() -> Vec<Route> {
    vec![Route::get("/vdisks/{vdisk}/space", page)]
}

/// What the files of a vDisk take.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct VdiskSpace {
    items: Vec<FileSpace>,
}

/// What the file of a version takes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct FileSpace {
    number: u32,
    allocated_bytes: Option<u64>,
    shared_bytes: Option<u64>,
}

impl VdiskSpace {
    /// Of a vDisk, by its id or name.
    pub(super) async fn of(ask: &Ask, vdisk: &str) -> Result<Self, Refusal> {
        ask.get(&format!("/v1/vdisks/{}/space", encode(vdisk))).await
    }

    /// What all files take; `None` where that is not known.
    pub(super) fn whole(&self) -> Option<String> {
        let sum =
            |of: fn(&FileSpace) -> Option<u64>| self.items.iter().filter_map(of).reduce(u64::saturating_add);
        Some(told(sum(|file| file.allocated_bytes)?, sum(|file| file.shared_bytes).unwrap_or(0)))
    }

    /// What the file of a version takes; `None` where that is not known.
    pub(super) fn of_version(&self, number: u32) -> Option<String> {
        let file = self.items.iter().find(|file| file.number == number)?;
        Some(told(file.allocated_bytes?, file.shared_bytes.unwrap_or(0)))
    }
}

fn told(allocated: u64, shared: u64) -> String {
    let shared = if shared > 0 { format!(", {} of it shared", bytes(shared)) } else { String::new() };
    format!("{} on disk{shared}", bytes(allocated))
}

/// A place in a table that fetches its text when it is seen: it takes a walk through files, which no list waits for.
pub(super) fn later(vdisk: i64, until_then: &str) -> Markup {
    html! { span id=(format!("space-{vdisk}")) hx-preserve="true" hx-get=(format!("{}/space", paths::vdisk(vdisk))) hx-trigger="intersect once" hx-select="unset" hx-swap="innerHTML" { (until_then) } }
}

async fn page(visit: Visit) -> Result<Answer, Refusal> {
    let space = VdiskSpace::of(&visit.ask, visit.parameter("vdisk")).await?.whole();
    let text = space.as_deref().unwrap_or("not on this server");
    let body = html! {
        @if visit.part { (text) } @else { h1 { "Space of a vDisk" } p { (text) } }
    };
    Ok(Page::new("Space", "vDisks", body).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_summed_over_files_and_what_is_shared_is_told_where_something_is() {
        let file =
            |number, allocated_bytes, shared_bytes| FileSpace { number, allocated_bytes, shared_bytes };
        let space = |items| VdiskSpace { items };
        let two = space(vec![file(1, Some(4096), Some(1024)), file(0, Some(4096), Some(1024))]);
        assert_eq!(two.whole().unwrap(), "8.0 KiB on disk, 2.0 KiB of it shared");
        assert_eq!(two.of_version(1).unwrap(), "4.0 KiB on disk, 1.0 KiB of it shared");
        let silent = space(vec![file(1, Some(4096), None), file(0, None, None)]);
        assert_eq!((silent.whole(), silent.of_version(0)), (Some("4.0 KiB on disk".into()), None));
        assert_eq!(space(vec![file(0, None, None)]).whole(), None);
    }
}
