//! Findings of recorded boots, and of made ones for what no recorded boot shows.
use super::*;
use crate::timeline::Moment;
use crate::timeline::counters::{Kind, StageCounters};
use crate::timeline::pattern::Pattern;
use crate::timeline::record::{Login, Program, WriteCacheFill};
use block::{ByteLength, ByteOffset, ByteRange};
use std::time::Duration;

fn at(ms: u64) -> Moment {
    Moment::from_unix_us(1_795_236_426_000_000 + ms * 1000)
}

fn login(isid: [u8; 6], last: Option<Moment>) -> Login {
    Login { program: Program::Initiator(isid), peer: None, first_stage_last: last }
}

/// A boot with a first stage of 8 s from 2 s on, and ready at 20 s.
fn boot(first: &StageCounters) -> BootRecord {
    let mut boot = BootRecord::begin("1", "lab-01", "debian", "t", at(0));
    boot.step(at(1000), StepKind::Script);
    boot.login(at(2000), login([0x40, 0, 0x27, 0x23, 0, 1], None));
    boot.login(at(10_100), login([0, 2, 0x3d, 0, 0, 1], Some(at(10_000))));
    boot.ready(at(20_000));
    boot.first_stage = first.totals(at(0));
    boot
}

fn kinds(record: &BootRecord) -> Vec<FindingKind> {
    findings(record).iter().map(|finding| finding.kind).collect()
}

fn the(record: &BootRecord, kind: FindingKind) -> Finding {
    let found = findings(record);
    found.iter().find(|finding| finding.kind == kind).unwrap_or_else(|| panic!("{found:?}")).clone()
}

fn file(name: &str, size_bytes: u64, took_ms: u64, tftp: Option<Tftp>) -> StepKind {
    let protocol = if tftp.is_some() { "tftp" } else { "http" }.to_owned();
    StepKind::BootFile {
        name: name.into(),
        protocol,
        size_bytes,
        took_ms: Millis::from_us(took_ms * 1000),
        tftp,
    }
}

#[test]
fn recorded_bios_boot_waited_for_its_kernel_to_start() {
    let record: BootRecord = serde_json::from_str(include_str!("../samples/bios_micro.json")).unwrap();
    let found = the(&record, FindingKind::HandOverGap);
    assert_eq!(found.percent, Some(76));
    assert!(found.what.starts_with("no request for 16.1 s between firmware and initiator"), "{}", found.what);
}

#[test]
fn small_reads_one_at_a_time_are_named_with_their_share_of_the_stage() {
    let first = StageCounters::default();
    for n in 0..2310_u64 {
        let range = ByteRange::new(ByteOffset::new(n * 5120), ByteLength::new(512)).unwrap();
        let done = Moment::from_unix_us(at(2000).unix_us() + n * 1420);
        first.record(done, Kind::Read, range, Duration::from_micros(40), true);
    }
    let found = the(&boot(&first), FindingKind::SmallReads);
    assert_eq!(
        found.what,
        "40 % of the first stage was 2,310 reads of 512 bytes, one at a time (the server itself took 92.4 ms)"
    );
    assert!(found.advice.unwrap().contains("boot = \"kernel\""));
    assert_eq!(found.percent, Some(16));
}

#[test]
fn reads_that_are_large_or_many_at_a_time_are_no_finding() {
    for (length, gap_us, latency_us) in [(1 << 20, 1420, 40), (512, 1, 100_000)] {
        let first = StageCounters::default();
        for n in 0..2310_u64 {
            let range = ByteRange::new(ByteOffset::new(n * length), ByteLength::new(length)).unwrap();
            let done = Moment::from_unix_us(at(2000).unix_us() + 200_000 + n * gap_us);
            first.record(done, Kind::Read, range, Duration::from_micros(latency_us), true);
        }
        assert!(!kinds(&boot(&first)).contains(&FindingKind::SmallReads), "{length}");
    }
}

#[test]
fn slow_tftp_says_its_block_size_and_lost_blocks_say_so() {
    let mut record = boot(&StageCounters::default());
    let tftp = Tftp { block_bytes: 1428, window_blocks: 1, resent: 0 };
    record.step(at(0), file("ipxe.efi", 1 << 20, 900, Some(tftp)));
    let found = the(&record, FindingKind::SlowTftp);
    assert_eq!(
        found.what,
        "ipxe.efi came by TFTP at 1.1 MiB/s: 1.0 MiB in blocks of 1428 bytes, one at a time"
    );
    assert!(found.advice.unwrap().contains("HTTP Boot"));
    record.steps.remove(0);
    record.step(at(0), file("ipxe.efi", 1 << 20, 900, Some(Tftp { resent: 7, ..tftp })));
    assert!(the(&record, FindingKind::LostTftp).what.contains("7 of 735 TFTP blocks of 1428 bytes"));
}

#[test]
fn large_tftp_blocks_that_never_arrive_point_to_the_path_mtu() {
    let mut record = boot(&StageCounters::default());
    let lost = |acknowledged_bytes, block_bytes| StepKind::BootFileLost {
        name: "ipxe.efi".into(),
        size_bytes: 1 << 20,
        acknowledged_bytes,
        took_ms: Millis::from_us(40_000_000),
        tftp: Tftp { block_bytes, window_blocks: 1, resent: 6 },
    };
    record.step(at(0), lost(0, 1468));
    let found = the(&record, FindingKind::BrokenTftp);
    assert!(found.what.contains("1468 bytes arrived: the network drops larger ones"), "{}", found.what);
    assert!(found.advice.unwrap().contains("ping -M do"));
    record.steps.remove(0);
    record.step(at(0), lost(512, 512));
    assert!(the(&record, FindingKind::BrokenTftp).what.contains("fell silent after 512 B of 1.0 MiB"));
}

#[test]
fn dhcp_that_is_asked_again_is_counted_until_an_address_is_taken() {
    let mut record = BootRecord::begin("1", "lab-01", "debian", "t", at(0));
    for ms in [0, 1000, 3000] {
        record.step(at(ms), StepKind::DhcpDiscover { client: "UEFI PXE".into() });
    }
    record.step(at(4000), StepKind::DhcpRequest { client: "UEFI PXE".into() });
    record.step(at(5000), StepKind::DhcpDiscover { client: "iPXE".into() });
    record.step(at(5900), StepKind::DhcpRequest { client: "iPXE".into() });
    assert_eq!(kinds(&record), [FindingKind::DhcpRetries]);
    let found = the(&record, FindingKind::DhcpRetries);
    assert_eq!(found.what, "DHCP took 4.0 s: UEFI PXE asked 3 times before it took an address");
}

#[test]
fn wait_between_address_and_script_points_to_router_advertisements() {
    let mut record = BootRecord::begin("1", "lab-01", "debian", "t", at(0));
    record.step(at(100), StepKind::DhcpAck { address: None });
    record.step(at(13_400), StepKind::Script);
    let found = the(&record, FindingKind::IpxeWaits);
    assert!(found.what.starts_with("13.3 s between"), "{}", found.what);
    // What a large boot file takes is not iPXE's waiting.
    let slow = Tftp { block_bytes: 512, window_blocks: 1, resent: 0 };
    record.step(at(200), file("ipxe.efi", 1 << 20, 13_000, Some(slow)));
    assert!(!kinds(&record).contains(&FindingKind::IpxeWaits));
}

#[test]
fn reads_that_wait_for_the_store_are_cold_or_slow() {
    for (latency_us, advice) in [(4000, "not in the server's memory"), (60_000, "the store is slow")] {
        let mut record = boot(&StageCounters::default());
        let second = StageCounters::default();
        for n in 0..1000_u64 {
            let range = ByteRange::new(ByteOffset::new(n * 65_536), ByteLength::new(65_536)).unwrap();
            let done = Moment::from_unix_us(at(11_000).unix_us() + n * 5000);
            second.record(done, Kind::Read, range, Duration::from_micros(latency_us), true);
        }
        record.until_ready = second.totals(at(0));
        let found = the(&record, FindingKind::SlowStore);
        assert!(found.what.starts_with("1,000 of 1,000 reads of the second stage waited"), "{}", found.what);
        assert!(found.advice.unwrap().contains(advice), "{latency_us}");
    }
}

#[test]
fn firmware_session_lost_when_the_kernel_starts_is_told_by_the_hand_over_gap_alone() {
    let mut record = BootRecord::begin("1", "lab-01", "debian", "t", at(0));
    record.login(at(1000), login([0x40, 0, 0x27, 0x23, 0, 1], None));
    record.session_end(at(10_000), "connection lost");
    record.login(at(31_700), login([0, 2, 0x3d, 0, 0, 1], Some(at(9_900))));
    record.ready(at(40_000));
    assert!(kinds(&record).contains(&FindingKind::HandOverGap));
    assert!(!kinds(&record).contains(&FindingKind::Disconnected), "{:?}", findings(&record));
    // What is lost on another occasion is told.
    let mut record = BootRecord::begin("1", "lab-01", "debian", "t", at(0));
    record.login(at(1000), login([0x40, 0, 0x27, 0x23, 0, 1], None));
    record.session_end(at(2000), "connection lost");
    record.login(at(5000), login([0x40, 0, 0x27, 0x23, 0, 2], None));
    record.login(at(10_000), login([0, 2, 0x3d, 0, 0, 1], Some(at(9_900))));
    record.ready(at(20_000));
    assert!(the(&record, FindingKind::Disconnected).what.ends_with("3.0 s"));
}

#[test]
fn wait_for_a_turn_to_boot_is_a_finding_and_no_wait_of_ipxe() {
    let mut record = boot(&StageCounters::default());
    record.step(at(10), StepKind::DhcpAck { address: None });
    record.step(at(20), StepKind::Queue { place: Some(7), waited_ms: Millis::from_us(900_000) });
    let found = the(&record, FindingKind::Queued);
    assert_eq!((found.what.as_str(), found.percent), ("0.9 s in the queue of this server", Some(5)));
    assert!(!kinds(&record).contains(&FindingKind::IpxeWaits));
}

#[test]
fn much_that_is_read_again_asks_for_memory() {
    let mut record = boot(&StageCounters::default());
    let mut second = StageTotals::default();
    second.reads.bytes = MUCH_BYTES;
    second.read_pattern =
        Pattern { sampled_bytes: 1_000_000, sampled_again_bytes: 560_000, ..Pattern::default() };
    record.until_ready = Some(second);
    let found = the(&record, FindingKind::ReadAgain);
    assert_eq!(found.what, "56 % of the 16.0 MiB that the operating system read it had read before");
}

#[test]
fn packets_smaller_than_the_link_sends_are_a_finding() {
    use crate::path::PathMtu;
    let mut record = boot(&StageCounters::default());
    let path = |segment| PathMtu {
        mtu_bytes: 9000,
        interface: Some("eth0".into()),
        link_mtu_bytes: Some(9000),
        agreed_segment_bytes: Some(segment),
        segment_bytes: Some(segment),
    };
    record.path = Some(path(8948));
    assert!(!kinds(&record).contains(&FindingKind::SmallPackets));
    record.path = Some(path(1448));
    assert!(the(&record, FindingKind::SmallPackets).what.ends_with("the device takes no larger ones"));
}

#[test]
fn write_cache_is_a_finding_from_its_warning_on() {
    let mut record = boot(&StageCounters::default());
    let fill = WriteCacheFill { used_bytes: 79, limit_bytes: 100, warn_at_bytes: 80 };
    record.write_cache = Some(fill);
    assert!(!kinds(&record).contains(&FindingKind::WriteCache));
    record.write_cache = Some(WriteCacheFill { used_bytes: 80, ..fill });
    assert_eq!(the(&record, FindingKind::WriteCache).what, "the write cache is nearly full: 80 B of 100 B");
    record.write_cache = Some(WriteCacheFill { used_bytes: 100, ..fill });
    record.finish(at(30_000), "reset".into());
    assert!(the(&record, FindingKind::WriteCache).what.starts_with("the write cache was FULL"));
}

#[test]
fn lost_connection_counts_from_its_end_to_the_next_login() {
    let mut record = BootRecord::begin("1", "lab-01", "debian", "t", at(0));
    record.login(at(1000), login([0x40, 0, 0x27, 0x23, 0, 1], None));
    // BIOS iPXE drops its first session; that is no finding.
    record.session_end(at(1020), "connection lost");
    record.login(at(1080), login([0x40, 0, 0x27, 0x23, 0, 1], None));
    assert!(!kinds(&record).contains(&FindingKind::Disconnected));
    record.session_end(at(4000), "connection lost");
    record.login(at(9000), login([0x40, 0, 0x27, 0x23, 0, 1], None));
    record.ready(at(10_000));
    assert!(the(&record, FindingKind::Disconnected).what.contains("without a connection for 5.1 s"));
}

#[test]
fn failed_requests_and_restarts_are_findings_whatever_they_took() {
    let mut record = boot(&StageCounters::default());
    let mut second = StageTotals::default();
    second.reads.errors = 1200;
    record.second_stage = Some(second);
    record.restarted(at(15_000));
    assert_eq!(the(&record, FindingKind::FailedRequests).what, "1,200 requests FAILED");
    assert!(kinds(&record).contains(&FindingKind::ServerRestart));
}

#[test]
fn slow_http_and_the_order_of_findings() {
    let mut record = boot(&StageCounters::default());
    record.step(at(1200), file("initrd.img", 20 << 20, 5000, None));
    let found = findings(&record);
    assert_eq!(found[0].kind, FindingKind::SlowHttp);
    assert_eq!(found[0].what, "initrd.img came over HTTP at 4.0 MiB/s (20.0 MiB in 5.0 s)");
    assert!(found.is_sorted_by_key(|finding| std::cmp::Reverse(finding.took_ms)));
}
