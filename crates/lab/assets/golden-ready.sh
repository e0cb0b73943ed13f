#!/bin/sh
# One line on the serial console for whoever watches it.
firmware=bios
[ -d /sys/firmware/efi ] && firmware=uefi
read -r uptime _ </proc/uptime
root=$(findmnt -no SOURCE /)
mac=$(cat /sys/firmware/ibft/ethernet0/mac 2>/dev/null)
[ -w /dev/ttyS0 ] && printf '\nGOLDEN-READY uptime=%s firmware=%s root=%s mac=%s kernel=%s\n' \
    "$uptime" "$firmware" "$root" "$mac" "$(uname -r)" >/dev/ttyS0
exit 0
