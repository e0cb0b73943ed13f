//! A version of what a device wrote into its persistent write cache.
use std::sync::Arc;

use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, Patience};
use control::{Code, Options, cache_version};
use diskimage::{Format, Image, OpenOptions};
use farm::model::{
    Access, Collection, Device, DeviceProfile, Disks, Owner, PersistentCache, Purpose, Sharing, Stored,
    Subject, TaskState, VdiskId, VersionState,
};
use farm::rules::leases::Wanted;
use vdisk::{BootId, CacheObserver, ImageFingerprint, Volume, WriteCacheConfig, WriteCacheKind};

use crate::sample::{Farm, n, text};

#[derive(Debug)]
struct Unobserved;

impl CacheObserver for Unobserved {
    fn warning(&self, _: &str, _: vdisk::CacheUsage) {}

    fn full(&self, _: &str, _: vdisk::CacheUsage, _: vdisk::FullCause) {}
}

fn with_caches(options: Options) -> Options {
    let caches = options.exchange.clone();
    Options { caches, ..options }
}

/// The volume of device "lab-07" on version 0 of a vDisk.
fn volume(farm: &Farm) -> Volume {
    let image = Image::open(&farm.path("golden.vhdx"), OpenOptions::default()).unwrap();
    let config = WriteCacheConfig {
        kind: WriteCacheKind::Persistent,
        directory: farm.root().join("exchange"),
        device: "lab-07".to_owned(),
        limit: ByteLength::new(1 << 30),
        warn_percent: 80,
    };
    let boot = BootId::new("boot-1").unwrap();
    Volume::begin_boot(Arc::new(image), ImageFingerprint([7; 32]), &config, boot, Arc::new(Unobserved))
        .unwrap()
}

/// The device, and what the catalogue says of its write cache.
fn cache(farm: &Farm, vdisk: VdiskId) -> Stored<PersistentCache> {
    let made = farm.control.change(&farm.by(), |change| {
        let site = change.site(&text("Berlin"))?.id;
        let (name, description) = (text("Lab"), text(""));
        let lab = Collection::plain(name, site, description);
        let collection = change.create(lab)?.id;
        let device = change.create(Device {
            profile: DeviceProfile { disks: Disks::one(vdisk), ..DeviceProfile::default() },
            ..Device::plain(text("lab-07"), collection, text(""))
        })?;
        let (version, server, made_at) = (n(0), farm.server, change.now());
        Ok(change.create(PersistentCache {
            device: device.id,
            vdisk,
            version,
            server,
            stays: false,
            made_at,
        })?)
    });
    made.unwrap()
}

#[test]
fn what_a_device_wrote_becomes_a_version_under_maintenance() {
    let farm = Farm::with(with_caches);
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let row = cache(&farm, vdisk);
    let disk = volume(&farm);
    disk.write(ByteOffset::new(3 << 20), &[5; 8192], Patience::Blocking).unwrap();
    let first = ByteRange::new(ByteOffset::new(0), ByteLength::new(4096)).unwrap();
    disk.write_zeroes(first, Patience::Blocking).unwrap();
    disk.flush(Patience::Blocking).unwrap();
    // While the device runs, nobody else reads what it writes.
    let _runner = farm.control.start().unwrap();
    let task = cache_version::begin(&farm.control, &farm.by(), row.id, &text("")).unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Failed, "{status:?}");
    assert_eq!(farm.numbers(vdisk), [0]);
    disk.close().unwrap();
    drop(disk);
    // A newer version changes nothing: the difference stands where it means something.
    farm.update(vdisk, 1 << 20, 2);
    let task = cache_version::begin(&farm.control, &farm.by(), row.id, &text("as lab-07 has it")).unwrap();
    let status = farm.ended(task.id);
    assert_eq!(status.task.state, TaskState::Done, "{status:?}");
    let made = farm.version(vdisk, 2);
    assert_eq!((made.access, made.state), (Access::Maintenance, VersionState::Ready));
    assert_eq!(made.lineage.parent(), Some(n(0)));
    assert_eq!(farm.contents(&made)[..5], [0, 0, 0, 5, 0]);
    assert_eq!(status.progress.done, status.progress.total);
    // It is as it was.
    let disk = volume(&farm);
    let mut bytes = [0; 512];
    disk.read(ByteOffset::new(3 << 20), &mut bytes, Patience::Blocking).unwrap();
    assert_eq!(bytes, [5; 512]);
}

#[test]
fn write_cache_of_a_device_that_runs_or_of_another_server_is_left_alone() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let row = cache(&farm, vdisk);
    let error = cache_version::begin(&farm.control, &farm.by(), row.id, &text("")).unwrap_err();
    assert_eq!(error.code, Code::Unsupported);
    let farm = farm.restarted(with_caches);
    farm.control
        .change(&farm.by(), |change| {
            let subject = Subject::Contents(change.version(vdisk, n(0))?.id);
            let owner = Owner::Device(row.device);
            let wanted = Wanted { subject, sharing: Sharing::Shared, purpose: Purpose::Boot, owner };
            Ok(change.lease(&wanted, farm.server)?)
        })
        .unwrap();
    let error = cache_version::begin(&farm.control, &farm.by(), row.id, &text("")).unwrap_err();
    assert_eq!(error.code, Code::InUse);
    assert!(error.message.contains("device lab-07"), "{error}");
    assert_eq!(farm.numbers(vdisk), [0]);
}
