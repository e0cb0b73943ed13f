#!/bin/sh
# mmdebstrap customize hook: turns the installed root folder $1 into the lab's golden image. $2 holds the files that go
# into /usr/local/sbin.
set -eu
root=$1
files=$2
units=$root/etc/systemd/system
echo golden >"$root/etc/hostname"
printf '127.0.0.1 localhost golden\n::1 localhost\n' >"$root/etc/hosts"
echo 'LABEL=root / ext4 rw,noatime 0 0' >"$root/etc/fstab"
: >"$root/etc/machine-id"
chroot "$root" passwd -d root >/dev/null
mkdir -p "$root/usr/local/sbin" "$units/multi-user.target.wants" "$units/iscsid.service.d" \
    "$units/serial-getty@ttyS0.service.d" "$root/etc/systemd/system-generators"
install -m 755 "$files/golden-ready" "$files/headwater-guest" "$files/iscsi-identity" "$root/usr/local/sbin/"
install -m 644 "$files/headwater-guest.service" "$units/"
ln -sf ../headwater-guest.service "$units/multi-user.target.wants/"
cat >"$units/golden-ready.service" <<'UNIT'
[Unit]
Description=Tell the serial line that this machine is up
After=systemd-user-sessions.service iscsid.service
# The line first, then the shell's prompts.
Before=serial-getty@ttyS0.service getty.target headwater-guest.service
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/golden-ready
[Install]
WantedBy=multi-user.target
UNIT
ln -sf ../golden-ready.service "$units/multi-user.target.wants/"
# A root shell on the serial console, for tests: without getty and login, which take seconds under emulation, and dash,
# which has no line editor, so that its output is what commands print.
cat >"$units/serial-getty@ttyS0.service.d/lab.conf" <<'UNIT'
[Service]
Type=simple
Environment=HOME=/root TERM=dumb
WorkingDirectory=/root
ExecStart=
ExecStart=-/bin/dash -i
StandardInput=tty-force
StandardOutput=tty
StandardError=tty
TTYReset=no
TTYVHangup=no
TTYVTDisallocate=no
UNIT
# iscsid takes over the initramfs's session, or nobody would reconnect it after a server's restart.
cat >"$units/iscsid.service.d/headwater.conf" <<'UNIT'
[Unit]
# It writes the initiator's name into the root file system.
After=systemd-remount-fs.service
[Service]
ExecStartPre=
ExecStartPre=/usr/local/sbin/iscsi-identity
UNIT
sed -i 's/^node.session.timeo.replacement_timeout.*/node.session.timeo.replacement_timeout = 86400/' \
    "$root/etc/iscsi/iscsid.conf"
echo 'InitiatorName=iqn.2026-01.lab.headwater:unset' >"$root/etc/iscsi/initiatorname.iscsi"
ln -sf /lib/systemd/system/iscsid.service "$units/multi-user.target.wants/iscsid.service"
# Nothing on the way up that emulation makes slow and that a disposable guest does not need. open-iscsi.service would
# log its own root disk out at shutdown.
for unit in getty@tty1.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    fstrim.timer e2scrub_reap.service systemd-networkd-wait-online.service systemd-fsckd.socket \
    systemd-fsckd.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
    systemd-initctl.socket dev-hugepages.mount dev-mqueue.mount sys-kernel-debug.mount \
    sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
    proc-sys-fs-binfmt_misc.automount modprobe@.service systemd-binfmt.service \
    systemd-ask-password-wall.path systemd-ask-password-console.path getty-static.service \
    systemd-pstore.service open-iscsi.service nbd-client.service iscsid.socket systemd-machine-id-commit.service; do
    ln -sf /dev/null "$units/$unit"
done
for generator in cryptsetup debug gpt-auto hibernate-resume integritysetup rc-local run system-update sysv \
    veritysetup bless-boot; do
    ln -sf /dev/null "$root/etc/systemd/system-generators/systemd-$generator-generator"
done
# fio, without the Python that its package wants for its plots.
(cd "$root/tmp" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -o APT::Sandbox::User=root download fio)
dpkg-deb --fsys-tarfile "$root"/tmp/fio_*.deb | tar -x -C "$root" ./usr/bin/fio
rm "$root"/tmp/fio_*.deb
# A host key of its own for each machine, made when somebody connects for the first time: the image has none.
rm -f "$root"/etc/ssh/ssh_host_*
mkdir -p "$units/ssh.service.d" "$units/sockets.target.wants"
cat >"$units/ssh.service.d/lab.conf" <<'UNIT'
[Service]
# sshd checks its configuration first, and wants a key for that.
ExecStartPre=
ExecStartPre=/bin/sh -c '[ -s /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key'
ExecStartPre=/usr/sbin/sshd -t
UNIT
rm -f "$units/multi-user.target.wants/ssh.service"
ln -sf /lib/systemd/system/ssh.socket "$units/sockets.target.wants/ssh.socket"
mkdir -p "$root/etc/initramfs-tools/scripts/local-bottom"
install -m 755 "$files/headwater-identity" "$root/etc/initramfs-tools/scripts/local-bottom/headwater"
version=$(basename "$root"/boot/vmlinuz-*)
version=${version#vmlinuz-}
chroot "$root" update-initramfs -u -k "$version"
ln -sf "vmlinuz-$version" "$root/boot/vmlinuz"
ln -sf "initrd.img-$version" "$root/boot/initrd.img"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
