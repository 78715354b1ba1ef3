#!/bin/sh
# pytest with every need of the suite demanded: what is missing fails instead of being skipped (tests/needs.py).
# Usage: scripts/run_tests.sh PYTHON [pytest options]
# As root the tests start the Slurm test bed themselves. Otherwise they use the one that runs (make testbed), or sudo
# starts it here.
set -eu
cd "$(dirname "$0")/.."
python=$1
shift
# fuse and memory-cgroup stay free: whether they are there is up to the kernel and the container
require=slurm,torch,deepspeed,horovod,zarr,h5py,netCDF4,matplotlib,mlflow,strace
unset PYTHONDONTWRITEBYTECODE

if [ "$(id -u)" -eq 0 ]; then
    require=$require,root,tmpfs,network-namespaces
elif ! "$python" -m tests.slurm.testbed status >/dev/null 2>&1; then
    if ! command -v sudo >/dev/null; then
        echo "The Slurm test bed is started by root, and there is no sudo. Ask an administrator to type, here:" >&2
        echo "    make testbed" >&2
        echo "The other tests need nothing of this:  make test-unit" >&2
        exit 1
    fi
    # -B: no byte code that belongs to root in the clone
    trap 'sudo "$python" -B -m tests.slurm.testbed stop' EXIT
    trap 'exit 130' INT TERM HUP
    sudo "$python" -B -m tests.slurm.testbed start
fi
# two workers, a file to each at a time: most tests wait for processes; the test bed is shared between them
CAMPAIGN_REQUIRE=${CAMPAIGN_REQUIRE-$require} "$python" -m pytest -n "${PYTEST_WORKERS:-2}" --dist loadfile "$@"
