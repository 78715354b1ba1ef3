#!/bin/sh
# pytest with every need of the suite demanded: what is missing fails instead of being skipped (tests/needs.py).
# Usage: scripts/run_tests.sh PYTHON [pytest options]
# As root the tests start the Slurm test bed themselves. Otherwise sudo starts it here, and the tests use it.
set -eu
cd "$(dirname "$0")/.."
python=$1
shift
# fuse and memory-cgroup stay free: whether they are there is up to the kernel and the container
require=slurm,torch,zarr,h5py,netCDF4,matplotlib,strace
unset PYTHONDONTWRITEBYTECODE

if [ "$(id -u)" -eq 0 ]; then
    require=$require,root,tmpfs,network-namespaces
else
    # -B: no byte code that belongs to root in the clone
    trap 'sudo "$python" -B -m tests.slurm.testbed stop' EXIT
    trap 'exit 130' INT TERM HUP
    sudo "$python" -B -m tests.slurm.testbed start
fi
CAMPAIGN_REQUIRE=${CAMPAIGN_REQUIRE-$require} "$python" -m pytest "$@"
