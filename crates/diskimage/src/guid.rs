//! Globally unique identifiers, in the two byte orders in which image formats store them.
use std::fmt;

/// An identifier of 16 bytes, in the order in which its text is written (RFC 4122 §4.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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
}
