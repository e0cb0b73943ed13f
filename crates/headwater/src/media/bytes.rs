//! An image under construction: bytes at places, zeros between them.

/// What has been written so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes(Vec<u8>);

impl Bytes {
    /// So many zeros.
    pub(super) fn zeros(size: usize) -> Self {
        Self(vec![0; size])
    }

    /// Puts bytes at an offset; the image grows as it must.
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        if let Some(place) = self.0.get_mut(at..end) {
            place.copy_from_slice(bytes);
        }
    }

    pub(super) fn put_u16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    pub(super) fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    pub(super) fn put_u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_le_bytes());
    }

    /// Adds zeros up to a multiple of `unit`.
    pub(super) fn pad_to_multiple_of(&mut self, unit: usize) {
        self.0.resize(self.0.len().next_multiple_of(unit), 0);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

/// A size or sector number in a field of 32 bits. The limits of the media keep all of them far below its end.
pub(super) fn u32_of(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The same in 16 bits.
pub(super) fn u16_of(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_put_beyond_the_end_leave_zeros_before_them() {
        let mut bytes = Bytes::default();
        bytes.put_u16(3, 0x0201);
        bytes.put(0, b"x");
        bytes.pad_to_multiple_of(8);
        assert_eq!(bytes.as_slice(), [b'x', 0, 0, 1, 2, 0, 0, 0]);
    }
}
