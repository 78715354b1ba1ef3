"""Writing a figure: the same picture gives the same bytes, and a reader never sees half a file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign.errors import BadInput, Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# None takes a field out: dates and versions would make equal figures differ
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def write_figure(figure: Figure, path: Path) -> Path:
    """Write by temporary name, fsync and rename; the format is the suffix (png, svg, pdf). Returns `path`."""
    kind = path.suffix.removeprefix(".")
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        temporary = Path(name)
        with os.fdopen(descriptor, "wb") as file:
            figure.savefig(file, format=kind, metadata=METADATA[kind])
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp's 0600 would shut the group out
        temporary.replace(path)
    except OSError as error:
        raise BadInput(
            Problem(
                f"cannot write the figure: {error.strerror or error}",
                file=str(path),
                hint="campaign plot ... --out DIR",
            )
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
    return path


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
