#!/bin/sh
# Builds Horovod for the torch of an environment and installs it there. Wheels are kept in the user's cache by Python,
# machine and build of torch, so that another environment, or the next one, takes seconds.
# Usage: scripts/build_horovod.sh PYTHON
#
# On a GPU site set what Horovod's own build reads, e.g. HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_HOME=... ; without it
# the wheel has Gloo alone. $HOROVOD_WHEELS is another folder for the wheels.
#
# Horovod 0.28.1, the newest, asks for C++14, which torch no longer compiles with: a compiler wrapper asks for C++17.
set -eu
cd "$(dirname "$0")/.."
python=$1
version=$(sed -n 's/^horovod==\([0-9.]*\).*/\1/p' requirements/horovod.txt)

about=$("$python" - <<'END'
import platform, sys, torch
print(f"cp{sys.version_info.major}{sys.version_info.minor}-{platform.machine()}-torch{torch.__version__}")
END
) || { echo "Horovod is built against torch, which $python doesn't have: make env" >&2; exit 1; }
gpu=$(env | grep '^HOROVOD_' | grep -v '^HOROVOD_WHEELS=' | sort || true)
key=$about${gpu:+-$(printf %s "$gpu" | sha256sum | cut -c1-8)}
wheels=${HOROVOD_WHEELS:-${XDG_CACHE_HOME:-$HOME/.cache}/campaign/horovod}/$key

installed() { "$python" -c "
import sys, importlib.util, importlib.metadata as m
sys.exit(not (importlib.util.find_spec('horovod') and m.version('horovod') == '$version' and open('$1').read() == '$key'))
" 2>/dev/null; }
stamp=$("$python" -c 'import sys; print(sys.prefix)')/horovod-build
installed "$stamp" && exit 0

if ! ls "$wheels"/horovod-*.whl >/dev/null 2>&1; then
    command -v g++ >/dev/null || {
        echo "Horovod needs a C++ compiler:  apt-get install g++   (or load a compiler module)" >&2
        exit 1
    }
    echo "==> building Horovod $version for $about: some minutes, once; kept in $wheels" >&2
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --target "$work/tools" \
        -r requirements/horovod-build.txt
    printf '#!/bin/sh\nexec "%s" "$@" -std=c++17\n' "$(command -v "${CXX:-g++}")" >"$work/cxx17"
    chmod +x "$work/cxx17"
    # tools first on both paths: the environment's own setuptools may be too new for Horovod
    if ! PATH="$work/tools/bin:$PATH" PYTHONPATH="$work/tools" CXX="$work/cxx17" TMPDIR="$work" \
        HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
        HOROVOD_WITH_PYTORCH=1 MAKEFLAGS="${MAKEFLAGS:--j$(nproc)}" \
        "$python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
        --no-binary horovod -w "$work/wheel" --require-hashes -r requirements/horovod.txt >"$work/log" 2>&1; then
        tail -40 "$work/log" >&2
        echo "Horovod could not be built (the end of its log is above)" >&2
        exit 1
    fi
    mkdir -p "$wheels"
    for wheel in "$work"/wheel/horovod-*.whl; do
        cp "$wheel" "$wheels/.part" && mv "$wheels/.part" "$wheels/$(basename "$wheel")"
    done
fi
echo "==> Horovod $version from $wheels" >&2
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/horovod-*.whl
printf %s "$key" >"$stamp"
