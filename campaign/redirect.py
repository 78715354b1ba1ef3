"""Where programs write during a run, and the variable that moves it to node-local storage. One table.

The rule: redirect what is written, never what is read. Model and data caches (HF_HOME, TORCH_HOME, XDG_CACHE_HOME) stay
where they are, and so do caches that are built once, by hand, with minutes of compilation (TORCH_EXTENSIONS_DIR).
PYTHONPYCACHEPREFIX is never set: it makes Python ignore the compiled files that are already installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from campaign import vendors


class Redirection(NamedTuple):
    """One variable that moves what a program writes."""

    variable: str
    folder: str | None
    """Below the node-local folder of the run; None: the variable is a switch and `value` is its value."""
    moves: str
    access: Literal["written", "read"]
    """`read`: listed to say why it is left alone."""
    verified_by: str
    value: str | None = None
    always: bool = False
    """True: set even when the user has a value of his own, which is then a place on shared storage or another node."""


REDIRECTIONS: tuple[Redirection, ...] = (
    Redirection(
        "TMPDIR",
        "t",
        "temporary files, sockets of multiprocessing, torch.compile's precompiled headers (152 MB)",
        "written",
        "tests/job/test_files.py",
        always=True,
    ),
    Redirection(
        "PYTHONDONTWRITEBYTECODE",
        None,
        "__pycache__ beside every module of the user's that is imported",
        "written",
        "tests/job/test_files.py",
        value="1",
        always=True,
    ),
    Redirection(
        "MPLCONFIGDIR", "c/mpl", "matplotlib's font list and settings folder", "written", "strace, matplotlib 3"
    ),
    Redirection(
        "TORCHINDUCTOR_CACHE_DIR", "c/inductor", "torch.compile's generated code", "written", "strace, torch 2.13 CPU"
    ),
    Redirection("NUMBA_CACHE_DIR", "c/numba", "numba cache=True, else beside the source", "written", "strace, numba"),
    *(Redirection(row.variable, row.folder, row.holds, "written", "not verified") for row in vendors.caches()),
    Redirection("XDG_CACHE_HOME", None, "all of ~/.cache: model and data caches are read there", "read", "by rule"),
    Redirection("HF_HOME", None, "models and data sets of Hugging Face: read", "read", "by rule"),
    Redirection("TORCH_HOME", None, "weights of torchvision: read", "read", "by rule"),
    Redirection("TORCH_EXTENSIONS_DIR", None, "compiled extensions: built once, read by ranks", "read", "by rule"),
)


def redirected(folder: str, user_env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """What to set so that writes go below `folder`: (variables, the user's own values that stay, folders to make)."""
    setting: dict[str, str] = {}
    kept: dict[str, str] = {}
    folders: list[str] = []
    for row in REDIRECTIONS:
        if row.access == "read":
            continue
        if row.variable in user_env and not row.always:
            kept[row.variable] = user_env[row.variable]
            continue
        if row.folder is None:
            assert row.value is not None
            setting[row.variable] = row.value
        else:
            path = f"{folder}/{row.folder}"
            setting[row.variable] = path
            folders.append(path)
    return setting, kept, folders
