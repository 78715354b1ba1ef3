"""Architectures by the files' own headers; modules and programs that aren't there."""

from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path

import pytest

from campaign.plan.build import build_plan
from campaign.plan.model import Plan
from campaign.plan.software import architecture_of, missing_module
from tests.plan.conftest import SITE, STUDY, Make, changed
from tests.plan.test_places import planned, reasons, site_in, warned

OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]


def elf(machine: int, *, big: bool = False) -> bytes:
    """The first 20 bytes of a 64-bit ELF file: System V ABI, figure 4-3 (e_ident, e_type, e_machine)."""
    ident = b"\x7fELF" + bytes([2, 2 if big else 1, 1]) + bytes(9)
    return ident + struct.pack(">HH" if big else "<HH", 2, machine)


def sif(code: bytes) -> bytes:
    """The first 64 bytes of a SIF image: launch script, magic, version, architecture (each ends in NUL)."""
    launch = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0")
    return (launch + b"SIF_MAGIC\0" + b"01\0" + code + b"\0").ljust(64, b"\0")


@pytest.mark.parametrize(
    ("header", "architecture"),
    [
        (elf(62), "x86_64"), (elf(183), "aarch64"), (elf(3), "i386"), (elf(22, big=True), "s390x"),
        (elf(258), "ELF machine 258"), (sif(b"02"), "x86_64"), (sif(b"04"), "aarch64"), (sif(b"06"), "ppc64le"),
        (sif(b"00"), "SIF architecture 00"), (b"#!/bin/bash\nexec python", None), (b"", None), (b"\x7fELF", None),
        (sif(b"02")[:40], None),
    ],
)  # fmt: skip
def test_a_header_tells_the_architecture(header: bytes, architecture: str | None) -> None:
    assert architecture_of(header) == architecture


def test_this_interpreter_is_built_for_this_machine() -> None:
    """An independent witness: what the kernel calls itself."""
    assert architecture_of(Path(sys.executable).read_bytes()[:64]) == platform.machine()


def with_python(tmp_path: Path, arch: str, header: bytes) -> str:
    python = tmp_path / "gpfs" / "proj" / "python"
    text = f"account: budget\narch: {arch}\nsoftware: {{python: {python}}}"
    site = site_in(tmp_path, ("account: budget", text))
    python.write_bytes(header)
    python.chmod(0o755)
    return site


def test_an_interpreter_for_other_processors_cant_run(make_project: Make, tmp_path: Path) -> None:
    (reason,) = reasons(planned(make_project, with_python(tmp_path, "aarch64", elf(62))))
    python = tmp_path / "gpfs" / "proj" / "python"
    assert reason.message == f"interpreter {python} is built for x86_64, compute nodes of tiny are aarch64"
    assert (reason.file, reason.line, reason.key) == ("sites/tiny.yaml", 5, "software.python")
    assert reason.allowed == "aarch64 (sites/tiny.yaml:4)"
    assert all(run.can_run for run in planned(make_project, with_python(tmp_path, "aarch64", elf(183))).runs)


def test_a_wrapper_script_for_an_interpreter_is_unknown(make_project: Make, tmp_path: Path) -> None:
    plan = planned(make_project, with_python(tmp_path, "aarch64", b"#!/bin/sh\nexec apptainer exec a.sif python\n"))
    assert all(run.can_run for run in plan.runs)
    assert [m.rpartition(" is ")[2] for m in warned(plan, "software.python")] == ["unknown, not checked"]


def test_the_interpreter_that_plans_is_held_against_the_site_where_it_is_the_site(
    make_project: Make, tmp_path: Path
) -> None:
    here = site_in(tmp_path, ("account: budget", f"account: budget\narch: {OTHER}"))
    reason = reasons(planned(make_project, here))[0]
    assert reason.message.endswith(f"is built for {platform.machine()}, compute nodes of tiny are {OTHER}")
    assert reason.hint == f"plan and submit with an interpreter that is built for {OTHER}, on a login node of tiny"
    elsewhere = changed(SITE, ("account: budget", f"account: budget\narch: {OTHER}"))
    assert all(run.can_run for run in planned(make_project, elsewhere).runs)


def test_an_interpreter_that_isnt_there(make_project: Make, tmp_path: Path) -> None:
    site = with_python(tmp_path, "x86_64", elf(62))
    (tmp_path / "gpfs" / "proj" / "python").unlink()
    (reason,) = reasons(planned(make_project, site))
    assert reason.message == f"interpreter {tmp_path}/gpfs/proj/python doesn't exist"


def with_image(tmp_path: Path, header: bytes | None) -> str:
    image = tmp_path / "gpfs" / "proj" / "torch.sif"
    text = f"account: budget\narch: {platform.machine()}\ncontainer: {{runtime: apptainer, image: {image}}}"
    site = site_in(tmp_path, ("account: budget", text))
    if header is not None:
        image.write_bytes(header)
    return site


def test_an_image_for_other_processors_cant_run(make_project: Make, tmp_path: Path) -> None:
    own, other = {"x86_64": (b"02", b"04"), "aarch64": (b"04", b"02")}[platform.machine()]
    assert all(run.can_run for run in planned(make_project, with_image(tmp_path, sif(own))).runs)
    (reason,) = reasons(planned(make_project, with_image(tmp_path, sif(other))))
    assert reason.message.endswith(f"is built for {OTHER}, compute nodes of tiny are {platform.machine()}")
    assert (reason.key, reason.line) == ("container.image", 5)


def test_an_image_that_isnt_there(make_project: Make, tmp_path: Path) -> None:
    (reason,) = reasons(planned(make_project, with_image(tmp_path, None)))
    image = tmp_path / "gpfs" / "proj" / "torch.sif"
    assert reason.message == f"container image {image} doesn't exist"
    assert reason.hint == f"apptainer pull {image} docker://NAME  on a login node"


# -- modules and programs --------------------------------------------------------------------------------------------


WORKLOAD = changed(STUDY, ('command: [python, train.py, --lr, "{lr}"]', "workload: WORKLOAD"))


def plan_of(make: Make, tmp_path: Path, study: str, files: dict[str, str] | None = None) -> Plan:
    return build_plan(make(site_in(tmp_path), study, files), ["tiny"])


def test_a_module_that_cant_be_found_is_said_with_what_was_meant(make_project: Make, tmp_path: Path) -> None:
    study = WORKLOAD.replace("WORKLOAD", "training.workloads.hydrologi")
    (reason,) = reasons(plan_of(make_project, tmp_path, study))
    assert reason.message.startswith("module `training.workloads.hydrologi` is not to be found")
    assert (reason.file, reason.line, reason.key) == ("studies/sweep.yaml", 3, "workload")
    assert reason.hint == "did you mean `training.workloads.hydrology`?"


def test_elsewhere_a_missing_module_is_a_warning(make_project: Make) -> None:
    plan = build_plan(make_project(study=WORKLOAD.replace("WORKLOAD", "nothing.here:main")), ["tiny"])
    assert all(run.can_run for run in plan.runs)
    (message,) = warned(plan, "workload")
    assert message.startswith("module `nothing` is not to be found")


def test_looking_for_a_module_imports_nothing(make_project: Make, tmp_path: Path) -> None:
    """Modules of the project folder count, packages above them too; none of them is run."""
    files = {"mine/__init__.py": "raise RuntimeError('imported')", "mine/train.py": "raise RuntimeError('imported')"}
    study = WORKLOAD.replace("WORKLOAD", "mine.train:main")
    assert all(run.can_run for run in plan_of(make_project, tmp_path, study, files).runs)
    assert "mine" not in sys.modules
    reason = reasons(plan_of(make_project, tmp_path, study.replace("mine.train", "mine.test"), files))[0]
    assert reason.message.startswith("module `mine.test` is not")


@pytest.mark.parametrize(
    ("name", "missing"),
    [("json", None), ("json.decoder", None), ("json.nothing", "json.nothing"),
     ("json.decoder.deeper", "json.decoder.deeper"), ("nothing.at.all", "nothing"), ("sys", None),
     ("campaign.job.head", None)],
)  # fmt: skip
def test_the_first_missing_part_of_a_name(tmp_path: Path, name: str, missing: str | None) -> None:
    assert missing_module(name, tmp_path) == missing


@pytest.mark.parametrize(
    ("program", "words"),
    [("FOLDER/gpfs/proj/train", "doesn't exist"), ("FOLDER/gpfs/proj", "is a folder"),
     ("FOLDER/gpfs/proj/data.csv", "is not executable"), ("./train", "doesn't exist")],
)  # fmt: skip
def test_a_program_that_isnt_one(make_project: Make, tmp_path: Path, program: str, words: str) -> None:
    site = site_in(tmp_path)
    (tmp_path / "gpfs" / "proj" / "data.csv").write_text("")
    study = changed(STUDY, ("[python,", f"[{program.replace('FOLDER', str(tmp_path))},"))
    (reason,) = reasons(planned(make_project, site, study=study))
    assert reason.message.startswith("program ")
    assert reason.message.endswith(words)
    assert (reason.key, reason.line) == ("command[0]", 3)


def test_programs_and_modules_of_an_image_are_its_own(make_project: Make, tmp_path: Path) -> None:
    own = {"x86_64": b"02", "aarch64": b"04"}[platform.machine()]
    for study in (WORKLOAD.replace("WORKLOAD", "nothing.here"), changed(STUDY, ("[python,", "[./in/the/image,"))):
        plan = planned(make_project, with_image(tmp_path, sif(own)), study=study)
        assert all(run.can_run for run in plan.runs)


def test_a_program_that_can_only_be_seen_on_the_site_is_no_reason(make_project: Make, tmp_path: Path) -> None:
    """/opt may be another one there; a name with a placeholder is filled in later."""
    for word in ("/opt/nothing/train", '"{lr}/train"', "python3"):
        study = changed(STUDY, ("[python,", f"[{word},"))
        assert all(run.can_run for run in planned(make_project, site_in(tmp_path), study=study).runs), word
