//! How machines that add themselves are named.
use std::collections::BTreeSet;

use super::refusal::Refusal;
use crate::model::{DeviceName, NamingPattern};

/// The name of the next machine: the number after the highest that is taken, so that a name is not given to another
/// machine as long as there are fresh ones; when the pattern is at its end, the first gap.
///
/// # Errors
/// [`Refusal::NamesUsedUp`].
pub fn next_name<'a>(
    pattern: &NamingPattern,
    taken: impl Iterator<Item = &'a str>,
) -> Result<DeviceName, Refusal> {
    let numbers: BTreeSet<u32> = taken.filter_map(|name| pattern.number(name)).collect();
    let after = numbers.last().map_or(1, |highest| highest.saturating_add(1));
    let gap = || (1..=pattern.last_number()).find(|number| !numbers.contains(number));
    let fresh = pattern.name(after).or_else(|| gap().and_then(|number| pattern.name(number)));
    fresh.ok_or_else(|| Refusal::NamesUsedUp { pattern: pattern.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_name_is_after_the_highest_and_then_in_the_first_gap() {
        let pattern: NamingPattern = "lab-#".parse().unwrap();
        let next = |taken: &[&str]| next_name(&pattern, taken.iter().copied()).map(String::from);
        assert_eq!(next(&[]).unwrap(), "lab-1");
        assert_eq!(next(&["lab-1", "lab-4", "room-8", "lab-10"]).unwrap(), "lab-5");
        assert_eq!(next(&["lab-1", "lab-9"]).unwrap(), "lab-2");
        let all: Vec<String> = (1..=9).map(|number| format!("lab-{number}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert_eq!(next(&all), Err(Refusal::NamesUsedUp { pattern: "lab-#".to_owned() }));
    }
}
