#!/bin/sh
# A systemd of its own, which runs the service unit of packaging/: systemd.sh FOLDER NAME, in new
# namespaces of mounts and processes. FOLDER has the programs, the unit and sluice.toml. It is a
# user's manager, since the system's would look after the whole machine. The unit is as it is but
# for that, and for where the programs and the file are: /run here is memory that ends with the
# namespace, and so is what sessions are kept in.
set -e
folder=$1 name=$2
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
mkdir -p /run/systemd/system /run/systemd/user /run/bin /run/conf /run/state
cp "$folder/sluiced" "$folder/sluice" /run/bin
cp "$folder/sluice.toml" /run/conf
sed 's|/usr/bin/sluice|/run/bin/sluice|; s|/etc/sluice/|/run/conf/|
    s|systemctl list|systemctl --user list|' "$folder/sluiced.service" \
    >/run/systemd/user/sluiced.service
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p "/sys/fs/cgroup/$name"
echo $$ >"/sys/fs/cgroup/$name/cgroup.procs"
# RuntimeDirectory= and StateDirectory= of a user's unit are below these.
export XDG_RUNTIME_DIR=/run XDG_CONFIG_HOME=/run/state
/lib/systemd/systemd --user --log-target=console --log-level=info &
wait
