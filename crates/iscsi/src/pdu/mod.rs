//! The PDUs of iSCSI (RFC 7143 §11): 48 bytes of basic header segment, each field big-endian, then optional
//! additional header segments, header digest, data segment and data digest.
//!
//! [`frame`](frame::frame) finds one PDU in a byte stream; [`Request::parse`](request::Request::parse) gives it a type;
//! [`reply`] writes what the target sends.
pub(crate) mod frame;
pub(crate) mod reply;
pub(crate) mod request;

/// Bytes of the basic header segment.
pub(crate) const BHS_BYTES: usize = 48;

/// The tag that stands for "none" in Initiator and Target Transfer Tags (RFC 7143 §11.2.1.8).
pub(crate) const NO_TAG: u32 = 0xFFFF_FFFF;

/// A basic header segment, not yet understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bhs(pub(crate) [u8; BHS_BYTES]);

impl Bhs {
    /// A header of zeros but for the opcode and the flags behind it.
    pub(crate) const fn new(opcode: u8, flags: u8) -> Self {
        let mut bytes = [0; BHS_BYTES];
        bytes[0] = opcode;
        bytes[1] = flags;
        Self(bytes)
    }

    /// What the PDU is (RFC 7143 §11.2.1.2).
    pub(crate) const fn opcode(&self) -> u8 {
        self.0[0] & 0x3F
    }

    /// Whether it stands outside the command sequence (the I bit).
    pub(crate) const fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// The byte behind the opcode.
    pub(crate) const fn flags(&self) -> u8 {
        self.0[1]
    }

    /// Bytes of additional header segments.
    pub(crate) fn ahs_bytes(&self) -> usize {
        usize::from(self.0[4]).saturating_mul(4)
    }

    /// Bytes of the data segment, without padding.
    pub(crate) const fn data_bytes(&self) -> u32 {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]])
    }

    /// The logical unit number field, as SAM-5 §4.7 lays it out.
    pub(crate) fn lun(&self) -> [u8; 8] {
        self.array(8)
    }

    /// The Initiator Task Tag.
    pub(crate) fn itt(&self) -> u32 {
        self.u32_at(16)
    }

    /// The Target Transfer Tag, or whatever stands in its place.
    pub(crate) fn ttt(&self) -> u32 {
        self.u32_at(20)
    }

    /// CmdSN, in the PDUs that have one.
    pub(crate) fn cmd_sn(&self) -> u32 {
        self.u32_at(24)
    }

    #[inline]
    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    #[inline]
    pub(crate) fn u16_at(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }

    #[inline]
    pub(crate) fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(field) = self.0.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *field = bytes;
        }
    }

    #[inline]
    pub(crate) fn put_u32(&mut self, at: usize, value: u32) {
        self.put(at, value.to_be_bytes());
    }

    /// Sets the length of the data segment; its upper byte has no room and is dropped.
    pub(crate) fn put_data_bytes(&mut self, bytes: u32) {
        let [_, high, middle, low] = bytes.to_be_bytes();
        self.put(5, [high, middle, low]);
    }
}
