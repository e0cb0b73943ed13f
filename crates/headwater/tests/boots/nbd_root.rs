//! A whole Debian whose root comes over NBD: kernel and initramfs by HTTP, disk by the kernel's own NBD client.
use std::time::Duration;

use lab::{Firmware, GOLDEN_READY_WITHIN, Guest, Image};

use crate::site::{Device, Dhcp, Site, Storage};

const ENDS_WITHIN: Duration = Duration::from_secs(120);

#[test]
fn debian_boots_with_its_root_on_nbd_and_writes_into_its_write_cache() {
    let device = Device::new("nbd-root", 0);
    let image = lab::golden::golden().unwrap();
    let storage = nbd_storage(&image);
    let mut site =
        Site::begin_with("nbd-root", Dhcp::Ours, image, std::slice::from_ref(&device), |_| storage);
    let before = site.image_hash();
    let mut guest = boot(&site, &device);
    assert_eq!(guest.run("findmnt -no SOURCE /").unwrap().trim(), "/dev/nbd0p3");
    assert_eq!(
        guest.run("ls -d /sys/class/iscsi_session/* 2>/dev/null || echo none").unwrap().trim(),
        "none"
    );
    guest.run("echo over-nbd >/root/proof && sync && echo 3 >/proc/sys/vm/drop_caches").unwrap();
    assert_eq!(guest.run("cat /root/proof").unwrap().trim(), "over-nbd");
    site.server.service().wait_for_log("device ready", ENDS_WITHIN).unwrap();

    // The plain client on the vDisk itself: read-only, and without what this machine has written.
    let attach =
        "nbd-client 10.77.0.1 -N vdisk/golden -readonly /dev/nbd1 && dd if=/dev/nbd1 of=/dev/null count=1";
    guest.run_within(attach, ENDS_WITHIN).unwrap();
    guest.run_within("mount -o ro,noload /dev/nbd1p3 /mnt", ENDS_WITHIN).unwrap();
    guest.run_within("cmp /mnt/usr/bin/fio /usr/bin/fio && ! test -e /mnt/root/proof", ENDS_WITHIN).unwrap();
    guest.run("umount /mnt && ! dd if=/dev/zero of=/dev/nbd1 count=1 oflag=direct").unwrap();
    guest.run("nbd-client -d /dev/nbd1").unwrap();

    // A power cut: the next boot is clean.
    drop(guest);
    let mut guest = boot(&site, &device);
    assert_eq!(guest.run("cat /root/proof 2>/dev/null || echo none").unwrap().trim(), "none");
    drop(guest);
    assert_eq!(site.image_hash(), before, "the golden image changed");
}

fn nbd_storage(image: &Image) -> Storage {
    let command_line = "nbdroot={server}:{nbd_port}/{export} root=/dev/nbd0p3 ip=dhcp ro console=ttyS0,115200 \
                        net.ifnames=0 quiet mitigations=off no_timer_check fsck.mode=skip \
                        headwater.ready=http://{server}:8080/v1/ready";
    let more = format!(
        "[nbd]\ntls = \"off\"\nvdisk_readers = [\"10.77.0.0/24\"]\n[[vdisk]]\nname = \"golden\"\nfile = \"{}\"\n\
         kernel = \"{}\"\ninitrd = \"{}\"\ncommand_line = \"{command_line}\"",
        image.vhdx.display(),
        image.kernel.display(),
        image.initrd.display(),
    );
    Storage { vdisks: Vec::new(), more }
}

fn boot(site: &Site, device: &Device) -> Guest {
    let mut guest = Guest::start(&site.network, &device.spec(Firmware::BiosIpxeRom)).unwrap();
    guest.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN).unwrap();
    guest
}
