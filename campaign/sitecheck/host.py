"""What this host can see of a site: interface, file systems, modules. Compute nodes may differ: probe asks them."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from campaign.doctor.storage import kind_of, mount_of
from campaign.job.network import interface_address
from campaign.site import Filesystem, Site
from campaign.sitecheck.findings import Finding, Findings

MODULE_DEADLINE_S = 60.0
NO_MODULES = 9

NETWORK_KINDS = frozenset({"gpfs", "lustre", "nfs", "ceph", "beegfs", "wekafs", "daos", "panfs", "cvmfs", "9p"})
NODE_KINDS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
"""Always of one host."""

# loads one after another, as the job's script does: names further down a hierarchy are only there then
MODULE_SCRIPT = f"""\
type module >/dev/null 2>&1 || exit {NO_MODULES}
for name in "$@"; do
    said=$(mktemp) || exit 1
    module load "$name" >"$said" 2>&1
    code=$?
    # module 3.2 fails with exit code 0
    if [ $code -ne 0 ] || grep -qE 'ERROR|Unable to locate|unknown module' "$said"; then echo "absent $name"; fi
    rm -f "$said"
done
echo looked
"""


def look(site: Site, fill: Callable[[str], str | None]) -> list[Finding]:
    """Findings of this host. `fill` puts {project} and {user} into a path, None when one of them isn't known."""
    findings = Findings(site)
    _interface(findings, site)
    for name, filesystem in site.filesystems.items():
        _filesystem(findings, name, filesystem, fill(filesystem.path))
    if site.software.modules:
        _modules(findings, site)
    return findings.all


def _interface(findings: Findings, site: Site) -> None:
    name, path = site.network.interface, ("network", "interface")
    if name is None:
        findings.unknown(path, "the ranks' interface isn't given", source="this host")
        return
    address = interface_address(name)
    if address is None:
        message = f"no interface {name} with an address here; `campaign site probe {site.name}` looks on nodes"
        findings.unknown(path, message, source="this host")
    else:
        message = f"this host has {name}; nodes: `campaign site probe {site.name}`"
        findings.add("right", path, message, source="this host", found=f"{name} {address}")


def _filesystem(findings: Findings, name: str, said: Filesystem, filled: str | None) -> None:
    where, source = ("filesystems", name), "/proc/self/mountinfo of this host"
    if filled is None:
        message = f"{said.path}: the project isn't given (`projects:` of campaign.yaml, or `project:` here)"
        findings.unknown((*where, "path"), message, source=source)
        return
    path = Path(filled)
    if not said.shared:
        probe = f"`campaign site probe {findings.site.name}`"
        message = f"{filled} is each node's own: {probe} looks at it"
        findings.unknown((*where, "path"), message, source=source)
        return
    nearest = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    kind = kind_of(mount_of(nearest).kind)
    if nearest != path:
        _absent(findings, where, said, path, nearest, kind)
        return
    findings.add("right", (*where, "path"), f"{filled} is here", source=source, found=filled)
    findings.compare((*where, "kind"), said.kind, kind, f"the kind of {filled}", source=source)
    if kind in NODE_KINDS:
        message = f"{filled} is a {kind}, which only this host sees"
        findings.add("wrong", (*where, "shared"), message, source=source, found=False, write="shared: false")
    elif kind in NETWORK_KINDS:
        findings.add("right", (*where, "shared"), f"{filled} is {kind}", source=source, found=True)
    else:
        message = f"whether nodes share {filled} ({kind}) can't be seen here"
        findings.unknown((*where, "shared"), message, source=source)


def _absent(findings: Findings, where: tuple[str, str], said: Filesystem, path: Path, nearest: Path, kind: str) -> None:
    source = "this host"
    mounted = kind == said.kind and nearest != Path("/")
    if mounted:  # the file system itself is here, so the folder would be seen
        findings.add("wrong", (*where, "path"), f"{nearest} is here ({kind}), {path} isn't", source=source,
                     found=str(nearest))  # fmt: skip
    else:
        findings.unknown((*where, "path"), f"{path} isn't here, nor is its file system", source=source)


def _modules(findings: Findings, site: Site) -> None:
    path, names = ("software", "modules"), site.software.modules
    source = f"bash -lc 'module load {shlex.join(names)}' on this host"
    try:
        done = subprocess.run(
            ["bash", "-lc", MODULE_SCRIPT, "bash", *names],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MODULE_DEADLINE_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        findings.unknown(path, f"modules: {error}", source=source)
        return
    lines = done.stdout.splitlines()
    if done.returncode == NO_MODULES:
        findings.unknown(path, "modules: there is no `module` command here", source=source)
    elif "looked" not in lines:
        findings.unknown(path, f"modules: bash ended with {done.returncode}", source=source)
    else:
        absent = {line.removeprefix("absent ") for line in lines if line.startswith("absent ")}
        for index, name in enumerate(names):
            if name in absent:
                hint = f"module spider {name.partition('/')[0]}   # shows what there is"
                findings.add("wrong", (*path, index), f"module {name} can't be loaded here", source=source, write=hint)
            else:
                findings.add("right", (*path, index), f"module {name} can be loaded", source=source)
