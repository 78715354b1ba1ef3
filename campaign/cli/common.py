"""What every command shares: the flags, the JSON envelope, errors with their exit codes, the project."""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from campaign.errors import (
    EXIT_BAD_INPUT,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_NOW,
    EXIT_OK,
    BadInput,
    CampaignError,
    Problem,
)

if TYPE_CHECKING:
    from campaign.project import Project

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Context:
    """What one command was called with, and what it answers: `data` and `warnings` go into the JSON envelope."""

    command: str
    project_dir: Path | None
    store_path: Path | None
    account: str | None
    as_json: bool
    quiet: bool
    verbose: int
    data: Any = field(default_factory=dict)
    warnings: list[Problem] = field(default_factory=list)
    errors: list[Problem] = field(default_factory=list)
    exit_code: int = EXIT_OK

    @functools.cached_property
    def project(self) -> Project:
        """The project folder; raises `OutsideProject` (exit 2) when there is none."""
        from campaign.project import Project

        return Project.find(self.project_dir, store=self.store_path)

    def note(self, message: str) -> None:
        """A line of progress, on stderr; silent with -q."""
        if not self.quiet:
            click.echo(message, err=True)

    def say(self, text: str) -> None:
        """Text for people, on stdout; nothing when `--json` owns stdout."""
        if not self.as_json:
            click.echo(text)

    def warn(self, problem: Problem | str) -> None:
        """A warning: stderr for people, `warnings` in JSON."""
        problem = Problem(problem) if isinstance(problem, str) else problem
        self.warnings.append(problem)
        if not self.as_json:
            click.echo(f"{click.style('warning', fg='yellow')}: {problem}", err=True)

    def fail(self, problem: Problem | str, *, exit_code: int = EXIT_FAILED) -> None:
        """Note an error that doesn't stop the command: it is shown, and the command ends with `exit_code`."""
        problem = Problem(problem) if isinstance(problem, str) else problem
        self.errors.append(problem)
        self.exit_code = max(self.exit_code, exit_code)

    def console(self, *, stderr: bool = False) -> Any:
        """A rich console: colour only on a terminal and without NO_COLOR; wide enough for logs when piped."""
        from rich.console import Console

        stream = sys.stderr if stderr else sys.stdout
        return Console(file=stream, width=None if stream.isatty() else 160, highlight=False)


def flags(function: F) -> F:
    """The contract's flags: --project --store --account --json -q -v. The command gets one `Context` for them."""

    @click.option(
        "--project",
        "project_dir",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="CAMPAIGN_PROJECT",
        help="Project folder. Default: the nearest parent with .campaign/ or sites/.",
    )
    @click.option(
        "--store",
        "store_path",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="CAMPAIGN_STORE",
        help="DuckDB file. Default: campaign.duckdb in the project.",
    )
    @click.option("--account", help="Account (budget) to charge; beats $CAMPAIGN_ACCOUNT and the files.")
    @click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout; progress stays on stderr.")
    @click.option("-q", "--quiet", is_flag=True, help="No progress; warnings and errors all the same.")
    @click.option("-v", "--verbose", count=True, help="More detail; -vv shows tracebacks.")
    @functools.wraps(function)
    def wrapper(
        *args: Any,
        project_dir: Path | None,
        store_path: Path | None,
        account: str | None,
        as_json: bool,
        quiet: bool,
        verbose: int,
        **kwargs: Any,
    ) -> None:
        here = click.get_current_context()
        if os.environ.get("NO_COLOR"):
            here.color = False
        command = here.command_path.removeprefix("campaign ").strip()
        context = Context(command, project_dir, store_path, account, as_json, quiet, verbose)
        _run(context, functools.partial(function, context, *args, **kwargs))

    return cast(F, wrapper)


def _run(context: Context, body: Callable[[], Any]) -> None:
    try:
        body()
    except CampaignError as error:
        if context.verbose > 1:
            raise
        context.errors.extend(error.problems)
        context.exit_code = error.exit_code
    except KeyboardInterrupt:
        context.errors.append(Problem("interrupted", hint="nothing is lost: repeat the command to go on"))
        context.exit_code = EXIT_INTERRUPTED
    except RuntimeError as error:
        if "Query interrupted" not in str(error):  # what DuckDB makes of Ctrl-C
            raise
        context.errors.append(Problem("interrupted", hint="repeat the command to go on"))
        context.exit_code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # `campaign sql ... | head`: the reader has left; Python must not complain about it at exit either
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115, PTH123
        sys.exit(EXIT_OK)
    except OSError as error:
        if context.verbose > 1:
            raise
        where = error.filename if isinstance(error.filename, str) else None
        context.errors.append(Problem(error.strerror or str(error), where, hint=OS_HINTS.get(error.errno or 0)))
        context.exit_code = EXIT_BAD_INPUT
    _finish(context)


OS_HINTS = {
    errno.EROFS: "this file system is read-only: copy the project to one that you may write",
    errno.EACCES: "ask for the right to write there, or use a project folder of your own",
    errno.ENOSPC: "make room on that file system",
    errno.EDQUOT: "your quota is used up: make room, in bytes and in files",
}
"""What to do about errors of the operating system that no command expects."""


def _finish(context: Context) -> None:
    if context.as_json:
        envelope = {
            "schema": 1,
            "command": context.command,
            "ok": context.exit_code == EXIT_OK,
            "data": context.data,
            "warnings": [problem.to_json() for problem in context.warnings],
            "errors": [problem.to_json() for problem in context.errors],
        }
        click.echo(json.dumps(envelope, default=str, ensure_ascii=False))
    else:
        label = click.style("not now" if context.exit_code == EXIT_NOT_NOW else "error", fg="red")
        for problem in context.errors:
            click.echo(f"{label}: {problem}", err=True)
    sys.exit(context.exit_code)


def selection_flags(function: F) -> F:
    """--plan --site --study --run --where; the command gets one `Selection` named `selection`."""

    @click.option("--plan", "plan_id", help="Only runs of this plan.")
    @click.option("--site", "sites", multiple=True, help="Only runs on this site; repeatable.")
    @click.option("--study", "studies", multiple=True, help="Only runs of this study; repeatable.")
    @click.option("--run", "runs", multiple=True, help="Only this run (id or its first letters); repeatable.")
    @click.option("--where", help="Only runs for which this SQL condition on the view `runs` holds.")
    @functools.wraps(function)
    def wrapper(
        *args: Any,
        plan_id: str | None,
        sites: tuple[str, ...],
        studies: tuple[str, ...],
        runs: tuple[str, ...],
        where: str | None,
        **kwargs: Any,
    ) -> Any:
        # a site may be named by its file too: sites/juwels.yaml means juwels
        names = tuple(Path(site).stem if site.endswith((".yaml", ".yml")) else site for site in sites)
        from campaign.submit.select import Selection

        return function(*args, selection=Selection(plan_id, names, studies, runs, where), **kwargs)

    return cast(F, wrapper)


def cap_flags(function: F) -> F:
    """--max-queued --max-gpu-hours; the command gets one `Caps` named `caps`."""

    @click.option("--max-queued", type=click.IntRange(min=1), metavar="N",
                  help="At most N of the project's jobs queued or running at once.")  # fmt: skip
    @click.option("--max-gpu-hours", type=click.FloatRange(min=0, min_open=True), metavar="H",
                  help="At most H GPU-hours in all: spent, queued and new ones at their walltime.")  # fmt: skip
    @functools.wraps(function)
    def wrapper(*args: Any, max_queued: int | None, max_gpu_hours: float | None, **kwargs: Any) -> Any:
        from campaign.submit.limits import Caps

        require(
            max_gpu_hours is None or math.isfinite(max_gpu_hours),
            Problem("not a number of hours", key="--max-gpu-hours", value=max_gpu_hours, allowed="more than 0"),
        )
        return function(*args, caps=Caps(max_queued, max_gpu_hours), **kwargs)

    return cast(F, wrapper)


def require(condition: bool, problem: Problem | str) -> None:
    """Raise `BadInput` unless `condition`."""
    if not condition:
        raise BadInput(problem)
