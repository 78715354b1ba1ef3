#!/bin/bash
# PID 1 of one node, in fresh mount, UTS, IPC, PID and network namespaces; made by nodes.py, which sets the variables:
#   TESTBED_ROOT NODE NODE_HOSTNAME NODE_ADDRESS NODE_MANAGEMENT MANAGEMENT_NET SHM_MIB MEMORY_CGROUP KEEP(newlines)
#   SLURM_CONF
set -eu
stage=$TESTBED_ROOT/stage # an empty folder; what is mounted on it is seen by this node only

hostname "$NODE_HOSTNAME"
mount --bind "$TESTBED_ROOT/etc/hosts" /etc/hosts
# no name server: an unknown name must fail at once, not after a time-out
if [ -f /etc/resolv.conf ]; then mount --bind "$TESTBED_ROOT/etc/resolv.conf" /etc/resolv.conf; fi

# /sys of this network namespace (so that /sys/class/net shows ib0), with the bed's own part of the memory controller
if [ -n "$MEMORY_CGROUP" ]; then mount --bind "$MEMORY_CGROUP" "$stage"; fi
if mount -t sysfs sysfs /sys 2>/dev/null || [ -n "$MEMORY_CGROUP" ]; then
    if [ -n "$MEMORY_CGROUP" ]; then
        mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
        mkdir -p /sys/fs/cgroup/memory
        mount --move "$stage" /sys/fs/cgroup/memory
    fi
fi

# private /dev/shm and /tmp, in which what jobs need from the real ones shows through
for private in /dev/shm /tmp; do
    mount -t tmpfs -o "size=${SHM_MIB}m,mode=1777" "${private##*/}-$NODE" "$stage"
    while IFS= read -r folder; do
        case $folder in
            "$private"/*)
                mkdir -p "$stage${folder#"$private"}"
                mount --bind "$folder" "$stage${folder#"$private"}"
                ;;
        esac
    done <<<"$TESTBED_ROOT"$'\n'"$KEEP"
    mount --move "$stage" "$private"
done

until [[ $(</proc/net/dev) == *ib0:* ]]; do sleep 0.01; done
ip -batch - <<END
link set lo up
addr add $NODE_ADDRESS/24 dev ib0
link set ib0 up
${NODE_MANAGEMENT:+addr add $NODE_MANAGEMENT/32 dev lo
route add unreachable $MANAGEMENT_NET}
END

cd /
slurmd -D -N "$NODE" -f "$SLURM_CONF" &
slurmd=$!
trap 'kill -TERM $slurmd 2>/dev/null' TERM INT
# as PID 1 this shell also reaps the slurmstepds that slurmd leaves to it
while kill -0 $slurmd 2>/dev/null; do wait $slurmd || true; done
