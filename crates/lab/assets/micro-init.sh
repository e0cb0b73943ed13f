#!/bin/sh
# The whole user space of the micro guest. It lives in the initramfs; the disk holds its data partition.
export PATH=/bin:/sbin HOME=/ TERM=dumb
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /run/lock
mount -t devpts devpts /dev/pts
for module in /lib/modules/*.ko; do insmod "$module" || echo "MICRO: $module did not load"; done
ip link set lo up
hostname micro
dead() {
    echo "MICRO-FAILED $*"
    exec setsid cttyhack sh
}
# The firmware's own network settings and session, taken over from the iBFT.
[ -d /sys/firmware/ibft/target0 ] || dead "the firmware left no iBFT"
for attempt in 1 2 3 4 5 6 7 8 9 10; do [ -d /sys/class/net/eth0 ] && break; sleep 0.2; done
iscsistart -N || dead "iscsistart -N: no network from the iBFT"
iscsistart -b || dead "iscsistart -b: no session from the iBFT"
for attempt in $(seq 100); do data=$(findfs LABEL=data 2>/dev/null) && break; sleep 0.1; done
[ -n "$data" ] || dead "no partition labelled data came up"
mount -t ext4 -o noatime "$data" /data || dead "$data does not mount"
iscsi-identity.sh
iscsid || echo "MICRO: iscsid did not start: this guest does not survive a lost connection"
disk=${data%[0-9]}
firmware=bios
[ -d /sys/firmware/efi ] && firmware=uefi
read -r uptime _ </proc/uptime
echo "MICRO-READY uptime=$uptime firmware=$firmware disk=$disk mac=$(cat /sys/firmware/ibft/ethernet0/mac)"
headwater-guest ready &
while true; do setsid cttyhack sh; done
