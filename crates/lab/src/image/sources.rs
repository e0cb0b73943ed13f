//! Where Debian packages come from: the machine's own apt sources, reduced to Debian 12's three suites.
//!
//! A machine may use a mirror; what it uses is taken. Foreign repositories on it are not: their packages have no place
//! in a golden image, and their keys are not known to mmdebstrap.
use std::fmt::Write as _;
use std::path::Path;

/// Suites of Debian 12, and where they are when the machine's sources do not say.
const SUITES: [(&str, &str); 3] = [
    ("bookworm", "http://deb.debian.org/debian"),
    ("bookworm-updates", "http://deb.debian.org/debian"),
    ("bookworm-security", "http://deb.debian.org/debian-security"),
];

/// One-line sources of Debian 12's suites, from the apt folder (`/etc/apt`), complete whatever the folder holds.
pub(super) fn from_machine(apt: &Path) -> String {
    let mut files = vec![apt.join("sources.list")];
    if let Ok(entries) = std::fs::read_dir(apt.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    let mut known = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("list") => known.extend(one_line_sources(&text)),
            Some("sources") => known.extend(deb822_sources(&text)),
            _ => {}
        }
    }
    complete(&known)
}

/// A suite and the address that it comes from.
type Source = (String, String);

fn complete(known: &[Source]) -> String {
    let mut list = String::new();
    for (suite, fallback) in SUITES {
        let address = known.iter().find(|(name, _)| name == suite).map_or(fallback, |(_, address)| address);
        // Writing to a String cannot fail.
        let _ = writeln!(list, "deb {address} {suite} main");
    }
    list
}

/// Reads `deb [options] address suite components...`.
fn one_line_sources(text: &str) -> Vec<Source> {
    let lines = text.lines().filter_map(|line| {
        let rest = line.trim().strip_prefix("deb ")?.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        let mut words = rest.split_whitespace();
        let (address, suite) = (words.next()?, words.next()?);
        words.any(|word| word == "main").then(|| (suite.trim_end_matches('/').to_owned(), address.to_owned()))
    });
    lines.collect()
}

/// Reads stanzas of `Types`, `URIs`, `Suites`, `Components`.
fn deb822_sources(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            let mut lines = stanza.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value.trim())
        };
        let usable = field("Types").split_whitespace().any(|word| word == "deb")
            && field("Components").split_whitespace().any(|word| word == "main")
            && !field("Enabled").eq_ignore_ascii_case("no");
        let Some(address) = field("URIs").split_whitespace().next().filter(|_| usable) else { continue };
        let suites = field("Suites").split_whitespace();
        sources.extend(suites.map(|suite| (suite.to_owned(), address.to_owned())));
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_of_the_machine_is_used_and_foreign_sources_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let parts = folder.path().join("sources.list.d");
        std::fs::create_dir(&parts).unwrap();
        let list = "# comment\ndeb [arch=amd64 signed-by=/k.gpg] https://docker.example/debian bookworm stable\n\
                    deb http://mirror.example/debian bookworm-updates main contrib\n\
                    deb-src http://wrong.example/debian bookworm main\n";
        std::fs::write(folder.path().join("sources.list"), list).unwrap();
        let stanza = "Types: deb\n# a comment: with a colon\nURIs: http://mirror.example/debian\nSuites: bookworm\n\
                      Components: main\n\nTypes: deb\nURIs: http://off.example/\nSuites: bookworm-security\n\
                      Components: main\nEnabled: no\n";
        std::fs::write(parts.join("debian.sources"), stanza).unwrap();
        std::fs::write(parts.join("ignored.txt"), "deb http://wrong.example/ bookworm main").unwrap();
        assert_eq!(
            from_machine(folder.path()),
            "deb http://mirror.example/debian bookworm main\n\
             deb http://mirror.example/debian bookworm-updates main\n\
             deb http://deb.debian.org/debian-security bookworm-security main\n"
        );
    }

    #[test]
    fn machine_without_sources_gets_the_usual_ones() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(from_machine(folder.path()).lines().count(), SUITES.len());
    }
}
