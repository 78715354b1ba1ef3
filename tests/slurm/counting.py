"""Which of Slurm's programs a command calls: the real ones, behind scripts in PATH that first write down the call."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sstat")

_PROGRAM = """\
#!/bin/sh
# one line a call, in one write, so that calls at the same time don't mix
printf '%s\\n' "{name} $*" >> '{log}'
exec '{real}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Calls:
    """Counts calls of Slurm's programs by processes that have `env` in their environment."""

    folder: Path
    """An empty folder; the programs and their log lie in it."""

    @classmethod
    def into(cls, folder: Path) -> Calls:
        """Make the programs."""
        calls = cls(folder)
        calls._log.touch()
        for name in PROGRAMS:
            real = shutil.which(name)
            if real is not None:
                program = folder / name
                program.write_text(_PROGRAM.format(name=name, real=real, log=calls._log))
                program.chmod(0o755)
        return calls

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to be counted."""
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def made(self) -> list[str]:
        """The calls since `clear`, in order: program and arguments."""
        return self._log.read_text().splitlines()

    def count(self) -> dict[str, int]:
        """How often each program was called since `clear`; programs that weren't are left out."""
        return dict(Counter(line.split()[0] for line in self.made()))

    def clear(self) -> None:
        """Forget the calls so far."""
        self._log.write_text("")

    @property
    def _log(self) -> Path:
        return self.folder / "calls"
