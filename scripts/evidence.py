#!/usr/bin/env python3
"""Writes docs/evidence/<issue>.md from docs/evidence/<issue>.yaml: what was run, what came out, with which commit.

    python scripts/evidence.py main-job                 run everything
    python scripts/evidence.py main-job --only demo     run these parts again, keep the others as they were

The YAML file has `title`, `intro` (optional) and `parts`, a list of

    {id, title, command, tail: 40, timeout_s: 3600, pictures: [globs], text: words before the output}

Commands run in the root of the clone, through `sh -c`. Each result is kept in docs/evidence/<issue>.json (not in
git), so that a
part can be renewed without the others. Pictures are copied to docs/evidence/<issue>/ and named with their SHA-256.
Names of folders outside the clone are replaced: the page says the same wherever it was made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
DEFAULTS: dict[str, Any] = {"tail": 40, "timeout_s": 3600, "pictures": [], "text": "", "shell": "sh"}
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


def main() -> int:
    """Exit 0 when every command that ran did; 1 when one failed (the page is written all the same)."""
    parser = argparse.ArgumentParser(description="Write docs/evidence/ISSUE.md.")
    parser.add_argument("issue")
    parser.add_argument("--only", nargs="+", metavar="ID", help="run only these parts")
    args = parser.parse_args()
    source = EVIDENCE / f"{args.issue}.yaml"
    if not source.exists():
        known = ", ".join(sorted(path.stem for path in EVIDENCE.glob("*.yaml"))) or "none yet"
        print(f"{source.relative_to(ROOT)} is missing; there are: {known}", file=sys.stderr)
        return 2
    plan = YAML(typ="safe", pure=True).load(source.read_text(encoding="utf-8"))
    parts = [DEFAULTS | part for part in plan["parts"]]
    unknown = set(args.only or ()) - {part["id"] for part in parts}
    if unknown:
        print(f"no part {', '.join(sorted(unknown))}; there are: {', '.join(p['id'] for p in parts)}", file=sys.stderr)
        return 2
    results = _load(args.issue)
    failed = []
    for part in parts:
        if args.only and part["id"] not in args.only:
            continue
        print(f"==> {part['id']}: {part['command']}", file=sys.stderr, flush=True)
        results[part["id"]] = run_part(part, args.issue)
        if results[part["id"]]["exit_code"] != part.get("exit_code", 0):
            failed.append(part["id"])
        _save(args.issue, results)
    page = render(plan["title"], plan.get("intro", ""), parts, results)
    (EVIDENCE / f"{args.issue}.md").write_text(page, encoding="utf-8")
    print(f"written: docs/evidence/{args.issue}.md" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def run_part(part: dict[str, Any], issue: str) -> dict[str, Any]:
    """Run one command; what the page needs of it."""
    begin, started = time.monotonic(), datetime.now(UTC)
    commit = _commit()
    try:
        done = subprocess.run(
            ["sh", "-c", part["command"]],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=part["timeout_s"],
            check=False,
        )
        # decoded here, since text mode would make a new line of every step of a progress bar
        code, output = done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        code = 124
        output = (error.stdout or b"").decode(errors="replace") + f"\n(ended after {part['timeout_s']} s)"
    lines = clean(output).splitlines()
    return {
        "started": started.strftime("%Y-%m-%d %H:%M UTC"),
        "duration_s": round(time.monotonic() - begin, 1),
        "commit": commit,
        "exit_code": code,
        "cut": max(0, len(lines) - part["tail"]),
        "lines": lines[-part["tail"] :],
        "pictures": keep_pictures(part, issue),
    }


def keep_pictures(part: dict[str, Any], issue: str) -> list[dict[str, str]]:
    """Copy the part's pictures beside the page; their names, captions and hashes."""
    kept = []
    folder = EVIDENCE / issue
    for pattern in part["pictures"]:
        for path in sorted(ROOT.glob(pattern)):
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{part['id']}-{path.name}"
            shutil.copyfile(path, folder / name)
            kept.append({"file": f"{issue}/{name}", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
    return kept


def clean(text: str) -> str:
    """Output as a person would see it, without the names of this machine's folders."""
    # what a progress bar wrote over is gone on a terminal, too
    text = "\n".join(line.rsplit("\r", 1)[-1] for line in _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n"))
    private = {str(ROOT): ".", str(Path.home()): "~", tempfile.gettempdir(): "TMP"}
    if not sys.base_prefix.startswith("/usr"):
        private[sys.base_prefix] = "PYTHON"
    if folders := os.environ.get("PIP_FIND_LINKS", ""):
        private |= dict.fromkeys(folders.split(), "WHEELS")
    for folder in sorted(private, key=len, reverse=True):
        if len(folder) > 1:
            text = re.sub(rf"{re.escape(folder)}(?![\w.-])", lambda _, name=private[folder]: name, text)
    return text.replace(platform.node(), "HOST") if len(platform.node()) > 3 else text


def render(title: str, intro: str, parts: list[dict[str, Any]], results: dict[str, Any]) -> str:
    """The page."""
    out = [f"# {title}", "", "Written by `scripts/evidence.py`; made again with `make evidence ISSUE=...`.", ""]
    if intro:
        out += [intro.strip(), ""]
    out += ["| part | command | exit code | duration | commit |", "|---|---|---|---|---|"]
    for part in parts:
        result = results.get(part["id"])
        command = part["command"].strip().splitlines()[0].replace("|", "\\|")
        facts = (
            "not run | | "
            if result is None
            else f"{result['exit_code']} | {result['duration_s']} s | {result['commit']}"
        )
        out.append(f"| [{part['title']}](#{anchor(part['title'])}) | `{command}` | {facts} |")
    for part in parts:
        result = results.get(part["id"])
        out += ["", f"## {part['title']}", ""]
        if part["text"]:
            out += [part["text"].strip(), ""]
        out += ["```sh", part["command"].strip(), "```", ""]
        if result is None:
            out.append("Not run yet.")
            continue
        facts = (
            f"exit code {result['exit_code']}, {result['duration_s']} s, {result['started']}, commit {result['commit']}"
        )
        cut = (
            f"; the last {len(result['lines'])} lines of {len(result['lines']) + result['cut']}"
            if result["cut"]
            else ""
        )
        out += [f"{facts}{cut}:", "", "```text", *result["lines"], "```"]
        for picture in result["pictures"]:
            out += [
                "",
                f"![{part['title']}]({picture['file']})",
                "",
                f"`{picture['file']}` sha256 `{picture['sha256']}`",
            ]
    return "\n".join(out) + "\n"


def anchor(title: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _commit() -> str:
    """The commit, marked when anything but these pages has changed since."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs/evidence")
    return _git("rev-parse", "--short=12", "HEAD") + ("-dirty" if changed else "")


def _git(*args: str) -> str:
    return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def _load(issue: str) -> dict[str, Any]:
    path = EVIDENCE / f"{issue}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _save(issue: str, results: dict[str, Any]) -> None:
    path = EVIDENCE / f"{issue}.json"
    path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
