//! Users and passwords as HTTP carries them: Basic authentication (RFC 7617), base 64 (RFC 4648 §4).
use crate::director::LogIn;

/// The longest value that is read: a user and a password of 256 bytes each.
const MAX_VALUE_BYTES: usize = 700;

/// The user and the password in the value of an `Authorization` header.
pub(super) fn parse(value: &str) -> Option<LogIn> {
    let (scheme, credentials) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") || value.len() > MAX_VALUE_BYTES {
        return None;
    }
    let text = String::from_utf8(decode(credentials.trim_ascii())?).ok()?;
    // RFC 7617 §2: the user has no colon, the password may have some.
    let (user, password) = text.split_once(':')?;
    Some(LogIn { user: user.to_owned(), password: password.to_owned() })
}

/// What base 64 stands for.
fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    if !text.len().is_multiple_of(4) || text.len().saturating_sub(digits.len()) > 2 {
        return None;
    }
    let mut bytes = Vec::new();
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            bits = bits << 6 | digit_value(*digit)?;
        }
        // A group of n digits holds n - 1 bytes, at the upper end of its 24 bits.
        let missing = 4_usize.saturating_sub(group.len());
        let [_, whole @ ..] = (bits << u32::try_from(missing).ok()?.saturating_mul(6)).to_be_bytes();
        bytes.extend(whole.into_iter().take(group.len().saturating_sub(1)));
    }
    Some(bytes)
}

fn digit_value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit.checked_sub(b'A')?,
        b'a'..=b'z' => digit.checked_sub(b'a')?.checked_add(26)?,
        b'0'..=b'9' => digit.checked_sub(b'0')?.checked_add(52)?,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_are_read_as_they_were_typed() {
        let read = |value: &str| parse(value).map(|who| (who.user, who.password));
        // What iPXE 1.0.0+ (2019) sends for "ann" and `wr ong&+%"$x`.
        let sent = "Basic YW5uOndyIG9uZyYrJSIkeA==";
        assert_eq!(read(sent), Some(("ann".into(), "wr ong&+%\"$x".into())));
        assert_eq!(read("basic YTpiOmM="), Some(("a".into(), "b:c".into())));
        assert_eq!(read("Basic Og=="), Some((String::new(), String::new())));
        for bad in [
            "",
            "Basic",
            "Basic ",
            "Digest YTpi",
            "Basic YTpi=",
            "Basic YQ==",
            "Basic Y:pi",
            "Basic /////w==",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(read(&format!("Basic {}", "YTph".repeat(200))), None);
    }

    #[test]
    fn base_64_is_decoded_as_rfc_4648_has_it() {
        for (text, bytes) in
            [("", &b""[..]), ("Zg==", b"f"), ("Zm8=", b"fo"), ("Zm9v", b"foo"), ("Zm9vYmE=", b"fooba")]
        {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
        for bad in ["Z", "Zg", "Zg=", "Z===", "Zg==Zg=="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
