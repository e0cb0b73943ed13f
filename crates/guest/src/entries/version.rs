//! The order of versions, as the UAPI Group's "Version Format Specification" asks: newer is greater.
use std::cmp::Ordering;
use std::str::Chars;

/// Compares two versions.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
    let mut a = Rest(a);
    let mut b = Rest(b);
    loop {
        a.skip_others();
        b.skip_others();
        // "~" comes before the end of the string, which comes before "-", "^" and "." in this order.
        for separator in ['~', '\0', '-', '^', '.'] {
            match (a.at(separator), b.at(separator)) {
                (true, true) if separator == '\0' => return Ordering::Equal,
                (true, true) => {
                    a.step();
                    b.step();
                    break;
                }
                (true, false) => return Ordering::Less,
                (false, true) => return Ordering::Greater,
                (false, false) => {}
            }
        }
        let order = if a.starts_with_digit() || b.starts_with_digit() {
            let (x, y) = (a.take(char::is_ascii_digit), b.take(char::is_ascii_digit));
            let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        } else {
            // Capital letters come before small ones, and a longer run is newer than its beginning: as in ASCII.
            a.take(char::is_ascii_alphabetic).cmp(b.take(char::is_ascii_alphabetic))
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// What is left of a version.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn chars(&self) -> Chars<'a> {
        self.0.chars()
    }

    fn skip_others(&mut self) {
        self.0 = self.0.trim_start_matches(|c: char| !(c.is_ascii_alphanumeric() || "~-^.".contains(c)));
    }

    fn at(&self, separator: char) -> bool {
        self.chars().next().unwrap_or('\0') == separator
    }

    fn step(&mut self) {
        let mut chars = self.chars();
        chars.next();
        self.0 = chars.as_str();
    }

    fn starts_with_digit(&self) -> bool {
        self.chars().next().is_some_and(|c| c.is_ascii_digit())
    }

    fn take(&mut self, wanted: fn(&char) -> bool) -> &'a str {
        let rest = self.0.trim_start_matches(|c: char| wanted(&c));
        let taken = self.0.strip_suffix(rest).unwrap_or_default();
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_specification_are_in_its_order() {
        // "Version Format Specification", examples, and kernels of Debian.
        let ascending = [
            "122.1",
            "123~rc1-1",
            "123",
            "123-a",
            "123-a.1",
            "123-1",
            "123-1.1",
            "123^post1",
            "123.a-1",
            "123.1-1",
            "123a-1",
            "124-1",
        ];
        for (a, b) in ascending.iter().zip(ascending.iter().skip(1)) {
            assert_eq!(compare(a, b), Ordering::Less, "{a} {b}");
            assert_eq!(compare(b, a), Ordering::Greater, "{b} {a}");
        }
        assert_eq!(compare("6.1.0-9-amd64", "6.1.0-10-amd64"), Ordering::Less);
        assert_eq!(compare("6.12.9", "6.2.1"), Ordering::Greater);
        assert_eq!(compare("a.b", "a_.b"), Ordering::Equal);
        assert_eq!(compare("007", "7"), Ordering::Equal);
    }
}
