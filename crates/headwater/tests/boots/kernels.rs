//! Direct kernel boot of a vDisk in several versions: each machine gets the kernel and the command line of its own.
use std::time::Duration;

use lab::{Firmware, Guest, MICRO_READY_WITHIN};

use crate::site::{Device, Dhcp, Site, Storage};

/// Changes what the boot loader of the disk tells its kernel, as an update of a distribution does.
const UPDATES_BOOT_ENTRY: &str = "mkdir -p /mnt && mount -t ext4 $(findfs LABEL=root) /mnt && \
    sed -i 's/no_timer_check/no_timer_check updated.in=1/' /mnt/boot/grub/grub.cfg && sync && umount /mnt";

fn is_updated(guest: &mut Guest) -> bool {
    guest.run("cat /proc/cmdline").unwrap().contains("updated.in=1")
}

fn restart(guest: &mut Guest) {
    guest.reset().unwrap();
    guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
}

#[test]
fn kernel_follows_the_version_that_each_machine_boots() {
    let devices = [Device::new("user", 0), Device::new("maintainer", 1)];
    let image = lab::micro::micro().unwrap();
    let original = image.vhdx.clone();
    let site = Site::begin_with("kernel-versions", Dhcp::Ours, image, &devices, |network| {
        let store = network.folder().join("store");
        std::fs::create_dir(&store).unwrap();
        let copy = store.join("golden.vhdx");
        std::fs::copy(original, &copy).unwrap();
        let more =
            format!("[[vdisk]]\nname = \"golden\"\nfile = \"{}\"\nboot = \"kernel\"\n", copy.display());
        Storage { vdisks: Vec::new(), more }
    });
    let [user, maintainer] = &devices;
    site.headwater(&["device", "set", "maintainer", "kind=maintenance"]);
    site.headwater(&["version", "create", "golden"]);

    // The version under maintenance is read anew at each boot of its device, also right behind the last one.
    let mut writer = site.boot(maintainer, Firmware::BiosIpxeRom);
    assert!(!is_updated(&mut writer));
    writer.run_within(UPDATES_BOOT_ENTRY, Duration::from_secs(60)).unwrap();
    restart(&mut writer);
    assert!(is_updated(&mut writer), "the maintenance device gets what is in its version now");
    let mut guest = site.boot(user, Firmware::BiosIpxeRom);
    assert!(!is_updated(&mut guest), "production devices get the kernel of their version");
    writer.shutdown().unwrap();

    site.headwater(&["device", "reset", "maintainer", "--yes"]);
    site.headwater(&["version", "promote", "golden/1"]);
    restart(&mut guest);
    assert!(is_updated(&mut guest), "a promoted version brings its own kernel");
    site.headwater(&["vdisk", "hold", "golden", "0"]);
    restart(&mut guest);
    assert!(!is_updated(&mut guest), "and an older one has its own still");
}
