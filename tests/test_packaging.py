"""The wheel holds what it must, the base installation is light, the locks fit pyproject, set-up chooses rightly."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import campaign
from tests.slurm.testbed.services import PROGRAMS

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(*argv: str | Path, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run to its end; the test fails with the output when it fails."""
    done = subprocess.run(argv, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done


# -- wheel and base installation --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip would build it from a source archive."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out, cwd=ROOT)
    run("tar", "xzf", next(out.glob("*.tar.gz")), "-C", out)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, cwd=next(out.glob("campaign-*/")))
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a fresh environment that holds the wheel and its base dependencies, nothing else."""
    folder = tmp_path_factory.mktemp("base")
    pins = folder / "pins.txt"
    pins.write_text("".join(f"{name}=={lock.version}{lock.marker}\n" for name, lock in read_lock("ci")))
    run(sys.executable, "-m", "venv", "--without-pip", folder / "v")
    python = folder / "v" / "bin" / "python"
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    install = [uv, "pip", "install"] if uv else [sys.executable, "-m", "pip", "--python", str(python), "install"]
    target = ["--python", str(python)] if uv else []
    run(*install, *target, "--quiet", "-c", pins, wheel)
    return python


def test_wheel_holds_starter_files_and_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for kind in ("sites", "studies"):
        for path in (ROOT / kind).glob("*.yaml"):
            assert f"campaign/starter/{kind}/{path.name}" in names
    tracked = run("git", "ls-files", "campaign", "training", "analysis", "io_bench", cwd=ROOT).stdout.split()
    left_out = [name for name in tracked if name not in names]
    assert left_out == []
    assert not any(name.startswith(("tests/", "benchmarks/", "docs/")) for name in names)


def test_base_installation_is_light(base: Path) -> None:
    listed = "import importlib.metadata as m, json; print(json.dumps([d.name.lower() for d in m.distributions()]))"
    installed = set(json.loads(run(base, "-c", listed).stdout))
    assert "campaign" in installed
    assert not installed & {"torch", "matplotlib", "numpy", "scipy", "pandas", "zarr", "h5py", "mlflow", "netcdf4"}


def test_every_module_of_campaign_imports_without_extras(base: Path) -> None:
    code = """
import importlib, pkgutil, campaign
names = [m.name for m in pkgutil.walk_packages(campaign.__path__, "campaign.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""
    assert int(run(base, "-W", "error", "-c", code, cwd=base.parent).stdout) > 20


def test_commands_of_the_base_installation(base: Path, tmp_path: Path) -> None:
    command = base.with_name("campaign")
    assert "campaign run sites/local.yaml" in run(command, "--help").stdout
    made = json.loads(run(command, "init", tmp_path / "p", "--json").stdout)
    shipped = sorted(path.name for path in (ROOT / "sites").glob("*.yaml"))
    assert sorted(path.name for path in (tmp_path / "p" / "sites").glob("*.yaml")) == shipped
    assert "campaign run sites/local.yaml" in made["data"]["next"]
    argv = [command, "doctor", "--project", tmp_path / "p", "--json"]
    doctor = subprocess.run(argv, capture_output=True, text=True, check=False)
    # the starter studies train, and a base installation has no torch: doctor says so, and with which line to mend it
    answer = json.loads(doctor.stdout)
    assert doctor.returncode == 1, doctor.stderr
    torch = next(check for check in answer["data"]["checks"] if check["name"] == "torch")
    assert torch["ok"] is False
    assert "campaign[train]" in torch["install"]


# -- locks ------------------------------------------------------------------------------------------------------------


class Lock:
    """One pinned requirement of a lock."""

    def __init__(self, text: str) -> None:
        requirement = Requirement(text)
        self.version = str(requirement.specifier).removeprefix("==")
        self.marker = f" ; {requirement.marker}" if requirement.marker else ""


def read_lock(name: str) -> list[tuple[str, Lock]]:
    """(name, pin) of requirements/<name>.txt."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found = []
    for line in lines:
        assert "--hash=sha256:" in line, line
        pin = line.partition("--hash")[0].strip()
        found.append((canonicalize_name(Requirement(pin).name), Lock(pin)))
    return found


def test_ci_lock_satisfies_pyproject() -> None:
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in ("train", "io", "plots", "dev") for line in extras[extra])]
    pins = read_lock("ci")
    for text in wanted:
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        if name in ("campaign", "torch"):
            continue
        versions = [lock.version for pinned, lock in pins if pinned == name]
        assert versions, f"{name} isn't in requirements/ci.txt: make lock"
        assert all(requirement.specifier.contains(version) for version in versions), f"{text} against {versions}"


def test_demo_lock_is_part_of_the_ci_lock() -> None:
    ci = {(name, lock.version) for name, lock in read_lock("ci")}
    assert {(name, lock.version) for name, lock in read_lock("demo")} <= ci


@pytest.mark.parametrize("name", ["ci", "demo"])
def test_locks_leave_torch_and_its_gigabytes_out(name: str) -> None:
    assert not [pinned for pinned, _ in read_lock(name) if re.match(r"torch$|nvidia-|cuda-|triton", pinned)]


def test_versions_agree() -> None:
    assert PYPROJECT["project"]["version"] == campaign.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {campaign.__version__}\n" in citation
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[({re.escape(campaign.__version__)}|Unreleased)\]", changelog, re.MULTILINE)


# -- set-up script ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def setup_env() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_env", ROOT / "scripts" / "setup_env.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["setup_env"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def choose(module: ModuleType, **given: object) -> tuple[str | None, tuple[str, ...]]:
    facts = {"env": {}, "installed": None, "find_links": [], "python_tag": "cp311", "gpu": None} | given
    choice = module.choose_torch(**facts)
    return choice.requirement, choice.options


def test_torch_that_is_there_stays(setup_env: ModuleType) -> None:
    assert choose(setup_env, installed="2.7.1+rocm6.3", gpu="nvidia") == (None, ())


def test_torch_on_an_ordinary_machine_is_the_cpu_build(setup_env: ModuleType) -> None:
    requirement, options = choose(setup_env)
    assert requirement == setup_env.TORCH
    assert options == ("--index-url", "https://download.pytorch.org/whl/cpu")


def test_torch_with_an_nvidia_gpu_is_the_default_build(setup_env: ModuleType) -> None:
    assert choose(setup_env, gpu="nvidia") == (setup_env.TORCH, ())


def test_torch_index_of_the_user_wins(setup_env: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    env = {"TORCH_INDEX_URL": "https://example.org/rocm"}
    _, options = choose(setup_env, env=env, find_links=[str(tmp_path)], gpu="nvidia")
    assert options == ("--index-url", "https://example.org/rocm")


def test_torch_wheel_in_find_links_counts_only_for_this_python(setup_env: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl").touch()
    assert choose(setup_env, find_links=[str(tmp_path)])[1] == ("--find-links", str(tmp_path))
    assert choose(setup_env, find_links=[str(tmp_path)], python_tag="cp313")[1][0] == "--index-url"


def test_find_links_are_read_from_pip_and_uv(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nfind-links = /from/pip.conf\n")
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    here = setup_env.Environment(Path(sys.prefix), [])
    assert here.find_links() == ["/from/pip.conf"]
    monkeypatch.setenv("PIP_FIND_LINKS", "/a /b")
    monkeypatch.setenv("UV_FIND_LINKS", "/c,/a")
    assert setup_env.Environment(Path(sys.prefix), []).find_links() == ["/c", "/a", "/b"]


def test_missing_venv_module_is_told_with_the_line_to_type(tmp_path: Path) -> None:
    """As on Debian, where `python3` comes without ensurepip."""
    (tmp_path / "ensurepip.py").write_text("raise ImportError('as if it were not installed')\n")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "setup_env.py", "demo", "--venv", tmp_path / "v"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"sudo apt-get install python3.{sys.version_info.minor}-venv" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "v").exists()


def test_set_up_never_touches_a_folder_that_is_no_environment(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "setup_env.py", "demo", "--venv", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is no virtual environment" in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "mine"


# -- the commands of the README ---------------------------------------------------------------------------------------


def test_make_targets_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"\bmake ([a-z][a-z-]*)", text))
    assert {"demo", "test"} <= targets
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    missing = [target for target in sorted(targets) if not re.search(rf"^{target}:", makefile, re.MULTILINE)]
    assert missing == []


def test_debian_packages_cover_the_test_bed() -> None:
    lines = (ROOT / "requirements" / "debian.txt").read_text(encoding="utf-8").splitlines()
    assert set(PROGRAMS.values()) <= {line for line in lines if not line.startswith("#")}
