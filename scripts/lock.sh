#!/bin/sh
# Renews the locks: requirements/ci.txt (everything), demo.txt (a part of it, same versions), uv.txt, and reframe.txt
# (what `make bench` compares with, apart from the rest), horovod.txt and horovod-build.txt.
# One lock serves Python 3.11 to 3.13 on every platform. Usage: scripts/lock.sh UV [uv options such as --upgrade]
set -eu
cd "$(dirname "$0")/.."
uv=$1
shift
compile() {
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
        --annotation-style line "$@"
}
# no machine's own package folders may leak into a lock
unset UV_FIND_LINKS UV_INDEX UV_EXTRA_INDEX_URL || true
inputs="pyproject.toml requirements/build.in requirements/torch-deps.in --override requirements/no-torch.txt"
# shellcheck disable=SC2086  # a list of words
compile $inputs --extra deepspeed --extra io --extra mlflow --extra plots --extra dev -o requirements/ci.txt "$@"
# shellcheck disable=SC2086
compile $inputs --extra train --extra plots -c requirements/ci.txt -o requirements/demo.txt "$@"
compile requirements/uv.in -o requirements/uv.txt "$@"
compile requirements/horovod-build.in -o requirements/horovod-build.txt "$@"
compile --no-deps requirements/horovod.in -o requirements/horovod.txt "$@"
compile requirements/reframe.in -o requirements/reframe.txt "$@"
