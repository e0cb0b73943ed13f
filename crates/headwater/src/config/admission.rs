//! `[admission]`: how many devices boot at a time.
use std::num::NonZeroUsize;

use super::reader::Section;
use super::values::duration;
use crate::stream::admission::Rules;

/// More devices than one server has.
pub(super) const MAX_AT_ONCE: u64 = 100_000;

pub(super) fn read(root: &mut Section<'_>) -> Rules {
    let usual = Rules::default();
    let Some(mut section) = root.section("admission") else { return usual };
    let at_once = section.integer("at_once", 0..=MAX_AT_ONCE);
    let (quiet, longest) = (section.string_as("quiet", duration), section.string_as("longest", duration));
    section.finish();
    Rules {
        at_once: at_once.and_then(|number| NonZeroUsize::new(usize::try_from(number).unwrap_or(usize::MAX))),
        quiet: quiet.unwrap_or(usual.quiet),
        longest: longest.unwrap_or(usual.longest),
    }
}
