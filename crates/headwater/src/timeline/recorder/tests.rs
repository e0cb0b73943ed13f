//! What sessions, requests and beacons make of the timeline, as the recorder hears of them.
use block::ByteRange;
use iscsi::directory::{RequestKind, SessionEnd, SessionObserver};

use super::*;
use crate::timeline::Status;

const MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0x77, 0, 0x10]);
const IPXE: Program = Program::Initiator([0x40, 0, 0x27, 0x23, 0, 1]);
const LINUX: Program = Program::Initiator([0, 2, 0x3d, 0, 0, 1]);

struct Bench {
    dir: tempfile::TempDir,
    recorder: Arc<Recorder>,
    device: DeviceName,
    start: Moment,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(Clock::start(), BootStore::new(dir.path(), 5), &[]);
        let device = DeviceName::parse("lab-01").unwrap();
        let start = recorder.clock().now();
        Self { dir, recorder, device, start }
    }

    fn at(&self, ms: u64) -> Moment {
        self.start.after(Millis::from_us(ms * 1000))
    }

    fn boot<'a>(&'a self, id: &'a str) -> NewBoot<'a> {
        NewBoot {
            id,
            device: &self.device,
            mac: Some(MAC),
            vdisk: "debian",
            version: None,
            target: "t",
            disk_bytes: None,
        }
    }

    fn step(&self, ms: u64, step: BootStep) {
        self.recorder.step_at(self.at(ms), MAC, step);
    }

    fn only_boot(&self) -> BootRecord {
        let [boot] = self.recorder.live_of("lab-01").try_into().unwrap();
        boot
    }
}

fn peer(last: u8) -> Option<SocketAddr> {
    Some(SocketAddr::from(([10, 0, 0, last], 4711)))
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

#[test]
fn steps_before_the_script_belong_to_the_boot_that_it_begins() {
    let bench = Bench::new();
    bench.step(0, BootStep::Discover(ClientKind::BiosPxe));
    bench.step(1, BootStep::Offer(None));
    let took = Duration::from_millis(90);
    let file = BootStep::BootFile {
        name: "undionly.kpxe".into(),
        protocol: "tftp",
        size_bytes: 7,
        took,
        tftp: None,
    };
    bench.step(500, file);
    bench.step(600, BootStep::Discover(ClientKind::Ipxe));
    bench.recorder.script_at(bench.at(700), &bench.boot("b1"));
    let boot = bench.only_boot();
    let times: Vec<u64> = boot.steps.iter().map(|step| step.at_ms.us() / 1000).collect();
    assert_eq!(times, [0, 1, 410, 600, 700]);
    assert_eq!((boot.started_unix_us, boot.status), (bench.at(0), Status::Waiting));
}

#[test]
fn steps_that_waited_too_long_are_dropped() {
    let bench = Bench::new();
    bench.step(0, BootStep::Discover(ClientKind::BiosPxe));
    let later = PENDING_FOR.us() / 1000 + 1;
    bench.recorder.script_at(bench.at(later), &bench.boot("b1"));
    assert_eq!(bench.only_boot().steps.len(), 1);
}

#[test]
fn machine_that_starts_over_begins_its_steps_anew() {
    let bench = Bench::new();
    bench.step(0, BootStep::Discover(ClientKind::BiosPxe));
    bench.step(10, BootStep::Discover(ClientKind::BiosPxe)); // only sent again
    bench.step(20, BootStep::Discover(ClientKind::Ipxe));
    bench.step(9000, BootStep::Discover(ClientKind::BiosPxe));
    bench.recorder.script_at(bench.at(9500), &bench.boot("b1"));
    assert_eq!(bench.only_boot().steps.len(), 2);
}

#[test]
fn dhcp_of_the_operating_system_belongs_to_the_running_boot_until_it_is_ready() {
    let bench = Bench::new();
    bench.recorder.script_at(bench.at(0), &bench.boot("b1"));
    let _firmware = bench.recorder.login_at(bench.at(10), &bench.boot("b1"), IPXE, peer(9));
    bench.step(20, BootStep::Request(ClientKind::Other));
    bench.step(21, BootStep::Ack(None));
    assert_eq!(bench.only_boot().steps.len(), 4);
    assert!(bench.recorder.ready(Some(MAC), address(1)).is_some());
    bench.step(30, BootStep::Request(ClientKind::Other));
    bench.step(31, BootStep::Ack(None));
    assert_eq!(bench.only_boot().steps.len(), 5);
}

#[test]
fn requests_are_counted_in_the_stage_of_their_session() {
    let bench = Bench::new();
    let range = |bytes| ByteRange::new(block::ByteOffset::ZERO, block::ByteLength::new(bytes)).unwrap();
    let firmware = bench.recorder.login_at(bench.at(0), &bench.boot("b1"), IPXE, peer(9));
    SessionObserver::request_done(&firmware, RequestKind::Read, range(512), Duration::from_micros(5), true);
    let system = bench.recorder.login_at(bench.at(900), &bench.boot("b1"), LINUX, peer(9));
    SessionObserver::request_done(&system, RequestKind::Read, range(4096), Duration::from_micros(5), true);
    SessionObserver::request_done(&system, RequestKind::Write, range(8192), Duration::from_micros(5), false);
    SessionObserver::ended(&firmware, SessionEnd::Replaced);
    let boot = bench.only_boot();
    let (first, second) = (boot.first_stage.unwrap(), boot.second_stage.unwrap());
    assert_eq!((first.reads.bytes, second.reads.bytes, second.writes.errors), (512, 4096, 1));
    assert_eq!((boot.status, boot.sessions), (Status::SecondStage, 1));
}

#[test]
fn beacon_without_a_mac_finds_the_only_session_from_its_address() {
    let bench = Bench::new();
    let _one = bench.recorder.login_at(bench.at(0), &bench.boot("b1"), IPXE, peer(9));
    assert_eq!(bench.recorder.ready(None, address(8)), None);
    assert_eq!(bench.recorder.ready(None, address(9)), Some(("lab-01".into(), "b1".into(), true)));
    assert_eq!(bench.recorder.ready(None, address(9)), Some(("lab-01".into(), "b1".into(), false)));
    let other = DeviceName::parse("lab-02").unwrap();
    let boot = NewBoot { device: &other, mac: None, ..bench.boot("b2") };
    let _two = bench.recorder.login_at(bench.at(5), &boot, IPXE, peer(9));
    assert_eq!(bench.recorder.ready(None, address(9)), None, "two devices behind one address");
}

#[test]
fn next_boot_ends_those_before_it_and_their_files_say_so() {
    let bench = Bench::new();
    for (index, id) in ["b1", "b2", "b3"].into_iter().enumerate() {
        bench.recorder.script_at(bench.at(index as u64), &bench.boot(id));
    }
    let _first = bench.recorder.login_at(bench.at(10), &bench.boot("b1"), IPXE, peer(9));
    let _third = bench.recorder.login_at(bench.at(20), &bench.boot("b3"), IPXE, peer(9));
    assert_eq!(bench.only_boot().id, "b3");
    bench.recorder.save_changed(Duration::ZERO);
    let why = |id: &str| bench.recorder.store().load("lab-01", id).unwrap().unwrap().end.map(|end| end.why);
    assert_eq!(why("b1").as_deref(), Some("replaced by boot b3"));
    assert_eq!(why("b2").as_deref(), Some("never used"));
    assert_eq!(why("b3"), None);
}

#[test]
fn boot_goes_on_after_a_restart_with_its_figures() {
    let bench = Bench::new();
    let tap = bench.recorder.login_at(bench.at(0), &bench.boot("b1"), IPXE, peer(9));
    let range = ByteRange::new(block::ByteOffset::ZERO, block::ByteLength::new(4096)).unwrap();
    SessionObserver::request_done(&tap, RequestKind::Read, range, Duration::from_micros(5), true);
    bench.recorder.save_changed(Duration::ZERO);
    let store = BootStore::new(bench.dir.path(), 5);
    let restarted = Recorder::new(Clock::start(), store, std::slice::from_ref(&bench.device));
    let boot = restarted.live_of("lab-01").remove(0);
    assert_eq!((boot.status, boot.sessions), (Status::Disconnected, 0));
    let tap = restarted.login_at(bench.at(500), &bench.boot("b1"), LINUX, peer(9));
    SessionObserver::request_done(&tap, RequestKind::Read, range, Duration::from_micros(5), true);
    let boot = restarted.live_of("lab-01").remove(0);
    assert_eq!(boot.first_stage.unwrap().reads.count, 1);
    assert_eq!(boot.second_stage.unwrap().reads.count, 1);
    assert!(boot.hand_over.is_some());
}

#[test]
fn wait_for_a_turn_is_one_step_however_long_and_keeps_what_led_to_it() {
    let bench = Bench::new();
    bench.step(0, BootStep::Discover(ClientKind::Ipxe));
    let last = 20 * 60 * 1000;
    for ms in (1000..=last).step_by(5000) {
        bench.recorder.queued_at(bench.at(ms), MAC, Some(7));
    }
    bench.recorder.script_at(bench.at(last), &bench.boot("b1"));
    let boot = bench.only_boot();
    let waited_ms = Millis::from_us((last - 1000 - 4000) * 1000);
    assert_eq!(boot.steps.len(), 3, "{:?}", boot.steps);
    assert_eq!(boot.steps[1].kind, StepKind::Queue { place: Some(7), waited_ms });
}

#[test]
fn strangers_cannot_fill_the_memory() {
    let bench = Bench::new();
    for number in 0..MAX_PENDING_MACHINES as u64 + 10 {
        let [.., a, b, c, d] = number.to_be_bytes();
        let mac = MacAddress([2, 0, a, b, c, d]);
        bench.recorder.step_at(bench.at(number), mac, BootStep::Discover(ClientKind::BiosPxe));
    }
    for ms in 0..1000 {
        bench.step(100_000 + ms, BootStep::Discover(ClientKind::BiosPxe));
    }
    let table = bench.recorder.lock();
    assert_eq!(table.pending.len(), MAX_PENDING_MACHINES);
    assert_eq!(table.pending[&MAC].len(), MAX_PENDING_STEPS);
}
