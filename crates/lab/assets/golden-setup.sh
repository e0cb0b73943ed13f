#!/bin/sh
# mmdebstrap essential hook: runs on the root folder $1 before the kernel package is configured, so that one initramfs
# is built, and built right.
set -eu
root=$1
mkdir -p "$root/etc/initramfs-tools/conf.d" "$root/etc/initramfs-tools/hooks" "$root/etc/iscsi"
echo 'do_symlinks = no' >"$root/etc/kernel-img.conf"
cat >"$root/etc/initramfs-tools/conf.d/headwater" <<'CONF'
MODULES=list
COMPRESS=zstd
COMPRESSLEVEL=3
RESUME=none
CONF
# Modules are put in by a hook: /etc/initramfs-tools/modules would load each of them at every boot, half a second to
# four seconds apiece under emulation. They are unpacked, because the initramfs as a whole is compressed already.
cat >"$root/etc/initramfs-tools/hooks/headwater" <<'HOOK'
#!/bin/sh
[ "$1" = prereqs ] && exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules virtio_pci virtio_net virtio_blk virtio_scsi sd_mod ext4 iscsi_tcp iscsi_ibft nbd \
    crc32c_intel crc32c_generic e1000 e1000e vmxnet3
find "$DESTDIR" -name '*.ko.xz' -exec unxz -f {} +
exit 0
HOOK
chmod +x "$root/etc/initramfs-tools/hooks/headwater"
# Read as shell by open-iscsi's initramfs script: use iSCSI when the firmware did. A plain ISCSI_AUTO=true would make a
# boot from a local disk wait three minutes for a network.
cat >"$root/etc/iscsi/iscsi.initramfs" <<'CONF'
modprobe iscsi_ibft 2>/dev/null
[ -d /sys/firmware/ibft/target0 ] && ISCSI_AUTO=true
CONF
