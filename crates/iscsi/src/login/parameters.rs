//! Operational parameters and their negotiation (RFC 7143 §6.2, §13).
use crate::limits::{FIRST_BURST_BYTES, MAX_BURST_BYTES, MAX_OUTSTANDING_R2T, RECEIVE_DATA_SEGMENT_BYTES};
use crate::pdu::frame::Digests;
use crate::text::TextWriter;

/// What was agreed on. Begins with the defaults of RFC 7143 §13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) digests: Digests,
    /// The largest data segment that the initiator takes.
    pub(crate) send_data_segment_bytes: u32,
    pub(crate) max_burst_bytes: u32,
    pub(crate) first_burst_bytes: u32,
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
    pub(crate) max_outstanding_r2t: u32,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            digests: Digests::default(),
            send_data_segment_bytes: 8192,
            max_burst_bytes: 262_144,
            first_burst_bytes: 65_536,
            initial_r2t: true,
            immediate_data: true,
            max_outstanding_r2t: 1,
        }
    }
}

/// Lengths that may be negotiated: 512 to 2^24-1 bytes (RFC 7143 §13.12 to §13.14).
const LENGTHS: std::ops::RangeInclusive<u32> = 512..=0x00FF_FFFF;

impl Parameters {
    /// Takes what the initiator says about `key` and writes our answer. `None` where it is no operational key.
    pub(super) fn negotiate(&mut self, key: &str, value: &str, reply: &mut TextWriter) -> Option<()> {
        let answer = match key {
            "HeaderDigest" => digest(value, &mut self.digests.header),
            "DataDigest" => digest(value, &mut self.digests.data),
            "MaxRecvDataSegmentLength" => {
                // Declarative: our own is declared once for each login, by the caller.
                let declared = number(value).filter(|bytes| LENGTHS.contains(bytes));
                self.send_data_segment_bytes = declared.unwrap_or(self.send_data_segment_bytes);
                declared.map_or(Answer::Reject, |_| Answer::None)
            }
            "MaxBurstLength" => minimum(value, MAX_BURST_BYTES, LENGTHS, &mut self.max_burst_bytes),
            "FirstBurstLength" => minimum(value, FIRST_BURST_BYTES, LENGTHS, &mut self.first_burst_bytes),
            "MaxOutstandingR2T" => {
                minimum(value, MAX_OUTSTANDING_R2T, 1..=65535, &mut self.max_outstanding_r2t)
            }
            // OR: we could do without.
            "InitialR2T" => boolean(value, |theirs| theirs, &mut self.initial_r2t),
            // AND: we can.
            "ImmediateData" => boolean(value, |theirs| theirs, &mut self.immediate_data),
            "MaxConnections" => minimum(value, 1, 1..=65535, &mut 1),
            "ErrorRecoveryLevel" => minimum(value, 0, 0..=2, &mut 0),
            // OR, and we need both.
            "DataPDUInOrder" | "DataSequenceInOrder" => boolean(value, |_| true, &mut true),
            // The larger one counts; we ask for no wait.
            "DefaultTime2Wait" => range(value, |theirs| theirs),
            // The smaller one counts; at error recovery level 0 nothing is retained.
            "DefaultTime2Retain" => range(value, |_| 0),
            "TaskReporting" => choice(value, &["RFC3720"]),
            "iSCSIProtocolLevel" => minimum(value, 1, 0..=31, &mut 1),
            // RFC 7143 §13.25: markers are gone; the answer that RFC 3720 initiators understand is No.
            "IFMarker" | "OFMarker" => Answer::Says("No".to_owned()),
            "IFMarkInt" | "OFMarkInt" => Answer::Says("Irrelevant".to_owned()),
            _ => return None,
        };
        match answer {
            Answer::None => {}
            Answer::Says(text) => {
                reply.put(key, &text);
            }
            Answer::Reject => {
                reply.put(key, "Reject");
            }
        }
        Some(())
    }

    /// What we say unasked, once, in the operational stage.
    pub(super) fn declare(reply: &mut TextWriter) {
        reply.put("MaxRecvDataSegmentLength", &RECEIVE_DATA_SEGMENT_BYTES.to_string());
    }

    /// What must hold between parameters, once all are known.
    pub(super) fn settled(mut self) -> Self {
        // RFC 7143 §13.14: FirstBurstLength must not exceed MaxBurstLength.
        self.first_burst_bytes = self.first_burst_bytes.min(self.max_burst_bytes);
        self
    }
}

/// The answer to one key.
enum Answer {
    /// None is due.
    None,
    /// This value.
    Says(String),
    /// The value was not legal (RFC 7143 §6.2).
    Reject,
}

fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => value.parse().ok(),
    }
}

fn minimum(value: &str, ours: u32, legal: std::ops::RangeInclusive<u32>, result: &mut u32) -> Answer {
    let Some(theirs) = number(value).filter(|number| legal.contains(number)) else {
        return Answer::Reject;
    };
    *result = theirs.min(ours);
    Answer::Says(result.to_string())
}

fn range(value: &str, choose: impl Fn(u32) -> u32) -> Answer {
    number(value)
        .filter(|seconds| *seconds <= 3600)
        .map_or(Answer::Reject, |theirs| Answer::Says(choose(theirs).to_string()))
}

fn boolean(value: &str, choose: impl Fn(bool) -> bool, result: &mut bool) -> Answer {
    let theirs = match value {
        "Yes" => true,
        "No" => false,
        _ => return Answer::Reject,
    };
    *result = choose(theirs);
    Answer::Says(if *result { "Yes" } else { "No" }.to_owned())
}

/// The first of the initiator's list that we know (RFC 7143 §6.2.1).
pub(super) fn first_known<'a>(list: &'a str, known: &[&str]) -> Option<&'a str> {
    list.split(',').find(|offer| known.contains(offer))
}

fn choice(value: &str, known: &[&str]) -> Answer {
    first_known(value, known).map_or(Answer::Reject, |chosen| Answer::Says(chosen.to_owned()))
}

fn digest(value: &str, on: &mut bool) -> Answer {
    let chosen = first_known(value, &["CRC32C", "None"]);
    *on = chosen == Some("CRC32C");
    chosen.map_or(Answer::Reject, |chosen| Answer::Says(chosen.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(key: &str, value: &str) -> (Parameters, String) {
        let mut parameters = Parameters::default();
        let mut reply = TextWriter::new(1000);
        parameters.negotiate(key, value, &mut reply);
        (parameters.settled(), String::from_utf8(reply.finish()).unwrap().replace('\0', ""))
    }

    #[test]
    fn first_digest_of_the_list_that_we_know_is_chosen() {
        assert_eq!(answer("HeaderDigest", "CRC32C,None").1, "HeaderDigest=CRC32C");
        assert_eq!(answer("HeaderDigest", "None,CRC32C").1, "HeaderDigest=None");
        assert_eq!(answer("DataDigest", "SHA512,CRC32C").1, "DataDigest=CRC32C");
        assert_eq!(answer("DataDigest", "SHA512").1, "DataDigest=Reject");
    }

    #[test]
    fn smaller_of_two_numbers_counts_and_illegal_ones_are_rejected() {
        assert_eq!(answer("MaxBurstLength", "16776192").1, "MaxBurstLength=1048576");
        assert_eq!(answer("MaxBurstLength", "512").0.first_burst_bytes, 512);
        for bad in ["0", "511", "16777216", "-1", "x", "", "99999999999"] {
            assert_eq!(answer("MaxBurstLength", bad).1, "MaxBurstLength=Reject", "{bad}");
        }
    }

    #[test]
    fn booleans_follow_their_rules() {
        assert!(!answer("InitialR2T", "No").0.initial_r2t);
        assert!(!answer("ImmediateData", "No").0.immediate_data);
        assert_eq!(answer("DataPDUInOrder", "No").1, "DataPDUInOrder=Yes");
    }

    #[test]
    fn declared_segment_length_limits_what_is_sent() {
        let (parameters, reply) = answer("MaxRecvDataSegmentLength", "4096");
        assert_eq!((parameters.send_data_segment_bytes, reply.as_str()), (4096, ""));
    }
}
