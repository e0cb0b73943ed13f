//! Entry files and `loader.conf` of the Boot Loader Specification (UAPI.1), and the images that `uki` reads.
use super::{BootEntry, Source, Volume, uki, version};
use crate::error::GuestError;

const DIRECTORY: &str = "/loader/entries";
/// systemd-boot's own settings: which entry it takes.
const SETTINGS: &str = "/loader/loader.conf";

/// An entry file before it is sorted.
#[derive(Default)]
struct Parsed {
    id: String,
    title: String,
    version: String,
    machine: String,
    sort_key: String,
    linux: Option<String>,
    initrds: Vec<String>,
    options: Vec<String>,
    architecture: Option<String>,
}

/// The entries of a volume, in the order of the specification, the default marked.
pub(super) fn find(volume: &Volume) -> Result<Vec<BootEntry>, GuestError> {
    let mut parsed = Vec::new();
    // On an EFI system partition and an extended boot partition the path is from their root; a `/boot` that is no partition
    // of its own has it one directory down.
    for root in ["", "/boot"] {
        for name in volume.files(&format!("{root}{DIRECTORY}"), ".conf")? {
            let path = format!("{root}{DIRECTORY}/{}", name.name);
            let Some(text) = volume.text(&path)? else { continue };
            let variables = super::grub::environment(volume)?;
            parsed.push((root, parse(&name.name, &text, &variables)));
        }
    }
    parsed.sort_by(|(_, a), (_, b)| order(a, b));
    let mut entries = uki::find(volume)?;
    entries.extend(parsed.into_iter().filter_map(|(root, entry)| into_entry(volume, root, entry)));
    if let Some(pattern) = default_pattern(volume)? {
        let chosen = entries.iter_mut().find(|entry| matches(&pattern, &entry.id));
        if let Some(entry) = chosen {
            entry.default = true;
        }
    }
    Ok(entries)
}

/// UAPI.1, "Type #1 Boot Loader Entries": a key, blanks, a value; `#` begins a comment line.
fn parse(file: &str, text: &str, variables: &[(String, String)]) -> Parsed {
    let mut entry = Parsed { id: file.strip_suffix(".conf").unwrap_or(file).to_owned(), ..Parsed::default() };
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.split_once([' ', '\t']) else { continue };
        let value = expand(value.trim(), variables);
        match key {
            "title" => entry.title = value,
            "version" => entry.version = value,
            "machine-id" => entry.machine = value,
            "sort-key" => entry.sort_key = value,
            "architecture" => entry.architecture = Some(value),
            "linux" => entry.linux = Some(value),
            // Fedora names several in one line, of which some are GRUB's variables.
            "initrd" => entry.initrds.extend(value.split_ascii_whitespace().map(str::to_owned)),
            "options" => entry.options.push(value),
            _ => {}
        }
    }
    entry
}

/// GRUB's `blscfg` allows variables of its environment in the values, as `$kernelopts`; one that is not known is empty.
fn expand(value: &str, variables: &[(String, String)]) -> String {
    let Some((before, rest)) = value.split_once('$') else { return value.to_owned() };
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
    let (name, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let known = variables.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value);
    format!("{before}{known}{}", expand(after, variables))
}

/// UAPI.1, "Sorting": by sort-key and machine-id ascending, then newer versions first; entries without a sort-key come last.
fn order(a: &Parsed, b: &Parsed) -> std::cmp::Ordering {
    (a.sort_key.is_empty().cmp(&b.sort_key.is_empty()))
        .then_with(|| a.sort_key.cmp(&b.sort_key))
        .then_with(|| a.machine.cmp(&b.machine))
        .then_with(|| version::compare(&b.version, &a.version))
        .then_with(|| version::compare(&b.id, &a.id))
}

fn into_entry(volume: &Volume, root: &str, entry: Parsed) -> Option<BootEntry> {
    // An entry for an EFI program (`efi`) has no kernel to boot.
    let linux = entry.linux?;
    if entry.architecture.is_some_and(|architecture| !architecture.eq_ignore_ascii_case("x64")) {
        return None;
    }
    let place = |path: &str| {
        // Paths are from the root of the partition; where `/boot` is none, tools write either form.
        let below = format!("{root}/{path}");
        volume.file(if root.is_empty() || !volume.holds(&below) { path } else { &below })
    };
    let title = match (entry.title.as_str(), entry.version.as_str()) {
        ("", "") => entry.id.clone(),
        ("", version) => version.to_owned(),
        (title, _) => title.to_owned(),
    };
    Some(BootEntry {
        title,
        source: Source::EntryFile,
        kernel: place(&linux),
        initrds: entry.initrds.iter().map(|path| place(path)).collect(),
        options: entry.options.join(" "),
        default: false,
        id: entry.id,
    })
}

fn default_pattern(volume: &Volume) -> Result<Option<String>, GuestError> {
    let Some(text) = volume.text(SETTINGS)? else { return Ok(None) };
    let value = |line: &str| {
        let (key, value) = line.trim().split_once([' ', '\t'])?;
        let value = value.trim();
        (key == "default").then(|| value.strip_suffix(".conf").unwrap_or(value).to_owned())
    };
    Ok(text.lines().find_map(value))
}

/// Whether a name matches a pattern of `*` and `?`, as `loader.conf` has it; upper and lower case are the same.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.to_lowercase().chars().collect(), name.to_lowercase().chars().collect());
    // Each `*` need only be tried with the shortest run that lets the part up to the next one match.
    let (mut p, mut n) = (0_usize, 0_usize);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                p = p.saturating_add(1);
                retry = Some((p, n));
            }
            Some(&c) if c == '?' || name.get(n) == Some(&c) => {
                p = p.saturating_add(1);
                n = n.saturating_add(1);
            }
            _ => {
                let Some((after, taken)) = retry else { return false };
                n = taken.saturating_add(1);
                retry = Some((after, n));
                p = after;
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_loader_conf_match_as_a_shell_would() {
        for (pattern, name, want) in [
            ("debian-*", "debian-6.1.0", true),
            ("*", "", true),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXbXb", false),
            ("arch?", "arch", false),
            ("ARCH?", "arch1", true),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
    }

    #[test]
    fn variables_of_grubs_environment_are_put_in_and_unknown_ones_left_out() {
        let variables = [("kernelopts".to_owned(), "root=UUID=1 ro".to_owned())];
        assert_eq!(expand("$kernelopts quiet $tuned_params", &variables), "root=UUID=1 ro quiet ");
        assert_eq!(expand("a$", &variables), "a");
    }
}
