//! What pages are put together from: figures in units, names that cannot pass for something else, tables, badges.
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use block::ByteLength;
use maud::{Markup, html};

/// Bytes in binary units with three digits: `24.3 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    ByteLength::new(bytes).approximate()
}

/// A time span as people say it: `8.24 s`, `312 ms`, `2 min 5 s`.
pub(crate) fn milliseconds(ms: f64) -> String {
    if ms > 0.0 && ms < 1.0 {
        return format!("{ms:.2} ms");
    }
    if ms < 1000.0 {
        return format!("{ms:.0} ms");
    }
    if ms < 100_000.0 {
        return format!("{:.2} s", ms / 1000.0);
    }
    span(Duration::from_secs_f64((ms / 1000.0).clamp(0.0, 1e12)))
}

/// A longer time span: `2 min 5 s`, `3 h 20 min`, `12 d 4 h`.
pub(crate) fn span(duration: Duration) -> String {
    let s = duration.as_secs();
    let part = |unit: u64| s.checked_div(unit).unwrap_or(0);
    let rest = |unit: u64, of: u64| s.checked_rem(of).unwrap_or(0).checked_div(unit).unwrap_or(0);
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", part(60), rest(1, 60)),
        3600..86_400 => format!("{} h {} min", part(3600), rest(60, 3600)),
        _ => format!("{} d {} h", part(86_400), rest(3600, 86_400)),
    }
}

/// A number with its digits in groups of three: `12 480`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len().saturating_mul(2));
    for (place, digit) in digits.chars().enumerate() {
        let left = digits.len().saturating_sub(place);
        if place > 0 && left.checked_rem(3) == Some(0) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// One thing or several: `1 device`, `12 devices`.
pub(crate) fn several(number: u64, one: &str) -> String {
    let number_in_words = count(number);
    match one.strip_suffix("ry") {
        _ if number == 1 => format!("{number_in_words} {one}"),
        Some(stem) => format!("{number_in_words} {stem}ries"),
        None => format!("{number_in_words} {one}s"),
    }
}

/// Microseconds since 1970, now.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A moment in RFC 3339, shown shorter: `2026-11-21 17:20:05`, in UTC.
pub(crate) fn moment(at: &str) -> Markup {
    let short: String = at.chars().take(19).map(|c| if c == 'T' { ' ' } else { c }).collect();
    html! { time datetime=(at) { (short) } }
}

/// A text of somebody else's in which nothing is invisible: characters that turn the direction of writing, or that are
/// not shown, are named.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let hidden = c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if hidden {
            let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A name: as long as it is, it does not push the page apart, and its direction of writing is its own.
pub(crate) fn name(text: &str) -> Markup {
    html! { bdi.name { (visible(text)) } }
}

/// A link to something with a name.
pub(crate) fn link(to: &str, text: &str) -> Markup {
    html! { a href=(to) { (name(text)) } }
}

/// A way to do something, or what stands in the way.
pub(crate) fn button(to: &str, label: &str, may: &Result<(), String>) -> Markup {
    html! { @match may {
        Ok(()) => a.button href=(to) { (label) },
        Err(why) => (disabled(label, why)),
    } }
}

/// A button that cannot be pressed, and what stands in the way. The focus comes to it all the same, so that whoever has no
/// pointer is told as well.
pub(crate) fn disabled(label: &str, why: &str) -> Markup {
    html! { span.button.disabled role="link" aria-disabled="true" tabindex="0" title=(why) { (label) span.unseen { ": " (why) } } }
}

/// What state something is in: colour, and always a word as well.
pub(crate) fn badge(tone: &'static str, word: &str) -> Markup {
    html! { span class={ "badge " (tone) } { (word) } }
}

/// The badge of what a device or a boot is doing.
pub(crate) fn status_badge(status: &str) -> Markup {
    badge(status_tone(status), status)
}

/// How a state of a device is coloured.
pub(crate) fn status_tone(status: &str) -> &'static str {
    match status {
        "ready" => "good",
        "waiting" | "first stage" | "second stage" => "busy",
        "disconnected" => "bad",
        _ => "calm",
    }
}

/// How full something is.
pub(crate) fn gauge(used: u64, limit: u64) -> Markup {
    let share = used.saturating_mul(100).checked_div(limit).unwrap_or(0);
    filled(share, &format!("{} of {} ({share} %)", bytes(used), bytes(limit)))
}

/// How full something is, in per cent. The meter is for eyes, the words for all.
pub(crate) fn filled(share: u64, words: &str) -> Markup {
    let tone = if share >= 95 {
        "bad"
    } else if share >= 80 {
        "warn"
    } else {
        "good"
    };
    html! {
        span.gauge {
            meter class=(tone) min="0" max="100" value=(share) aria-hidden="true" {}
            span { (words) }
        }
    }
}

/// The token that every form carries.
pub(crate) fn token(token: &str) -> Markup {
    html! { input type="hidden" name="form_token" value=(token); }
}

/// The command that does the same.
pub(crate) fn same_as(command: &str) -> Markup {
    html! { p.same-as { "Same as: " code { (visible(command)) } } }
}

/// A word for a command line: as it is, or in quotation marks.
pub(crate) fn word(text: &str) -> String {
    let plain =
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:=@,+".contains(&b));
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(25_480_000), "24.3 MiB");
        assert_eq!(milliseconds(8240.0), "8.24 s");
        assert_eq!(milliseconds(311.6), "312 ms");
        assert_eq!(milliseconds(0.42), "0.42 ms");
        assert_eq!(span(Duration::from_secs(3_725)), "1 h 2 min");
        assert_eq!(count(12_480), "12\u{202f}480");
        assert_eq!(
            (several(1, "entry"), several(2, "entry"), several(2, "device")),
            ("1 entry".to_owned(), "2 entries".to_owned(), "2 devices".to_owned())
        );
    }

    #[test]
    fn characters_that_are_not_seen_are_named() {
        assert_eq!(visible("a\u{202e}b\u{0}"), "a⟨U+202E⟩b⟨U+0000⟩");
        assert_eq!(name("<b>ü").into_string(), "<bdi class=\"name\">&lt;b&gt;ü</bdi>");
    }

    #[test]
    fn words_of_a_command_are_quoted_where_a_shell_would_take_them_for_more() {
        assert_eq!(word("lab-01"), "lab-01");
        assert_eq!(word("it's; rm"), r"'it'\''s; rm'");
    }
}
