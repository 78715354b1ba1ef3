"""Plans on disk: `.campaign/plans/<plan_id>.json`, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from campaign.errors import BadInput, Problem
from campaign.plan.model import Plan
from campaign.plan.progress import Progress, counted, silent
from campaign.project import Project

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def save_plan(project: Project, plan: Plan, progress: Progress = silent) -> Path:
    """Write the plan; one run a line. Raises `BadInput` when the project can't be written."""
    path = project.plans_dir / f"{plan.plan_id}.json"
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    head = json.dumps({**plan.to_json(runs=False)}, ensure_ascii=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("w", encoding="utf-8") as file:
            # streamed: a plan of 100,000 runs has 150 MB of text
            file.write(f'{head[:-1]}, "runs": [')
            for index, run in enumerate(counted(plan.runs, progress, "writing the plan", "runs")):
                file.write(",\n" if index else "\n")
                file.write(_ENCODER.encode(run.to_json()))
            file.write("\n]}\n")
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:
        with suppress(OSError):  # a read-only file system refuses this too
            part.unlink()
        raise BadInput(Problem(f"the plan can't be written: {error.strerror}", str(path))) from None
    return path


def run_texts(path: Path) -> Iterator[str]:
    """The runs of a plan that `save_plan` has written, each as its JSON text, in order."""
    with path.open(encoding="utf-8") as lines:
        next(lines)  # all that isn't a run
        for line in lines:
            if line.startswith("{"):
                yield line.rstrip(",\n")


def load_plan(project: Project, plan_id: str) -> Plan:
    """A saved plan by its id, or by the first letters of it. Raises `BadInput`."""
    found = sorted(project.plans_dir.glob("*.json")) if project.plans_dir.is_dir() else []
    names = [path.stem for path in found]
    matching = [name for name in names if name == plan_id] or [name for name in names if name.startswith(plan_id)]
    if len(matching) != 1 or not plan_id:
        what = f"{len(matching)} plans begin with" if matching else "there is no plan"
        hint = "campaign plan SITE   makes one" if not names else None
        raise BadInput(Problem(f"{what} {plan_id!r}", allowed=", ".join(matching or names) or None, hint=hint))
    path = project.plans_dir / f"{matching[0]}.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.get("schema") != 1:
            message = f"the plan has schema {data.get('schema')!r}, this campaign reads 1"
            raise BadInput(Problem(message, str(path), hint="update campaign to the version that wrote it"))
        return Plan.from_json(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"not a plan, or damaged: {error}"
        raise BadInput(Problem(message, str(path), hint="plan again: campaign plan SITE")) from None
