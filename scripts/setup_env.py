#!/usr/bin/env python3
"""Makes the virtual environment of this clone: locked packages, the right build of torch, `campaign` itself, editable.

    python3 scripts/setup_env.py demo     what `make demo` needs
    python3 scripts/setup_env.py ci       all that the tests and checks need

Standard library only: it runs before anything is installed. Repeating it costs nothing (a stamp in the environment
names what was installed). Packages come from requirements/<lock>.txt with hashes; uv installs them, pip where uv can't
be had. torch isn't in the locks, because its builds come from different places; the first that applies:

    a torch that is already in the environment        kept
    $TORCH_INDEX_URL                                  taken from that index (ROCm, a site's own mirror)
    a wheel in find-links ($PIP_FIND_LINKS, $UV_FIND_LINKS, pip's configuration)
    an NVIDIA GPU on this machine                     the default build, with CUDA
    otherwise                                         the CPU build, from PyTorch's index of CPU wheels
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
LOCKS = {"demo": ("demo", "ci"), "ci": ("ci",)}
"""Lock that is asked for -> installed locks that satisfy it (ci holds everything of demo, in the same versions)."""

TORCH = "torch==2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
OLDEST = (3, 11)
SYSTEM_CERTIFICATES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Debian; Red Hat; SUSE."""


class SetupError(Exception):
    """Set-up can't go on; the text says what to type."""


@dataclasses.dataclass(frozen=True)
class TorchChoice:
    """Where torch comes from: installer options, empty `requirement` when it is there already."""

    why: str
    requirement: str | None = TORCH
    options: tuple[str, ...] = ()


def choose_torch(
    env: Mapping[str, str], installed: str | None, find_links: list[str], python_tag: str, gpu: str | None
) -> TorchChoice:
    """The build of torch for this machine. `gpu` is nvidia, amd or None; `python_tag` is like cp311."""
    if installed is not None:
        return TorchChoice(f"torch {installed} is installed and stays", None)
    if index := env.get("TORCH_INDEX_URL"):
        return TorchChoice(f"{TORCH} from $TORCH_INDEX_URL", options=("--index-url", index))
    pattern = f"{TORCH.replace('==', '-')}*-{python_tag}-*.whl"
    for folder in find_links:
        if any(Path(folder).glob(pattern)):
            return TorchChoice(f"{TORCH} from the find-links folder", options=("--find-links", folder))
    if gpu == "nvidia":
        return TorchChoice(f"{TORCH} with CUDA: this machine has an NVIDIA GPU")
    note = "; for this AMD GPU set TORCH_INDEX_URL to a ROCm index of PyTorch" if gpu == "amd" else ""
    return TorchChoice(f"{TORCH}, CPU build{note}", options=("--index-url", CPU_INDEX))


def find_gpu() -> str | None:
    """nvidia, amd or None, by what the kernel drivers show (nothing is run)."""
    if Path("/proc/driver/nvidia/version").exists():
        return "nvidia"
    return "amd" if Path("/dev/kfd").exists() else None


@functools.cache
def pip_config(python: Path) -> dict[str, str]:
    """What pip's configuration files say for all commands and for `install`, which beats the former."""
    # `pip config list`, since `get` of pip 23 doesn't find keys that `list` shows
    command = [python, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    entries = re.findall(r"^(global|install)\.([a-z-]+)=(.+)$", done.stdout, re.MULTILINE)
    return {name: str(ast.literal_eval(value)) for _, name, value in sorted(entries)}


def say(text: str) -> None:
    """A line of progress, on stderr."""
    print(f"==> {text}", file=sys.stderr, flush=True)


class Environment:
    """One virtual environment and what can be done to it."""

    def __init__(self, folder: Path, venv_args: list[str]) -> None:
        self.folder = folder
        self.venv_args = venv_args
        self.python = folder / "bin" / "python"
        self.stamp = folder / "campaign-setup.json"
        self.env = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "VIRTUAL_ENV")}
        self.env.setdefault("DS_BUILD_OPS", "0")  # DeepSpeed: nothing is compiled at installation

    def digest(self, lock: str) -> str:
        """Changes when anything changes that the environment is made from."""
        digest = hashlib.sha256(sys.version.encode())
        for path in (REQUIREMENTS / f"{lock}.txt", ROOT / "pyproject.toml", Path(__file__)):
            digest.update(path.read_bytes())
        digest.update(str(ROOT).encode())
        return digest.hexdigest()

    def has(self, lock: str) -> bool:
        """True when an earlier call has finished with `lock`, or with one that holds all of it."""
        try:
            done = json.loads(self.stamp.read_text())
        except (OSError, ValueError):
            return False
        return self.python.exists() and any(done.get(name) == self.digest(name) for name in LOCKS[lock])

    def create(self) -> None:
        """Make the environment, unless it is there and its Python still runs."""
        if self.python.exists() and self.output("-c", "import pip") is not None:
            return
        if self.folder.exists() and not (self.folder / "pyvenv.cfg").exists():
            raise SetupError(f"{self.folder} exists and is no virtual environment; remove it or give another VENV=")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        try:
            import ensurepip  # noqa: F401
            import venv  # noqa: F401
        except ImportError:
            raise SetupError(
                "this Python has no `venv` module (Debian and Ubuntu ship it apart). Install it and repeat:\n"
                f"    sudo apt-get install python{version}-venv"
            ) from None
        say(f"virtual environment {self.folder.name} with Python {version}")
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", *self.venv_args, str(self.folder)], check=True, env=self.env
        )

    def output(self, *args: str) -> str | None:
        """stdout of the environment's Python, or None when it fails."""
        try:
            done = subprocess.run([self.python, *args], capture_output=True, text=True, env=self.env, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    def pip_setting(self, name: str) -> str | None:
        """A setting of pip, from its configuration files or PIP_* variables. uv reads neither."""
        return self.env.get("PIP_" + name.upper().replace("-", "_")) or pip_config(self.python).get(name)

    def find_links(self) -> list[str]:
        """Folders and pages that pip or uv was told to look in, as `--find-links` takes them."""
        named = self.env.get("UV_FIND_LINKS", "").split(",") + (self.pip_setting("find-links") or "").split()
        return list(dict.fromkeys(entry.removeprefix("file://") for entry in named if entry.strip()))

    def installer(self) -> list[str]:
        """`uv pip install` from the environment, or pip's where uv can't be had."""
        uv = self.folder / "bin" / "uv"
        if not uv.exists():
            command = [self.python, "-m", "pip", "install", "-q", "--require-hashes", "-r", REQUIREMENTS / "uv.txt"]
            if subprocess.run(command, env=self.env, check=False).returncode != 0 or not uv.exists():
                say("uv can't be installed here: going on with pip, which is slower")
                return [str(self.python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        # what pip was told about mirrors and certificates holds for uv too; like pip it trusts whom the system trusts
        if any(Path(bundle).exists() for bundle in SYSTEM_CERTIFICATES):
            self.env.setdefault("UV_SYSTEM_CERTS", "true")
        for setting, variable in (("index-url", "UV_DEFAULT_INDEX"), ("cert", "SSL_CERT_FILE")):
            value = self.pip_setting(setting)
            if value and variable not in self.env:
                self.env[variable] = value
        return [str(uv), "pip", "install", "--quiet", "--python", str(self.python)]

    def install(self, lock: str) -> None:
        """Locked packages, then torch, then the clone itself."""
        install = self.installer()
        tag, _, torch = (self.output("-c", PROBE) or "").partition(" ")
        choice = choose_torch(self.env, torch or None, self.find_links(), tag, find_gpu())
        # the lock holds all that is needed, but torch, which some of it depends on
        self.step(f"packages of requirements/{lock}.txt", install, "--require-hashes", "--no-deps", "-r",
                  f"requirements/{lock}.txt")  # fmt: skip
        if choice.requirement is None:
            say(choice.why)
        else:
            hint = "Set TORCH_INDEX_URL to an index that has it, or PIP_FIND_LINKS to a folder with its wheel."
            self.step(choice.why, install, *choice.options, choice.requirement, hint=hint)
        self.step("campaign itself, editable", install, "--no-deps", "--no-build-isolation", "-e", ".")
        self.warm()

    def step(self, title: str, install: list[str], *args: str, hint: str = "") -> None:
        """Run the installer once, with a line that says for what and how long it took."""
        say(title)
        begin = time.monotonic()
        if subprocess.run([*install, *args], env=self.env, cwd=ROOT, check=False).returncode != 0:
            raise SetupError(f"the installer failed (its message is above): {title}\n{hint}".rstrip())
        say(f"    {time.monotonic() - begin:.0f} s")

    def warm(self) -> None:
        """Import once what jobs and tests import, so that no rank compiles byte code at its start."""
        say("byte code")
        begin = time.monotonic()
        env = {name: value for name, value in self.env.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [self.python, "-W", "ignore", "-c", WARM]
        running = [subprocess.Popen([*command, *group.split()], env=env) for group in WARM_GROUPS]
        codes = [process.wait() for process in running]
        if any(codes):
            raise SetupError("an installed package can't be imported (its error is above)")
        say(f"    {time.monotonic() - begin:.0f} s")


WARM = """
import importlib, importlib.util, sys
for name in sys.argv[1:]:
    if importlib.util.find_spec(name.partition(".")[0]):
        importlib.import_module(name)
"""
WARM_GROUPS = (
    "torch torch.distributed torch.nn.parallel torch._dynamo",
    "rich.console pydantic ruamel.yaml submitit duckdb pyarrow.parquet pyarrow.ipc numpy zarr netCDF4 "
    "iris_sample_data h5py matplotlib.pyplot scipy.stats pytest hypothesis jsonschema",
)
"""Two processes side by side: torch alone takes as long as all the others."""

PROBE = """
import sys
from importlib import metadata
try:
    torch = metadata.version("torch")
except metadata.PackageNotFoundError:
    torch = ""
print(f"cp{sys.version_info.major}{sys.version_info.minor} {torch}")
"""


def main() -> int:
    """Exit 0 when the environment is ready, 1 when it can't be made."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", choices=LOCKS, nargs="?", default="demo")
    parser.add_argument("--find-links", action="store_true", help="only print where wheels are looked for, a line each")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--venv-args", default="", help="options for `python -m venv`, such as --system-site-packages")
    args = parser.parse_args()
    environment = Environment(args.venv.absolute(), args.venv_args.split())
    if args.find_links:
        environment.python = Path(sys.executable)
        print("\n".join(environment.find_links()))
        return 0
    try:
        if sys.version_info < OLDEST:
            newer = next((name for name in ("python3.13", "python3.12", "python3.11") if shutil.which(name)), None)
            hint = (
                f"make PYTHON={newer} ..." if newer else "install Python 3.11 or newer, then make PYTHON=python3.11 ..."
            )
            raise SetupError(f"Python {sys.version.split()[0]} is too old. Try: {hint}")
        if environment.has(args.lock):
            return 0
        environment.create()
        environment.install(args.lock)
        environment.stamp.write_text(json.dumps({args.lock: environment.digest(args.lock)}) + "\n")
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
