//! `cargo xtask tidy`: the house rules that no compiler checks. Each rule is one function that gives its findings.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run::{cargo, output, root};

/// Which of our own crates each crate may depend on: the arrows of `ARCHITECTURE.md`. Nothing points up.
const ARROWS: &[(&str, &[&str])] = &[
    ("block", &[]),
    ("diskimage", &["block"]),
    ("connections", &[]),
    ("meter", &[]),
    ("trace", &[]),
    ("scsi", &["block"]),
    ("iscsi", &["block", "connections", "meter", "scsi"]),
    ("nbd", &["block", "connections", "meter"]),
    ("netboot", &[]),
    ("guest", &["block"]),
    ("vdisk", &["block", "diskimage"]),
    ("farm", &[]),
    ("control", &["block", "diskimage", "farm", "vdisk"]),
    ("api", &["control", "farm"]),
    ("web", &["api", "block", "control", "farm", "trace"]),
    (
        "headwater",
        &[
            "api",
            "block",
            "connections",
            "control",
            "diskimage",
            "farm",
            "guest",
            "iscsi",
            "meter",
            "nbd",
            "netboot",
            "scsi",
            "trace",
            "vdisk",
            "web",
        ],
    ),
    ("mutate", &[]),
    ("lab", &[]),
    ("xtask", &["block", "diskimage", "lab", "meter", "nbd", "trace", "vdisk"]),
];

/// What tests may use besides.
const DEVELOPMENT: &[&str] = &["lab", "mutate"];

/// Crates that parse foreign bytes, and the lints that they must deny.
const PARSERS: &[&str] = &[
    "block",
    "connections",
    "diskimage",
    "scsi",
    "iscsi",
    "nbd",
    "netboot",
    "farm",
    "guest",
    "control",
    "trace",
];
const PARSER_LINTS: &[&str] =
    &["unwrap_used", "expect_used", "indexing_slicing", "arithmetic_side_effects", "panic"];

/// Crates that we build in several versions, and why.
const TOLERATED_DUPLICATES: &[(&str, &str)] = &[
    ("getrandom", "ring 0.17, the cryptography under TLS, is still at 0.2"),
    ("syn", "maud_macros 0.27 is still at 2; at build time alone"),
    ("fallible-iterator", "postgres-protocol 0.6 is still at 0.2; it is 3,000 lines without dependencies"),
];

/// Names that say nothing about content.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "core", "base", "misc", "helpers"];

/// The most lines of code that a file may have: blank lines, comments and its unit tests not counted.
const MAX_CODE_LINES: usize = 800;

/// What has no place in the sources, and why.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("#[", "ignore"), "a test that does not run tells nothing"),
    (concat!("should_", "panic"), "test for the error value instead"),
    (concat!("todo", "!("), "unfinished code does not land"),
];

/// Runs every rule.
///
/// # Errors
/// Where a rule is broken; the findings stand on standard error.
pub(crate) fn tidy() -> Result<()> {
    let root = root();
    let files = tracked_files(&root)?;
    let mut findings = dependency_arrows()?;
    findings.extend(duplicate_versions(&root)?);
    findings.extend(parser_lints(&root)?);
    for file in &files {
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => findings.extend(rust_file(file, &text)),
            Some("md") => findings.extend(dead_links(&root, file, &text)),
            _ => {}
        }
    }
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    if !findings.is_empty() {
        bail!("tidy found {} thing(s) to mend", findings.len());
    }
    println!("tidy: {} files are in order", files.len());
    Ok(())
}

/// Every dependency of one of our crates on another must be one of [`ARROWS`].
fn dependency_arrows() -> Result<Vec<String>> {
    let text = output(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata printed no JSON")?;
    let arrows: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let mut findings = Vec::new();
    for package in list(&metadata, "packages") {
        let name = package["name"].as_str().unwrap_or_default();
        if EMPTY_NAMES.contains(&name) {
            findings.push(format!("crate {name}: name it by its content"));
        }
        let Some(allowed) = arrows.get(name) else {
            findings.push(format!(
                "crate {name}: give it its place among ARROWS in xtask/src/tidy.rs and in ARCHITECTURE.md"
            ));
            continue;
        };
        for dependency in list(package, "dependencies") {
            let on = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"] == "dev";
            let ours = arrows.contains_key(on) && !dependency["path"].is_null();
            if ours && !allowed.contains(&on) && !(in_tests && DEVELOPMENT.contains(&on)) {
                findings.push(format!(
                    "crate {name} depends on {on}: no arrow of ARCHITECTURE.md points that way"
                ));
            }
        }
    }
    Ok(findings)
}

/// No third-party crate stands in the lock file in two versions that we build.
fn duplicate_versions(root: &Path) -> Result<Vec<String>> {
    let tree = output(
        cargo(&["tree", "--workspace", "--duplicates", "--depth", "0", "--prefix", "none"]).current_dir(root),
    )?;
    let mut versions: Vec<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    versions.sort_unstable();
    versions.dedup();
    versions.retain(|version| {
        let name = version.split(' ').next().unwrap_or_default();
        TOLERATED_DUPLICATES.iter().all(|(tolerated, _)| *tolerated != name)
    });
    Ok(versions
        .into_iter()
        .map(|version| format!("{version} is one of several versions of its crate"))
        .collect())
}

/// Crates that read foreign bytes deny what could panic.
fn parser_lints(root: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for name in PARSERS {
        let path = root.join("crates").join(name).join("src/lib.rs");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for lint in PARSER_LINTS {
            if !text.contains(&format!("clippy::{lint}")) {
                findings.push(format!("crates/{name}/src/lib.rs does not deny clippy::{lint}"));
            }
        }
    }
    Ok(findings)
}

fn rust_file(file: &Path, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let first = text.lines().find(|line| !line.starts_with("#!["));
    if !first.is_some_and(|line| line.starts_with("//!")) {
        findings.push(format!("{}: no `//!` says what this module is for", file.display()));
    }
    let lines = code_lines(text);
    if lines > MAX_CODE_LINES {
        findings.push(format!(
            "{}: {lines} lines of code, more than {MAX_CODE_LINES}: divide it",
            file.display()
        ));
    }
    for (word, reason) in FORBIDDEN {
        if text.contains(word) {
            findings.push(format!("{}: `{word}`: {reason}", file.display()));
        }
    }
    findings
}

/// Lines that are neither blank nor comment, up to the unit tests.
fn code_lines(text: &str) -> usize {
    let code = text.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]");
    code.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// Relative links of the documentation lead to files that are there.
fn dead_links(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let folder = root.join(file.parent().unwrap_or(Path::new("")));
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    let paths = local.map(|target| target.split('#').next().unwrap_or_default());
    let dead = paths.filter(|path| !path.is_empty() && !folder.join(path).exists());
    dead.map(|path| format!("{}: the link to {path} leads nowhere", file.display())).collect()
}

/// Files that git tracks or would track.
fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut git = std::process::Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    Ok(output(&mut git)?.lines().map(PathBuf::from).filter(|file| root.join(file).exists()).collect())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_lines_leave_out_comments_blanks_and_tests() {
        assert_eq!(code_lines("//! Doc.\n\nfn a() {}\n// why\nfn b() {}\n#[cfg(test)]\nmod tests {}\n"), 2);
    }

    #[test]
    fn file_without_module_doc_is_found() {
        assert_eq!(rust_file(Path::new("a.rs"), "fn a() {}\n").len(), 1);
        assert!(rust_file(Path::new("a.rs"), "//! A.\nfn a() {}\n").is_empty());
    }

    #[test]
    fn link_to_a_missing_file_is_found() {
        let findings = dead_links(
            &root(),
            Path::new("README.md"),
            "[a](Cargo.toml) [b](no/such/file.md#x) [c](https://x)",
        );
        assert_eq!(findings, ["README.md: the link to no/such/file.md leads nowhere"]);
    }
}
