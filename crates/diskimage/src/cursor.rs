//! Reads the fields of an on-disk structure in their order. Nothing is read past the structure's end: a field that
//! is not all there is `None`.

/// What is left of a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn skip(&mut self, length: usize) -> Option<()> {
        self.slice(length).map(|_| ())
    }

    pub(crate) fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(field)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*field)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn be_u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn be_u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn be_u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn le_u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn le_u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn le_u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_order_and_not_past_the_end() {
        let mut cursor = Cursor::new(&[1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(cursor.be_u16(), Some(0x0102));
        assert_eq!(cursor.skip(1), Some(()));
        assert_eq!(cursor.le_u16(), Some(0x0504));
        assert_eq!(cursor.le_u32(), None);
        assert_eq!(cursor.slice(2), Some(&[6, 7][..]));
        assert_eq!(cursor.u8(), None);
    }
}
