"""`campaign timer`: the cron line or systemd timer that keeps a campaign going."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from campaign.cli.common import Context, cap_flags, flags, require
from campaign.errors import Problem

if TYPE_CHECKING:
    from campaign.submit.limits import Caps

EXAMPLES = """\b
Examples:
  campaign timer                              the line for `crontab -e`
  campaign timer systemd > files.txt          a service and a timer for `systemctl --user`
  campaign timer --every 30m --max-queued 50

Nothing is installed: put what it prints where your site allows it. Several at once do no harm, they take turns.
"""

CARRIED = re.compile(r"CAMPAIGN_(STORE|DATA|ACCOUNT|ACCOUNT_\w+|SLURM_CONF_\w+)|SLURM_CONF")
EVERY = re.compile(r"(\d+)\s*(m|min|h)")


@click.command(epilog=EXAMPLES)
@flags
@click.argument("kind", type=click.Choice(["cron", "systemd"]), default="cron")
@click.option("--every", default="10m", show_default=True, help="How often: 5m, 30m, 1h.")
@cap_flags
def timer(context: Context, kind: str, every: str, caps: Caps) -> None:
    """Print the cron line or systemd timer that keeps a campaign going.

    It calls `campaign status --advance`: what is planned is queued as limits allow, and what broke is tried again.
    """
    minutes = _minutes(every)
    root = context.project.root
    command = _command(root, caps)
    log = root / ".campaign" / "timer.log"
    texts = _cron(command, log, minutes) if kind == "cron" else _systemd(command, root, minutes)
    context.data = {"kind": kind, "minutes": minutes, "command": command, "texts": texts}
    for name, text in texts.items():
        context.say(text if kind == "cron" else f"# {name}\n{text}")
    if kind == "cron":
        context.note(f"put it in by `crontab -e`, on one login node; what it says goes to {log}")
    else:
        name = next(iter(texts)).rpartition("/")[2]
        context.note(f"write the two files, then: systemctl --user enable --now {name.replace('.service', '.timer')}; "
                     "where sessions end with your log-out: loginctl enable-linger")  # fmt: skip


def _minutes(every: str) -> int:
    """Minutes of `10m`, `2h`: a divisor of an hour, or whole hours that divide a day, so that cron can say it."""
    match = EVERY.fullmatch(every.strip())
    number = int(match[1]) * (60 if match[2] == "h" else 1) if match else 0
    fits = number and (60 % number == 0 if number < 60 else number % 60 == 0 and 24 * 60 % number == 0)
    require(bool(fits), Problem("not an interval that cron can keep", key="--every", value=every,
                                allowed="1m to 30m (a divisor of 60), 1h, 2h, 3h, 4h, 6h, 8h, 12h, 24h"))  # fmt: skip
    return number


def _command(root: Path, caps: Caps) -> list[str]:
    """argv, with absolute paths: cron knows neither PATH nor folder."""
    program = Path(sys.argv[0]).resolve()
    own = [str(program)] if program.name == "campaign" else [sys.executable, "-m", "campaign"]
    # what the caller's shell says of sites and places, cron's doesn't know
    carried = [f"{name}={value}" for name, value in sorted(os.environ.items()) if CARRIED.fullmatch(name)]
    own = [*(["env", *carried] if carried else []), *own]
    flags = ["--max-queued", str(caps.queued)] if caps.queued is not None else []
    flags += ["--max-gpu-hours", f"{caps.gpu_hours:g}"] if caps.gpu_hours is not None else []
    return [*own, "status", "--advance", "-q", "--project", str(root), *flags]


def _cron(command: list[str], log: Path, minutes: int) -> dict[str, str]:
    when = f"*/{minutes} * * * *" if minutes < 60 else f"0 {'*' if minutes == 60 else f'*/{minutes // 60}'} * * *"
    # % is a line break to cron; a login shell knows the site's Slurm
    line = f"bash -lc {shlex.quote(shlex.join(command))} >> {shlex.quote(str(log))} 2>&1".replace("%", r"\%")
    return {"crontab": f"{when} {line}"}


def _systemd(command: list[str], root: Path, minutes: int) -> dict[str, str]:
    words_of_name = re.sub(r"[^A-Za-z0-9]+", "-", root.name).strip("-").lower()
    # two projects may have one name
    name = f"campaign-{words_of_name}-{hashlib.sha256(str(root).encode()).hexdigest()[:6]}"
    title = root.name.replace("%", "%%").replace("\n", " ")
    folder = "~/.config/systemd/user"
    words = " ".join(_systemd_word(word) for word in ["/bin/bash", "-lc", shlex.join(command)])
    service = (
        f"[Unit]\nDescription=One step of the campaign in {title}\n\n[Service]\nType=oneshot\n"
        # 3: not now, which the next call may change
        f"SuccessExitStatus=3\nExecStart={words}\n"
    )
    timer = (
        f"[Unit]\nDescription=Every {minutes} min one step of the campaign in {title}\n\n[Timer]\n"
        f"OnActiveSec=0\nOnUnitInactiveSec={minutes}min\n\n[Install]\nWantedBy=timers.target\n"
    )
    return {f"{folder}/{name}.service": service, f"{folder}/{name}.timer": timer}


def _systemd_word(word: str) -> str:
    """Quoted for ExecStart, where % and $ mean something."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
