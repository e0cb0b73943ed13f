//! What the target sends (RFC 7143 §11), written straight into the connection's output.
use super::frame::{DIGEST_BYTES, Digests, padding};
use super::request::{LoginRequest, RejectReason};
use super::{BHS_BYTES, Bhs, NO_TAG};
use connections::ByteQueue;

/// The numbers that most PDUs of a target carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    /// StatSN.
    pub(crate) stat_sn: u32,
    /// ExpCmdSN: the next CmdSN that we take.
    pub(crate) exp_cmd_sn: u32,
    /// MaxCmdSN: the last that we have room for.
    pub(crate) max_cmd_sn: u32,
}

/// SCSI status (SAM-5 §5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ScsiStatus {
    Good = 0x00,
    CheckCondition = 0x02,
    ReservationConflict = 0x18,
}

/// How much more or less was moved than the initiator expected (RFC 7143 §11.4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residual {
    None,
    /// The command moves this much more than was expected; the rest was dropped.
    Overflow(u32),
    /// It moved this much less.
    Underflow(u32),
}

impl Residual {
    /// What results where `expected` bytes were announced and the command has `actual`.
    pub(crate) fn of(expected: u64, actual: u64) -> Self {
        let clamp = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match (expected.checked_sub(actual), actual.checked_sub(expected)) {
            (Some(0), _) | (None, None) => Self::None,
            (Some(less), _) => Self::Underflow(clamp(less)),
            (None, Some(more)) => Self::Overflow(clamp(more)),
        }
    }

    const fn flags(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Overflow(_) => 0x04,
            Self::Underflow(_) => 0x02,
        }
    }

    const fn count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Overflow(bytes) | Self::Underflow(bytes) => bytes,
        }
    }
}

impl Bhs {
    /// With StatSN, ExpCmdSN and MaxCmdSN at their usual places.
    pub(crate) fn with_numbers(mut self, numbers: Numbers) -> Self {
        self.put_u32(24, numbers.stat_sn);
        self.put_u32(28, numbers.exp_cmd_sn);
        self.put_u32(32, numbers.max_cmd_sn);
        self
    }

    pub(crate) fn with_itt(mut self, itt: u32) -> Self {
        self.put_u32(16, itt);
        self
    }
}

/// Writes one PDU with this header and data.
pub(crate) fn put_pdu(out: &mut ByteQueue, mut bhs: Bhs, data: &[u8], digests: Digests) {
    let slot = PduSlot::open(data.len(), digests);
    slot.data(out).copy_from_slice(data);
    slot.close(out, &mut bhs, digests);
}

/// A PDU being written in place: its data is filled first, its header last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PduSlot {
    data_start: usize,
    data_bytes: usize,
    total_bytes: usize,
}

impl PduSlot {
    /// Room for a PDU with this much data.
    pub(crate) fn open(data_bytes: usize, digests: Digests) -> Self {
        let digest = |on: bool| if on { DIGEST_BYTES } else { 0 };
        let data_start = BHS_BYTES.saturating_add(digest(digests.header));
        let padded = data_bytes.saturating_add(padding(data_bytes));
        let total_bytes =
            data_start.saturating_add(padded).saturating_add(digest(digests.data && data_bytes > 0));
        Self { data_start, data_bytes, total_bytes }
    }

    /// Where the data goes. Nothing is in the queue yet.
    pub(crate) fn data(self, out: &mut ByteQueue) -> &mut [u8] {
        let until = self.data_start.saturating_add(self.data_bytes);
        out.spare(self.total_bytes).get_mut(self.data_start..until).unwrap_or_default()
    }

    /// Writes header, padding and digests and takes the PDU into the queue.
    pub(crate) fn close(self, out: &mut ByteQueue, bhs: &mut Bhs, digests: Digests) {
        bhs.put_data_bytes(u32::try_from(self.data_bytes).unwrap_or(u32::MAX));
        let pdu = out.spare(self.total_bytes);
        if self.data_bytes > 0 {
            let data_end = self.data_start.saturating_add(self.data_bytes);
            let padded_end = data_end.saturating_add(padding(self.data_bytes));
            if let Some(fill) = pdu.get_mut(data_end..padded_end) {
                fill.fill(0);
            }
            if digests.data {
                put_digest(pdu, self.data_start, padded_end);
            }
        }
        self.put(out, bhs, digests.header);
    }

    /// Writes the header, as it is, and takes the PDU into the queue.
    fn put(self, out: &mut ByteQueue, bhs: &Bhs, digest: bool) {
        let pdu = out.spare(self.total_bytes);
        if let Some(header) = pdu.first_chunk_mut() {
            *header = bhs.0;
        }
        if digest {
            put_digest(pdu, 0, BHS_BYTES);
        }
        out.advance(self.total_bytes);
    }
}

/// Writes the header of a PDU whose `data_bytes` of data, a multiple of 4, the caller sends behind it. There is no
/// data digest.
pub(crate) fn put_header(out: &mut ByteQueue, mut bhs: Bhs, data_bytes: u32, digests: Digests) {
    let slot = PduSlot::open(0, Digests { data: false, ..digests });
    bhs.put_data_bytes(data_bytes);
    slot.put(out, &bhs, digests.header);
}

fn put_digest(pdu: &mut [u8], from: usize, to: usize) {
    let digest = crc32c::crc32c(pdu.get(from..to).unwrap_or_default());
    if let Some(field) = pdu.get_mut(to..).and_then(<[u8]>::first_chunk_mut) {
        *field = digest.to_le_bytes();
    }
}

/// SCSI Response (RFC 7143 §11.4).
pub(crate) fn scsi_response(itt: u32, status: ScsiStatus, residual: Residual, exp_data_sn: u32) -> Bhs {
    let mut bhs = Bhs::new(0x21, 0x80 | residual.flags()).with_itt(itt);
    bhs.0[2] = 0; // Response: command completed at target
    bhs.0[3] = status as u8;
    bhs.put_u32(36, exp_data_sn);
    bhs.put_u32(44, residual.count());
    bhs
}

/// The data segment of a SCSI Response with sense (RFC 7143 §11.4.7).
pub(crate) fn sense_segment(sense: &[u8]) -> Vec<u8> {
    let mut segment = u16::try_from(sense.len()).unwrap_or(0).to_be_bytes().to_vec();
    segment.extend_from_slice(sense);
    segment
}

/// SCSI Data-In (RFC 7143 §11.7). `status` makes it carry GOOD status too (the S bit).
pub(crate) struct DataIn {
    pub(crate) itt: u32,
    pub(crate) data_sn: u32,
    pub(crate) buffer_offset: u32,
    /// The last PDU of its sequence.
    pub(crate) last: bool,
    pub(crate) status: Option<Residual>,
}

impl DataIn {
    /// The header; StatSN is only set by the caller where there is a status.
    pub(crate) fn header(&self) -> Bhs {
        let last = if self.last { 0x80 } else { 0 };
        let status = self.status.map_or(0, |residual| 0x01 | residual.flags());
        let mut bhs = Bhs::new(0x25, last | status).with_itt(self.itt);
        bhs.put_u32(20, NO_TAG);
        bhs.put_u32(36, self.data_sn);
        bhs.put_u32(40, self.buffer_offset);
        bhs.put_u32(44, self.status.map_or(0, Residual::count));
        bhs
    }
}

/// Ready To Transfer (RFC 7143 §11.8).
pub(crate) struct R2t {
    pub(crate) lun: [u8; 8],
    pub(crate) itt: u32,
    pub(crate) ttt: u32,
    pub(crate) r2t_sn: u32,
    pub(crate) buffer_offset: u32,
    pub(crate) desired_bytes: u32,
}

impl R2t {
    pub(crate) fn header(&self) -> Bhs {
        let mut bhs = Bhs::new(0x31, 0x80).with_itt(self.itt);
        bhs.put(8, self.lun);
        bhs.put_u32(20, self.ttt);
        bhs.put_u32(36, self.r2t_sn);
        bhs.put_u32(40, self.buffer_offset);
        bhs.put_u32(44, self.desired_bytes);
        bhs
    }
}

/// Task Management Function Response (RFC 7143 §11.6).
pub(crate) fn task_management_response(itt: u32, response: u8) -> Bhs {
    let mut bhs = Bhs::new(0x22, 0x80).with_itt(itt);
    bhs.0[2] = response;
    bhs
}

/// NOP-In (RFC 7143 §11.19): the answer to a ping, or with `ttt` a ping of ours.
pub(crate) fn nop_in(lun: [u8; 8], itt: u32, ttt: u32) -> Bhs {
    let mut bhs = Bhs::new(0x20, 0x80).with_itt(itt);
    bhs.put(8, lun);
    bhs.put_u32(20, ttt);
    bhs
}

/// Text Response (RFC 7143 §11.11). With `ttt` more follows when the initiator asks for it.
pub(crate) fn text_response(itt: u32, ttt: Option<u32>) -> Bhs {
    let flags = if ttt.is_none() { 0x80 } else { 0 };
    let mut bhs = Bhs::new(0x24, flags).with_itt(itt);
    bhs.put_u32(20, ttt.unwrap_or(NO_TAG));
    bhs
}

/// Logout Response (RFC 7143 §11.15).
pub(crate) fn logout_response(itt: u32, response: u8) -> Bhs {
    let mut bhs = Bhs::new(0x26, 0x80).with_itt(itt);
    bhs.0[2] = response;
    bhs
}

/// Reject (RFC 7143 §11.17); its data segment is the refused header.
pub(crate) fn reject(reason: RejectReason) -> Bhs {
    let mut bhs = Bhs::new(0x3F, 0x80).with_itt(NO_TAG);
    bhs.0[2] = reason as u8;
    bhs
}

/// Asynchronous Message 1: the target asks for a logout within `seconds` (RFC 7143 §11.9.1).
pub(crate) fn logout_wanted(seconds: u16) -> Bhs {
    let mut bhs = Bhs::new(0x32, 0x80).with_itt(NO_TAG);
    bhs.0[36] = 1; // AsyncEvent
    bhs.put(42, seconds.to_be_bytes()); // Parameter3: Time2Wait until the target drops the connection
    bhs
}

/// Login Response (RFC 7143 §11.13).
pub(crate) struct LoginResponse {
    pub(crate) transit: bool,
    pub(crate) more: bool,
    pub(crate) tsih: u16,
    /// Class and detail; 0 is success.
    pub(crate) status: u16,
}

impl LoginResponse {
    pub(crate) fn header(&self, request: &LoginRequest) -> Bhs {
        let mut flags = (request.current_stage << 2) & 0x0C;
        if self.transit {
            flags |= 0x80 | request.next_stage;
        }
        if self.more {
            flags |= 0x40;
        }
        let mut bhs = Bhs::new(0x23, flags).with_itt(request.itt);
        // Bytes 2 and 3, Version-max and Version-active, stay 0: RFC 7143 is version 0.
        bhs.put(8, request.isid.0);
        bhs.put(14, self.tsih.to_be_bytes());
        bhs.put(36, self.status.to_be_bytes());
        bhs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residual_is_what_lies_between_expected_and_actual() {
        assert_eq!(Residual::of(512, 512), Residual::None);
        assert_eq!(Residual::of(1024, 512), Residual::Underflow(512));
        assert_eq!(Residual::of(0, 512), Residual::Overflow(512));
    }

    #[test]
    fn data_in_with_status_has_its_golden_bytes() {
        let data_in = DataIn {
            itt: 0x0102_0304,
            data_sn: 2,
            buffer_offset: 0x1000,
            last: true,
            status: Some(Residual::Underflow(0x200)),
        };
        let numbers = Numbers { stat_sn: 9, exp_cmd_sn: 10, max_cmd_sn: 20 };
        let mut out = ByteQueue::default();
        put_pdu(&mut out, data_in.header().with_numbers(numbers), &[0xAB; 5], Digests::default());
        let golden: [u8; 56] = [
            0x25, 0x83, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0,
            0, 9, 0, 0, 0, 10, 0, 0, 0, 20, 0, 0, 0, 2, 0, 0, 0x10, 0, 0, 0, 2, 0, 0xAB, 0xAB, 0xAB, 0xAB,
            0xAB, 0, 0, 0,
        ];
        assert_eq!(out.filled(), golden);
    }
}
