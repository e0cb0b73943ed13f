#!/bin/sh
# Removes what the run recorded in the folder $1 left behind. Run while holding the run's lock; its owner is dead, or is
# cleaning up itself. Processes are known by pid AND start time, so that a number that was given away is left alone.
run=$1
[ -r "$run/record" ] || exit 0
while read -r kind first second; do
    [ "$kind" = process ] || continue
    started=$(sed 's/.*) //' "/proc/$first/stat" 2>/dev/null | cut -d ' ' -f 20)
    [ "$started" = "$second" ] && kill -KILL "$first" 2>/dev/null
done <"$run/record"
# Before the folders that they are in.
while read -r kind first; do
    [ "$kind" = mount ] && umount --lazy "$first" 2>/dev/null
done <"$run/record"
while read -r kind first; do
    case $kind in
    namespace) [ -e "/run/netns/$first" ] && ip netns del "$first" ;;
    folder)
        if [ -d "$first/logs" ] && [ ! -e "$run/discard-logs" ]; then
            failed=${first%/runs/*}/failed
            mkdir -p "$failed" && mv "$first/logs" "$failed/${first##*/}"
        fi
        rm -rf "$first"
        ;;
    esac
done <"$run/record"
rm -rf "$run"
