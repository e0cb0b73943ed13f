//! vDisks as a whole.
use control::Code;
use control::vdisks::{Files, create_blank, delete};
use diskimage::{Format, LayerInfo};
use farm::model::{
    AccessMode, ByteSize, Collection, Device, DeviceProfile, Disks, Lease, Owner, Purpose, Sharing, Subject,
    Vdisk, VersionState,
};
use farm::rules::leases::Wanted;

use crate::sample::{Farm, text};

fn blank(farm: &Farm, name: &str) -> Vdisk {
    let model = farm.vdisk(&format!("model-of-{name}"), Format::Vhdx);
    let model = farm.control.read(|reader| Ok(reader.get(model)?)).unwrap();
    Vdisk { name: text(name), mode: AccessMode::Private, ..model.value }
}

fn size(mib: u64) -> ByteSize {
    ByteSize::new(mib << 20).unwrap()
}

#[test]
fn vdisk_is_made_with_an_empty_disk_and_goes_with_its_files() {
    let farm = Farm::new();
    let vdisk = blank(&farm, "fresh");
    let made = create_blank(&farm.control, &farm.by(), &vdisk, size(64)).unwrap();
    let version = farm.version(made.id, 0);
    assert_eq!(version.state, VersionState::Ready);
    let layer = LayerInfo::of_file(&farm.path("fresh.vhdx"), None).unwrap();
    assert_eq!(layer.info.virtual_size.get(), 64 << 20);
    farm.update(farm.vdisk("other", Format::Vhdx), 0, 2);
    delete(&farm.control, &farm.by(), made.id, made.revision, Files::Remove).unwrap();
    assert_eq!(farm.files(), ["model-of-fresh.vhdx", "other.1.avhdx", "other.vhdx"]);
    let gone = farm.control.read(|reader| Ok(reader.get(made.id)?)).unwrap_err();
    assert_eq!(gone.code, Code::NotFound);
}

#[test]
fn vdisk_with_a_chain_goes_whole_or_leaves_its_files() {
    let farm = Farm::new();
    for files in [Files::Keep, Files::Remove] {
        let vdisk = farm.vdisk("golden", Format::Vhdx);
        farm.update(vdisk, 0, 2);
        farm.update(vdisk, 0, 3);
        let of = farm.control.read(|reader| Ok(reader.get(vdisk)?)).unwrap();
        let stale = delete(&farm.control, &farm.by(), vdisk, of.revision.next(), files).unwrap_err();
        assert_eq!(stale.code, Code::Stale);
        delete(&farm.control, &farm.by(), vdisk, of.revision, files).unwrap();
        let left = if files == Files::Keep { 3 } else { 0 };
        assert_eq!(farm.files().len(), left, "{files:?}");
        farm.files().iter().for_each(|file| std::fs::remove_file(farm.path(file)).unwrap());
    }
}

#[test]
fn disk_that_cannot_be_made_leaves_no_vdisk() {
    let farm = Farm::new();
    let vdisk = blank(&farm, "fresh");
    for bad in [size(2), ByteSize::new((64 << 20) + 512).unwrap(), size(65 << 20)] {
        let error = create_blank(&farm.control, &farm.by(), &vdisk, bad).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (Code::BadValue, Some("size")));
    }
    std::fs::write(farm.path("fresh.vhdx"), b"of somebody else").unwrap();
    let error = create_blank(&farm.control, &farm.by(), &vdisk, size(64)).unwrap_err();
    assert_eq!(error.code, Code::Conflict);
    assert_eq!(std::fs::read(farm.path("fresh.vhdx")).unwrap(), b"of somebody else");
    std::fs::remove_file(farm.path("fresh.vhdx")).unwrap();
    let all = farm.control.read(|reader| Ok(reader.all::<Vdisk>()?)).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn vdisk_that_devices_boot_or_run_on_is_not_deleted_and_they_are_named() {
    let farm = Farm::new();
    let vdisk = farm.vdisk("golden", Format::Vhdx);
    let of = farm.control.read(|reader| Ok(reader.get(vdisk)?)).unwrap();
    let made = farm.control.change(&farm.by(), |change| {
        let site = change.site(&text("Berlin"))?.id;
        let (name, description) = (text("Lab"), text(""));
        let lab = Collection::plain(name, site, description);
        let collection = change.create(lab)?.id;
        Ok(change.create(Device {
            profile: DeviceProfile { disks: Disks::one(vdisk), ..DeviceProfile::default() },
            ..Device::plain(text("lab-07"), collection, text(""))
        })?)
    });
    let device = made.unwrap();
    let try_it = || delete(&farm.control, &farm.by(), vdisk, of.revision, Files::Remove).unwrap_err();
    let error = try_it();
    assert_eq!(error.code, Code::InUse);
    assert!(error.message.contains("lab-07"), "{error}");
    let lease: Lease = farm
        .control
        .change(&farm.by(), |change| {
            let without = Device { profile: DeviceProfile::default(), ..device.value.clone() };
            change.update(device.id, device.revision, without)?;
            let subject = Subject::Contents(change.version(vdisk, farm::model::VersionNumber::BASE)?.id);
            let owner = Owner::Device(device.id);
            let wanted = Wanted { subject, sharing: Sharing::Shared, purpose: Purpose::Boot, owner };
            Ok(change.lease(&wanted, farm.server)?)
        })
        .unwrap();
    let error = try_it();
    assert_eq!(error.code, Code::InUse);
    assert!(error.message.contains(&format!("lock {}", lease.fence)), "{error}");
    assert_eq!(farm.files(), ["golden.vhdx"]);
}
