"""Which code a batch was submitted with: commit of the project folder, and campaign's version."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import campaign
from campaign.errors import Problem
from campaign.submit.ledger import Ledger
from campaign.words import count as number

GIT_TIMEOUT_S = 10


def provenance(root: Path) -> dict[str, Any]:
    """{commit, dirty, versions}: commit and dirty are None when the folder is in no git work tree."""
    commit = _git(root, "rev-parse", "HEAD")
    dirty = None if commit is None else bool(_git(root, "status", "--porcelain", "--untracked-files=no"))
    return {"commit": commit, "dirty": dirty, "versions": {"campaign": campaign.__version__}}


def _git(root: Path, *args: str) -> str | None:
    command = ["git", "-C", str(root), *args]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def note_origin(ledger: Ledger, site: str, tag: str, origin: Mapping[str, Any]) -> None:
    """Keep what `provenance` said when this batch was submitted."""
    with ledger.transaction() as db:
        db.execute(
            "INSERT OR REPLACE INTO origins VALUES (?, ?, ?, ?, ?)",
            (site, tag, origin["commit"], origin["dirty"], origin["versions"]["campaign"]),
        )


def other_code(ledger: Ledger, root: Path, done: Sequence[str]) -> Problem | None:
    """The warning that some of these measured runs were submitted with another commit than the one that is there now.

    None when all are of this commit, and when nobody knows.
    """
    if not done or (current := _git(root, "rev-parse", "HEAD")) is None:
        return None
    ledger.db.execute("CREATE TEMP TABLE IF NOT EXISTS measured (run_id TEXT PRIMARY KEY)")
    ledger.db.execute("DELETE FROM measured")
    ledger.db.executemany("INSERT OR IGNORE INTO measured VALUES (?)", [(run_id,) for run_id in done])
    rows = ledger.query(
        "SELECT o.commit_id, count(DISTINCT j.run_id) AS n FROM measured JOIN jobs j USING (run_id) "
        "JOIN origins o USING (site, tag) WHERE j.state = 'done' AND o.commit_id IS NOT NULL AND o.commit_id <> ? "
        "GROUP BY 1 ORDER BY 2 DESC",
        (current,),
    )
    if not rows:
        return None
    commits = ", ".join(f"{row['commit_id'][:10]} ({row['n']})" for row in rows[:3]) + (", ..." if rows[3:] else "")
    measured = number(sum(row["n"] for row in rows), "run")
    message = f"{measured} measured with other code: commit {commits}; now {current[:10]}"
    return Problem(message, hint="they stay valid; `revision: NAME` in the study makes new runs of all")
