#!/bin/bash
# Proves the README's two commands on a machine that has nothing: a fresh Debian 12 made by mmdebstrap, a clean clone of
# what is committed here, an ordinary user with an empty HOME for `make demo`, root for `make test`.
#
#   scripts/chroot_proof.sh demo|test|both [FOLDER]
#
# FOLDER keeps the system (default: a temporary one, removed at the end). Needs root, for mounts and the chroot.
# $PYTEST_ARGS narrows `make test` down, e.g. to one file. $PIP_FIND_LINKS (folders with wheels), pip's index settings
# and certificates are handed on, as a site with its own package mirror would configure them; nothing else of this
# machine is visible inside.
set -euo pipefail
what=${1:?demo, test or both}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
[[ $(id -u) -eq 0 ]] || { echo "needs root: sudo $0 $*" >&2; exit 2; }
[[ $what =~ ^(demo|test|both)$ ]] || { echo "demo, test or both, not $what" >&2; exit 2; }

if ! command -v mmdebstrap >/dev/null; then
    apt-get install -y -q --no-install-recommends mmdebstrap >/dev/null 2>&1 ||
        { apt-get update -q && apt-get install -y -q --no-install-recommends mmdebstrap; } >/dev/null
fi

keep=${2:-}
base=$(mktemp -d /var/tmp/campaign-proof.XXXXXX)
root=${keep:-$base/root}
finish() {
    rm -rf "$base" || true
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

if [[ ! -x $root/usr/bin/python3 ]]; then
    # what the README asks for: Python with venv, git, make; sudo is the way in for an administrator
    echo "==> Debian 12 with python3, git and make" >&2
    mmdebstrap --variant=apt --include=python3,python3-venv,git,make,ca-certificates \
        --aptopt='Acquire::Languages "none"' bookworm "$root" >"$base/mmdebstrap.log" 2>&1 ||
        { tail -n 20 "$base/mmdebstrap.log" >&2; exit 1; }
fi
# the names of hosts and the certificates are those of the machine: a package mirror may need them
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
[[ -d /usr/local/share/ca-certificates ]] && cp -r /usr/local/share/ca-certificates "$root/usr/local/share/"
[[ -e /etc/ssl/certs/ca-certificates.crt ]] && cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
grep -rhsE '^Acquire::' /etc/apt/apt.conf /etc/apt/apt.conf.d | grep -i proxy >"$root/etc/apt/apt.conf.d/90proxy" || true

rm -rf "$root/srv/campaign" "$root/home/ada"
git clone -q --no-hardlinks "$here" "$root/srv/campaign"
chroot "$root" sh -c 'id ada >/dev/null 2>&1 || useradd --no-create-home --shell /bin/sh ada'
mkdir -p "$root/home/ada" "$root/wheels"
chroot "$root" chown ada: /home/ada

# one line: the variables that a user behind a mirror would have set
settings=()
for name in PIP_CERT PIP_INDEX_URL PIP_DEFAULT_TIMEOUT SSL_CERT_FILE HTTP_PROXY HTTPS_PROXY http_proxy https_proxy no_proxy TORCH_INDEX_URL \
    PYTEST_ARGS; do
    [[ -n ${!name:-} ]] && settings+=("$name=${!name}")
done
wheels=
for folder in $(python3 "$here/scripts/setup_env.py" --find-links); do
    [[ -d $folder ]] && wheels=$folder
done
[[ -n $wheels ]] && settings+=("PIP_FIND_LINKS=/wheels")
# the repository inside belongs to root, and git is wary of what others own: for the clone alone it isn't
printf '[safe]\n\tdirectory = *\n' >"$root/srv/gitconfig"
clone="GIT_CONFIG_GLOBAL=/srv/gitconfig git clone -q /srv/campaign"

# in namespaces of its own: mounts vanish with it, and daemons that the tests leave are ended
inside() {
    local user=$1 home=$2 command=$3
    unshare --mount --pid --fork --kill-child bash -eu -c '
        root=$1 wheels=$2; shift 2
        mount --make-rprivate /
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --rbind /sys "$root/sys"
        mount --rbind /dev "$root/dev"
        mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
        mount -t tmpfs -o mode=755 tmpfs "$root/run"
        [ -z "$wheels" ] || mount --bind -o ro "$wheels" "$root/wheels"
        exec chroot "$root" "$@"
    ' proof "$root" "$wheels" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" USER="$user" LOGNAME="$user" \
        LANG=C.UTF-8 "${settings[@]}" \
        setpriv --reuid="$user" --regid="$user" --init-groups sh -c "$command" </dev/null
}

code=0
if [[ $what != test ]]; then
    echo "==> as ada, HOME empty:  git clone ... && cd campaign && make demo" >&2
    inside ada /home/ada "cd && $clone campaign && cd campaign && make demo" || code=1
fi
if [[ $what != demo ]]; then
    echo "==> as root:  git clone ... && cd campaign && make test" >&2
    mkdir -p "$root/root/empty"
    inside root /root/empty "rm -rf /opt/campaign && $clone /opt/campaign && cd /opt/campaign && make test" || code=1
fi
exit "$code"
