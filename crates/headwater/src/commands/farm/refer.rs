//! How versions are named on the command line.
//!
//! Answers write `images/golden` and `1`, the API wants `golden/1`, and people type `golden@1` or `golden 1`: all of them name the
//! same version. A word with a number behind a `/` or `@` is a version; any other word is a vDisk, and the numbers that
//! follow it are versions of it.
use anyhow::bail;

/// The versions that these words name, as the API has them: `VDISK/NUMBER`, or `#ID`.
///
/// # Errors
/// A vDisk without a number, or a number without a vDisk.
pub(super) fn versions(words: &[String]) -> anyhow::Result<Vec<String>> {
    let mut named = Vec::new();
    // The vDisk that numbers belong to, and whether one came.
    let mut vdisk: Option<(&str, bool)> = None;
    for word in words {
        match vdisk {
            Some((of, _)) if is_number(word) => {
                named.push(format!("{of}/{word}"));
                vdisk = Some((of, true));
                continue;
            }
            Some((of, false)) => return lacking(of),
            _ => vdisk = None,
        }
        match word.rsplit_once(['/', '@']) {
            Some((of, number)) if !of.is_empty() && is_number(number) => named.push(format!("{of}/{number}")),
            _ if word.starts_with('#') => named.push(word.clone()),
            _ if word.is_empty() => bail!("a version is named VDISK/NUMBER"),
            _ => vdisk = Some((word, false)),
        }
    }
    match vdisk {
        Some((of, false)) => lacking(of),
        _ => Ok(named),
    }
}

/// The one version that these words name.
///
/// # Errors
/// As of [`versions`], and where there are several.
pub(super) fn version(words: &[String]) -> anyhow::Result<String> {
    match <[String; 1]>::try_from(versions(words)?) {
        Ok([only]) => Ok(only),
        Err(many) => bail!("one version at a time: {} are named ({})", many.len(), many.join(", ")),
    }
}

/// The version that all words but the last name, and the last word.
///
/// # Errors
/// As of [`version`].
pub(super) fn version_and_word(words: &[String], missing: &str) -> anyhow::Result<(String, String)> {
    let Some((last, before)) = words.split_last().filter(|(_, before)| !before.is_empty()) else {
        bail!("after the version, say {missing}");
    };
    match version(before) {
        Ok(version) => Ok((version, last.clone())),
        // Of "golden 1" it is not the version that lacks.
        Err(_) if version(words).is_ok() => bail!("after the version, say {missing}"),
        Err(error) => Err(error),
    }
}

/// A version's vDisk and number.
///
/// # Errors
/// Of a version that is named by its id.
pub(super) fn parts(version: &str) -> anyhow::Result<(&str, u32)> {
    let parts = version.rsplit_once('/').and_then(|(vdisk, number)| Some((vdisk, number.parse().ok()?)));
    parts.ok_or_else(|| anyhow::anyhow!("{version:?} is no version: name it VDISK/NUMBER"))
}

fn lacking<T>(vdisk: &str) -> anyhow::Result<T> {
    bail!(
        "which version of vDisk \"{vdisk}\"? Write {vdisk}/NUMBER; \"headwater version list {vdisk}\" shows them"
    )
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn versions_are_understood_however_they_are_written() {
        for (text, expected) in [
            ("golden/1", "golden/1"),
            ("golden@1", "golden/1"),
            ("golden 1", "golden/1"),
            ("images/golden 1", "images/golden/1"),
            ("images/golden@1", "images/golden/1"),
            ("#17", "#17"),
            ("golden 1 2 other@0", "golden/1 golden/2 other/0"),
            ("golden/1 other 3", "golden/1 other/3"),
            ("2024 1", "2024/1"),
        ] {
            assert_eq!(versions(&words(text)).unwrap().join(" "), expected, "{text}");
        }
    }

    #[test]
    fn vdisk_without_a_number_is_told_how_to_write_it() {
        for text in ["golden", "golden other/1", "golden/1 other"] {
            let error = versions(&words(text)).unwrap_err().to_string();
            assert!(error.contains("/NUMBER") && error.contains("headwater version list"), "{text}: {error}");
        }
        assert!(version(&words("golden 1 2")).is_err());
        assert!(parts("#17").is_err());
        assert_eq!(parts("images/golden/3").unwrap(), ("images/golden", 3));
    }

    #[test]
    fn last_word_is_no_part_of_the_version() {
        let split = |text: &str| version_and_word(&words(text), "the moment");
        assert_eq!(split("golden/1 tomorrow").unwrap(), ("golden/1".to_owned(), "tomorrow".to_owned()));
        assert_eq!(split("golden 1 tomorrow").unwrap(), ("golden/1".to_owned(), "tomorrow".to_owned()));
        assert_eq!(split("golden 1").unwrap_err().to_string(), "after the version, say the moment");
        assert!(split("golden tomorrow").unwrap_err().to_string().contains("which version"));
    }
}
