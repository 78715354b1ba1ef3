"""The `campaign` command.

Start-up stays instant on a cold parallel file system: this module imports click and nothing else. Each command is a
row of `COMMANDS`; its module is imported when the command runs, never for `campaign --help`.
"""

# ruff: noqa: E402  what Ctrl-C does is settled before anything else is imported

from __future__ import annotations

import signal
import sys

# Ctrl-C while modules are still being imported ends the command like any other, without a traceback; `main` takes it
# over. Only where this is the command itself: programs that import it keep their handler, and nohup's stays ignored.
_ITSELF = "".join(sys.argv[:1]).endswith(("/campaign", "/campaign/__main__.py"))
if _ITSELF and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import importlib
import os
from typing import TYPE_CHECKING, NamedTuple

import click

from campaign import __version__
from campaign.errors import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Row(NamedTuple):
    """Where a command lives and what `campaign --help` says of it (a test holds it against the command's docstring)."""

    target: str
    short_help: str


COMMANDS: dict[str, Row] = {
    "init": Row("campaign.cli.init:init", "Make a project folder from the starter sites and studies."),
    "plan": Row("campaign.cli.plan:plan", "Expand, check and price the runs of sites and studies."),
    "try": Row("campaign.cli.tryrun:tryrun", "Run a study's smallest point for a few steps and say what happened."),
    "submit": Row(
        "campaign.cli.submit:submit",
        "Queue planned runs, exactly as planned.",
    ),
    "run": Row("campaign.cli.run:run", "Plan, submit, wait and collect, with progress."),
    "status": Row("campaign.cli.status:status", "Show where every run stands."),
    "show": Row("campaign.cli.show:show", "Show all that is known of one run."),
    "script": Row("campaign.cli.script:script", "Print the job script of a run."),
    "logs": Row("campaign.cli.logs:logs", "Print what a run printed."),
    "collect": Row("campaign.cli.collect:collect", "Bring records into the store."),
    "cancel": Row("campaign.cli.cancel:cancel", "Cancel queued and running runs, and drop planned ones."),
    "retry": Row("campaign.cli.retry:retry", "Plan a new attempt of runs that ended without success."),
    "rebuild": Row("campaign.cli.rebuild:rebuild", "Make a lost ledger anew from plans, run folders and Slurm."),
    "timer": Row("campaign.cli.timer:timer", "Print the cron line or systemd timer that keeps a campaign going."),
    "cost": Row("campaign.cli.cost:cost", "Show what runs have cost: planned, held and charged."),
    "sql": Row("campaign.cli.sql:sql", "Ask the store in SQL."),
    "plot": Row("campaign.cli.plot:plot", "Draw figures from the store."),
    "export": Row("campaign.cli.export:export", "Mirror results to other tools."),
    "data": Row("campaign.cli.data:data", "Prepare the data sets that studies read."),
    "site": Row("campaign.cli.site:site", "Check a site file, make a first one, probe compute nodes."),
    "doctor": Row("campaign.cli.doctor:doctor", "Say what is installed, what is missing, and what installs it."),
    "completion": Row("campaign.cli.completion:completion", "Print shell completion for bash, zsh or fish."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        module, _, attribute = row.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click's own way imports every command to ask for its help
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        rows = COMMANDS.items()
        return [CompletionItem(name, help=row.short_help) for name, row in rows if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.short_help) for name, row in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean `campaign {close[0]}`?" if close else " `campaign --help` lists them all."
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


EXAMPLES = """\b
Examples:
  campaign init my-study && cd my-study     a project folder with starter files
  campaign run sites/local.yaml             plan, run, collect and show it here
  campaign plan sites/juwels.yaml           what would be queued, and what it costs
  campaign sql "FROM scaling"               ask the results
"""


@click.group(cls=LazyGroup, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="campaign")
def cli() -> None:
    """Run experiment campaigns over several supercomputers and find out where a workload stops scaling, and why."""


def main() -> None:
    """Entry point of the `campaign` command: the contract's exit codes, 130 for Ctrl-C wherever it strikes."""
    _speak_utf8()
    try:
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _interrupt_again
        if "--json" in sys.argv[1:]:
            from campaign.cli.usage import main_json

            main_json(cli)
        code = cli.main(prog_name="campaign", standalone_mode=False)
    except click.exceptions.Exit as left:
        sys.exit(left.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; nothing is lost: repeat the command to go on", err=True)
        sys.exit(EXIT_INTERRUPTED)
    finally:
        if _ITSELF and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # while Python tidies up
    sys.exit(code if isinstance(code, int) else 0)


def _interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Ctrl-C in a callback (a finaliser, the import lock's) would be printed and forgotten: it is sent once more."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    import threading

    # to the main thread, whose system calls it ends, once the callback is over
    again = threading.Timer(0.01, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    again.daemon = True
    again.start()


def _speak_utf8() -> None:
    """Start again in UTF-8 mode where the locale says otherwise: names of files, SQL and JSON are UTF-8 everywhere."""
    if sys.getfilesystemencoding().lower() not in ("utf-8", "utf8"):
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
