#!/bin/sh
# Tells the server that this machine is up: POST {"mac": ..., "uptime_seconds": ...} to its /v1/ready.
# Where the server is: headwater.ready=URL on the kernel command line, else port 8080 of the disk's iSCSI target, which
# the firmware left in the iBFT. A machine that has neither did not boot from a server: nothing to do.
ibft=/sys/firmware/ibft
url=
for word in $(cat /proc/cmdline); do
    case $word in headwater.ready=*) url=${word#headwater.ready=} ;; esac
done
if [ -z "$url" ]; then
    [ -r $ibft/target0/ip-addr ] || exit 0
    server=$(cat $ibft/target0/ip-addr)
    case $server in *:*) server="[$server]" ;; esac
    url=http://$server:8080/v1/ready
fi
mac=$(cat $ibft/ethernet0/mac 2>/dev/null || cat /sys/class/net/e*/address | head -n 1)
read -r uptime _ </proc/uptime
body="{\"mac\":\"$mac\",\"uptime_seconds\":$uptime}"
for attempt in 1 2 3 4 5; do
    timeout 5 busybox wget -q -O /dev/null --header 'Content-Type: application/json' --post-data "$body" "$url" && exit 0
    sleep 1
done
echo "headwater: $url did not take the ready beacon" >&2
exit 1
