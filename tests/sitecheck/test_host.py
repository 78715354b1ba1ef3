"""What this host can see of a site file: interface, file systems, modules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from campaign.doctor.storage import kind_of
from campaign.site import Site
from campaign.sitecheck import host
from tests.sitecheck.conftest import by_verdict

MakeSite = Callable[..., Site]


def test_an_interface(make_site: MakeSite) -> None:
    findings = host.look(make_site(("interface: ib0", "interface: lo")), lambda path: path)
    assert ("network.interface", 20, "lo 127.0.0.1") in by_verdict(findings, "right")
    findings = host.look(make_site(("interface: ib0", "interface: nosuch0")), lambda path: path)
    assert ("network.interface", 20, None) in by_verdict(findings, "unknown")


def test_file_systems(make_site: MakeSite) -> None:
    """/dev/shm is a tmpfs on every Linux; a shared file system it isn't."""
    site = make_site(('path: "/p/scratch/{project}", kind: gpfs', 'path: "/dev/shm", kind: lustre'))
    findings = host.look(site, lambda path: path)
    start = "filesystems.scratch"
    assert by_verdict(findings, "wrong") == {(f"{start}.kind", 22, "tmpfs"), (f"{start}.shared", 22, False)}
    unknown = {key for key, _, _ in by_verdict(findings, "unknown")}
    assert {"filesystems.login.path", "filesystems.shm.path"} <= unknown


def test_a_folder_that_is_missing_from_a_file_system_that_is_here(make_site: MakeSite) -> None:
    site = make_site(('path: "/p/scratch/{project}", kind: gpfs', 'path: "/dev/shm/{project}", kind: tmpfs'))
    findings = host.look(site, lambda path: path.replace("{project}", "nosuchproject"))
    assert by_verdict(findings, "wrong") == {("filesystems.scratch.path", 22, "/dev/shm")}


def test_a_project_that_is_not_given(make_site: MakeSite) -> None:
    findings = host.look(make_site(), lambda path: None if "{project}" in path else path)
    messages = [finding.message for finding in findings if finding.key == "filesystems.scratch.path"]
    assert len(messages) == 1
    assert "the project isn't given" in messages[0]


MODULE = """\
module() {
    [ "$1" = load ] || return 1
    case $2 in
        Stages/2025) export STAGE=1 ;;
        GCC) [ -n "$STAGE" ] ;;                                # a hierarchy: only after the stage
        old) echo "ModuleCmd_Load.c(213):ERROR:105: Unable to locate a modulefile for 'old'" >&2; return 0 ;;
        *) return 1 ;;
    esac
}
"""


@pytest.fixture
def module_command(home: Path) -> None:
    """A login shell that has `module`, as a site's profile defines it."""
    (home / ".bash_profile").write_text(MODULE)


@pytest.mark.usefixtures("module_command")
def test_modules_are_loaded_in_their_order(make_site: MakeSite) -> None:
    site = make_site(("container: {", "software: {modules: [Stages/2025, GCC, old, CUDA/99]}\ncontainer: {"))
    findings = host.look(site, lambda path: None)
    of = {finding.key: finding.verdict for finding in findings if finding.key.startswith("software")}
    assert of == {
        "software.modules[0]": "right",
        "software.modules[1]": "right",
        "software.modules[2]": "wrong",  # module 3.2 fails with exit code 0
        "software.modules[3]": "wrong",
    }


def test_a_host_without_modules(make_site: MakeSite, home: Path) -> None:
    (home / ".bash_profile").write_text("unset -f module\n")  # whatever /etc/profile of this machine defines
    site = make_site(("container: {", "software: {modules: [GCC]}\ncontainer: {"))
    findings = host.look(site, lambda path: None)
    verdicts = [finding.verdict for finding in findings if finding.key.startswith("software")]
    assert verdicts == ["unknown"]


@pytest.mark.parametrize(
    ("mounted", "kind"),
    [("nfs4", "nfs"), ("fuse.ceph", "ceph"), ("gpfs", "gpfs"), ("fuse.beegfs", "beegfs"), ("tmpfs", "tmpfs")],
)
def test_names_of_kinds(mounted: str, kind: str) -> None:
    assert kind_of(mounted) == kind
