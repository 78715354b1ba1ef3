"""`campaign init`: a project folder from the starter files."""

from __future__ import annotations

from pathlib import Path

import click

from campaign.cli.common import Context, flags
from campaign.errors import BadInput, Problem

EPILOG = """\b
Examples:
  campaign init                          make the working directory a project
  campaign init my-study                 make the folder my-study
  campaign init my-study --site local --site juwels
"""


@click.command(epilog=EPILOG)
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("--site", "sites", multiple=True, help="Only this starter site; repeatable. Default: all.")
@click.option("--force", is_flag=True, help="Replace files that have been changed.")
@flags
def init(context: Context, directory: Path | None, sites: tuple[str, ...], force: bool) -> None:
    """Make a project folder from the starter sites and studies.

    Writes sites/, studies/, campaign.yaml, .gitignore and the schemas that editors read. A file that is there with
    another content is never replaced without --force; repeating the command is safe.
    """
    from campaign import starter

    folder = directory or context.project_dir or Path()
    known = starter.names("sites")
    unknown = [site for site in sites if site not in known]
    if unknown:
        raise BadInput(
            [
                Problem(
                    "no such starter site",
                    key="--site",
                    value=site,
                    allowed=", ".join(known),
                    hint="campaign init --site " + known[0],
                )
                for site in unknown
            ]
        )
    wanted = starter.files(folder.resolve().name or "campaign", sites)
    present = {name: _text(folder / name) for name in wanted}
    unchanged = [name for name, text in wanted.items() if present[name] == text]
    changed = [
        name
        for name in wanted
        if present[name] is not None and name not in unchanged and not name.startswith(starter.SCHEMAS)
    ]
    if changed and not force:
        raise BadInput(
            [Problem("the file is there with another content", str(folder / name)) for name in changed]
            + [
                Problem(
                    "nothing was written", hint="campaign init --force replaces these files; or give another folder"
                )
            ]
        )
    written = [name for name in wanted if name not in unchanged]
    for name in written:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[name], encoding="utf-8")
    (folder / ".campaign").mkdir(parents=True, exist_ok=True)

    steps = _next_steps(folder, [name for name in known if not sites or name in sites])
    context.data = {"project": str(folder.resolve()), "written": written, "unchanged": unchanged, "next": steps}
    context.say(f"{folder}: {len(written)} files written, {len(unchanged)} already there")
    context.say("Next:\n" + "\n".join(f"  {step}" for step in steps))


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, IsADirectoryError):
        return ""
    except OSError as error:
        raise BadInput(Problem(f"can't be read: {error.strerror}", str(path))) from None


def _next_steps(folder: Path, sites: list[str]) -> list[str]:
    import shlex

    go = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    site = "local" if "local" in sites else sites[0]
    return [*go, "campaign doctor", f"campaign plan sites/{site}.yaml", f"campaign run sites/{site}.yaml"]
