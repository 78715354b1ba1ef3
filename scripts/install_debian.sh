#!/bin/sh
# Installs the Debian packages of requirements/debian.txt that are missing: as root, or through sudo.
# Nothing is started: the test bed runs its own daemons, in namespaces of its own.
set -eu
cd "$(dirname "$0")/.."
wanted=$(sed 's/#.*//' requirements/debian.txt)

missing=
for package in $wanted; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

give_up() {
    {
        echo "The tests against real Slurm need these Debian packages:$missing"
        echo "$1"
        echo "The other tests need nothing of this:  make test-unit"
    } >&2
    exit 1
}
command -v apt-get >/dev/null || give_up "This machine has no apt-get: install Slurm 22.05 or newer, munge and MariaDB by its own means."
as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || give_up "You aren't root and there is no sudo. Ask an administrator to type:  apt-get install$missing"
    # with a terminal sudo may ask for the password; without one it must not wait for it
    [ -t 0 ] || sudo -n true 2>/dev/null || give_up "sudo wants a password and there is no terminal. Type:  sudo apt-get install$missing"
    as_root=sudo
fi

echo "==> Debian packages:$missing" >&2
# /usr/sbin/policy-rc.d is Debian's way to say that an installation must start no daemon
exec $as_root sh -eu -c '
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap "rm -f $policy" EXIT
        trap "exit 130" INT TERM
        printf "#!/bin/sh\nexit 101\n" > "$policy"
        chmod 755 "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    install() { apt-get install -y -q --no-install-recommends "$@" > "$log" 2>&1; }
    install "$@" || { apt-get update -q > "$log" 2>&1 && install "$@"; } || {
        tail -n 20 "$log" >&2
        echo "apt-get could not install: $* (its last lines are above)" >&2
        exit 1
    }
    rm -f "$log"
' install_debian $missing
