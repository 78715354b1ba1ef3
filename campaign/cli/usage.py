"""Wrong usage under `--json`: click's own complaint as the envelope that every other error has."""

from __future__ import annotations

import json
import sys
from typing import NoReturn

import click

from campaign.errors import EXIT_INTERRUPTED, Problem


def main_json(command: click.Command) -> NoReturn:
    """Run the command line of a call that has `--json` in it; stdout is one JSON object whatever was typed."""
    try:
        command.main(prog_name="campaign", standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "campaign"
        envelope = {
            "schema": 1,
            "command": path.removeprefix("campaign").strip() or "campaign",
            "ok": False,
            "data": {},
            "warnings": [],
            "errors": [_problem(error, path).to_json()],
        }
        click.echo(json.dumps(envelope, ensure_ascii=False))
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(0)


def _problem(error: click.UsageError, path: str) -> Problem:
    key = allowed = None
    if isinstance(error, click.NoSuchOption):
        key = error.option_name
        allowed = ", ".join(error.possibilities or ()) or None
    elif isinstance(error, click.BadParameter) and error.param is not None:
        key = error.param.opts[0] if error.param.param_type_name == "option" else error.param.human_readable_name
        kind = error.param.type
        allowed = ", ".join(str(choice) for choice in kind.choices) if isinstance(kind, click.Choice) else None
    return Problem(error.format_message(), key=key, allowed=allowed, hint=f"{path} --help")
