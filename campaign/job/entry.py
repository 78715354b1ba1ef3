"""Starts a workload by its entry point: `python -P -u -m campaign.job.entry MODULE[:FUNCTION]`.

A module is run as `python -m` would; with a function, the module is imported and the function called without arguments.
A module below the working directory (the user's project) wins over an installed one of the same name; other modules of
the project are found last, so a project's folder named `analysis` hides nothing that is installed.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path

from campaign.record import Recorder


def belongs_to(project: Path, module: str) -> bool:
    """True when `project` holds the file of this module."""
    path = project.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file() or (path / "__init__.py").is_file()


def main() -> None:
    """Run the workload named by the one argument."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} MODULE[:FUNCTION]")
    module, _, function = sys.argv[1].partition(":")
    Recorder.from_env()
    project = Path.cwd()
    if belongs_to(project, module):
        sys.path.insert(0, os.fspath(project))
    else:
        sys.path.append(os.fspath(project))
    sys.argv = [sys.argv[1]]
    if not function:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    target = getattr(importlib.import_module(module), function, None)
    if not callable(target):
        sys.exit(f"{module} has no function {function!r}")
    sys.exit(target())


if __name__ == "__main__":
    main()
