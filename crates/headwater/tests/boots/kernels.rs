//! Direct kernel boot of a vDisk in several versions: each machine gets the kernel and the command line of its own. One version's
//! stand in a unified kernel image on an EFI system partition, the other's in an entry file of the Boot Loader Specification;
//! `firmware` boots one out of GRUB's menu.
use std::time::Duration;

use lab::{Firmware, Guest, MICRO_READY_WITHIN};

use crate::site::{Device, Dhcp, Site, Storage};
use crate::unified;

/// What the kernels of both versions are told besides.
const OF_IMAGE: &str = "told.by=unified-image";
const OF_ENTRY: &str = "told.by=entry-file";

/// Goes over from the one to the other, as an update of a distribution does: entry files beside the kernel, no other menu any more,
/// and nothing on the partition that the image was on.
fn moves_to_entry_file() -> String {
    format!(
        "root=$(findfs LABEL=root) && mkdir -p /mnt && mount -t ext4 $root /mnt && mkdir -p /mnt/boot/loader/entries && \
         printf 'title Micro guest\\nversion 2\\nlinux /boot/vmlinuz\\ninitrd /boot/initrd.img\\noptions %s\\noptions %s\\n' \
         '{}' '{OF_ENTRY}' >/mnt/boot/loader/entries/micro-2.conf && rm /mnt/boot/grub/grub.cfg && sync && umount /mnt && \
         dd if=/dev/zero of=${{root%[0-9]}}{} bs=1M count=1 && sync",
        unified::COMMAND_LINE,
        unified::PARTITION,
    )
}

/// Which of the two the running kernel has its command line from.
fn told_by(guest: &mut Guest) -> &'static str {
    let told = guest.run("cat /proc/cmdline").unwrap();
    let found = [OF_IMAGE, OF_ENTRY].into_iter().find(|option| told.contains(option));
    found.unwrap_or_else(|| panic!("neither: {told}"))
}

fn restart(guest: &mut Guest) {
    guest.reset().unwrap();
    guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
}

#[test]
fn kernel_of_a_unified_image_or_an_entry_file_follows_the_version_that_each_machine_boots() {
    let devices = [Device::new("user", 0), Device::new("maintainer", 1)];
    let image = lab::micro::micro().unwrap();
    let micro = image.clone();
    let mut site = Site::begin_with("kernel-versions", Dhcp::Ours, image, &devices, |network| {
        let store = network.folder().join("store");
        std::fs::create_dir(&store).unwrap();
        let golden = store.join("golden.vhdx");
        std::fs::rename(unified::disk(&micro, network.folder(), OF_IMAGE), &golden).unwrap();
        let more =
            format!("[[vdisk]]\nname = \"golden\"\nfile = \"{}\"\nboot = \"kernel\"\n", golden.display());
        Storage { vdisks: Vec::new(), more }
    });
    let [user, maintainer] = &devices;
    site.headwater(&["device", "set", "maintainer", "kind=maintenance"]);
    site.headwater(&["version", "create", "golden"]);

    // The version under maintenance is read anew at each boot of its device, also right behind the last one.
    let mut writer = site.boot(maintainer, Firmware::BiosIpxeRom);
    assert_eq!(told_by(&mut writer), OF_IMAGE);
    writer.run_within(&moves_to_entry_file(), Duration::from_secs(60)).unwrap();
    restart(&mut writer);
    assert_eq!(told_by(&mut writer), OF_ENTRY, "the maintenance device gets what is in its version now");
    let mut guest = site.boot(user, Firmware::BiosIpxeRom);
    assert_eq!(told_by(&mut guest), OF_IMAGE, "production devices get the kernel of their version");
    writer.shutdown().unwrap();

    site.headwater(&["device", "reset", "maintainer", "--yes"]);
    site.headwater(&["version", "promote", "golden/1"]);
    restart(&mut guest);
    assert_eq!(told_by(&mut guest), OF_ENTRY, "a promoted version brings its own kernel");
    site.headwater(&["vdisk", "hold", "golden", "0"]);
    restart(&mut guest);
    assert_eq!(told_by(&mut guest), OF_IMAGE, "and an older one has its own still");
    let log = site.server.service().log();
    for source in ["unified kernel image", "boot entry file"] {
        assert!(log.contains(source), "no kernel was taken from a {source}");
    }
}
