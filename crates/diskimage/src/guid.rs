//! Globally unique identifiers, in the two byte orders in which image formats store them.
use std::fmt;

/// An identifier of 16 bytes, in the order in which its text is written (RFC 4122 §4.1.2).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Guid([u8; 16]);

impl Guid {
    /// The identifier of all zeros, which means "none" where a format allows it.
    pub const NIL: Self = Self([0; 16]);

    /// From the order of the text: how VHD stores it.
    #[must_use]
    pub const fn from_be_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// From Microsoft's order, where the first three groups are little-endian: how VHDX stores it.
    #[must_use]
    pub const fn from_le_bytes(b: [u8; 16]) -> Self {
        let [a0, a1, a2, a3, b0, b1, c0, c1, d0, d1, e0, e1, e2, e3, e4, e5] = b;
        Self([a3, a2, a1, a0, b1, b0, c1, c0, d0, d1, e0, e1, e2, e3, e4, e5])
    }

    /// The identifier whose text is this number in hexadecimal.
    #[must_use]
    pub const fn from_u128(number: u128) -> Self {
        Self(number.to_be_bytes())
    }

    /// A new one, by chance (version 4 of RFC 4122 §4.4).
    ///
    /// # Errors
    /// [`getrandom::Error`], where the operating system gives no random numbers.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        let [_, _, _, _, _, _, version, _, variant, ..] = &mut bytes;
        *version = (*version & 0x0F) | 0x40;
        *variant = (*variant & 0x3F) | 0x80;
        Ok(Self(bytes))
    }

    /// The identifier that this text writes: 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12 with `-` between
    /// them, in braces or not. `None` of any other text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        let mut groups = inner.split('-');
        let mut number: u128 = 0;
        for length in [8, 4, 4, 4, 12] {
            let group = groups.next().filter(|group| group.len() == length)?;
            for digit in group.chars() {
                number = (number << 4) | u128::from(digit.to_digit(16)?);
            }
        }
        groups.next().is_none().then_some(Self::from_u128(number))
    }

    /// In Microsoft's order.
    #[must_use]
    pub const fn to_le_bytes(self) -> [u8; 16] {
        // Turning the groups round twice gives what was.
        Self::from_le_bytes(self.0).0
    }

    /// In the order of the text.
    #[must_use]
    pub const fn to_be_bytes(self) -> [u8; 16] {
        self.0
    }

    /// `None` for [`NIL`](Self::NIL).
    #[must_use]
    pub fn non_nil(self) -> Option<Self> {
        (self != Self::NIL).then_some(self)
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_endian_groups_are_turned_round() {
        // The BAT's identifier as it stands at 0x30010 of every VHDX file.
        let stored =
            [0x66, 0x77, 0xC2, 0x2D, 0x23, 0xF6, 0x00, 0x42, 0x9D, 0x64, 0x11, 0x5E, 0x9B, 0xFD, 0x4A, 0x08];
        let guid = Guid::from_le_bytes(stored);
        assert_eq!(guid.to_string(), "2dc27766-f623-4200-9d64-115e9bfd4a08");
        assert_eq!(guid, Guid::from_u128(0x2DC2_7766_F623_4200_9D64_115E_9BFD_4A08));
    }

    #[test]
    fn text_is_read_as_it_is_written_and_nothing_else_is() {
        let guid = Guid::from_u128(0x83ED_0EC3_24C8_49A6_A959_5E4B_F128_8BFB);
        for text in [
            "83ed0ec3-24c8-49a6-a959-5e4bf1288bfb",
            "{83ed0ec3-24c8-49a6-a959-5e4bf1288bfb}",
            "{83ED0EC3-24C8-49A6-A959-5E4BF1288BFB}",
        ] {
            assert_eq!(Guid::from_text(text), Some(guid), "{text}");
        }
        for text in [
            "",
            "{}",
            "83ed0ec324c849a6a9595e4bf1288bfb",
            "{83ed0ec3-24c8-49a6-a959-5e4bf1288bfb",
            "83ed0ec3-24c8-49a6-a959-5e4bf1288bfb-",
            "83ed0ec3-24c8-49a6-a959-5e4bf1288bfb0",
            "83ed0ec3-24c8-49a6-a959-5e4bf1288bf",
            "+3ed0ec3-24c8-49a6-a959-5e4bf1288bfb",
            "83ed0ec3-24c8-49a6-a959-5e4bf1288bé",
        ] {
            assert_eq!(Guid::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn random_identifiers_differ_and_say_that_they_are_random() {
        let (one, other) = (Guid::random().unwrap(), Guid::random().unwrap());
        assert_ne!(one, other);
        let text = one.to_string();
        assert_eq!(&text[14..15], "4", "{text}");
        assert!(matches!(&text[19..20], "8" | "9" | "a" | "b"), "{text}");
        assert_eq!(Guid::from_le_bytes(one.to_le_bytes()), one);
    }
}
