//! GRUB's menu: `grub.cfg` as `grub-mkconfig` writes it, and what administrators write by hand in its manner.
//!
//! `words` cuts the text into commands, `script` carries them out as far as they bear on the menu (variables, conditions,
//! `search`, menu entries), and this module turns what came of it into boot entries. Conditions are evaluated as GRUB 2.12
//! would on a disk of its own; functions are not called, and no other file is read but the environment block.
mod script;
mod words;

use super::{BootEntry, FileOnDisk, Source, Volume};
use crate::error::GuestError;
use script::{Item, Outcome};

/// Where GRUB's files are: `/boot/grub` of the root, `/grub` of a partition that is mounted at `/boot`; the names with a 2 are
/// Fedora's and SUSE's.
const DIRECTORIES: [&str; 4] = ["/boot/grub", "/grub", "/boot/grub2", "/grub2"];
/// The id of what a script boots without a menu.
const WITHOUT_MENU: &str = "grub.cfg";
/// GRUB manual, "The GRUB environment block".
const ENVIRONMENT_HEADER: &str = "# GRUB Environment Block";

/// The entries of the menus of a volume; paths may lead to the other volumes.
pub(super) fn find(volume: &Volume, volumes: &[Volume]) -> Result<Vec<BootEntry>, GuestError> {
    let mut entries = Vec::new();
    for directory in DIRECTORIES {
        let Some(text) = volume.text(&format!("{directory}/grub.cfg"))? else { continue };
        let saved = environment(volume)?;
        let outcome = script::run(&text, volume, volumes, directory, saved);
        entries.extend(into_entries(outcome));
    }
    Ok(entries)
}

/// The variables of the environment block of a volume; none where there is no such block.
pub(super) fn environment(volume: &Volume) -> Result<Vec<(String, String)>, GuestError> {
    for directory in DIRECTORIES {
        let Some(text) = volume.text(&format!("{directory}/grubenv"))? else { continue };
        if !text.starts_with(ENVIRONMENT_HEADER) {
            continue;
        }
        // A backslash quotes the character behind it; `#` fills the block up.
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once('='));
        return Ok(pairs.map(|(key, value)| (key.to_owned(), unquoted(value))).collect());
    }
    Ok(Vec::new())
}

fn unquoted(value: &str) -> String {
    let mut quoted = false;
    value
        .chars()
        .filter(|&c| {
            let keep = quoted || c != '\\';
            quoted = !keep;
            keep
        })
        .collect()
}

fn into_entries(outcome: Outcome) -> Vec<BootEntry> {
    let default = outcome.items.iter().position(|item| is_default(item, &outcome.default));
    let entries = outcome.items.into_iter().enumerate().filter_map(|(index, item)| {
        let kernel = item.kernel?;
        let (title, id) = match item.path.last() {
            Some(own) => (own.title.clone(), own.id.clone().unwrap_or_else(|| own.title.clone())),
            None => (format!("Linux, as {WITHOUT_MENU} boots it"), WITHOUT_MENU.to_owned()),
        };
        Some(BootEntry {
            id,
            title,
            source: Source::Grub,
            kernel: FileOnDisk { partition: kernel.0, path: kernel.1, piece: None },
            initrds: item
                .initrds
                .into_iter()
                .map(|(partition, path)| FileOnDisk { partition, path, piece: None })
                .collect(),
            options: item.options,
            default: default == Some(index),
        })
    });
    entries.collect()
}

/// Whether `default` names an entry: by number, title or id, through submenus with `>` between (GRUB manual, "default").
/// A submenu that is named without an entry stands for its first, and a script that boots by itself does not ask.
fn is_default(item: &Item, default: &str) -> bool {
    if item.path.is_empty() {
        return true;
    }
    let wanted = if default.is_empty() { "0" } else { default };
    wanted.split('>').zip(item.path.iter().map(Some).chain(std::iter::repeat(None))).all(|(name, step)| {
        step.is_some_and(|step| {
            name == step.title || step.id.as_deref() == Some(name) || name.parse() == Ok(step.index)
        })
    })
}
