"""`failed.log`: the last lines of failing ranks, of at most three nodes; one line for each other failing rank."""

from __future__ import annotations

from collections.abc import Sequence

from campaign.job.classify import Failure, describe, signal_name
from campaign.job.nodes import Failures

LIMIT_BYTES = 1 << 20
SUMMARY_BYTES = 128 << 10


def failed_log(failed: Failures, limit: int = LIMIT_BYTES) -> bytes:
    """The file's content; empty when no rank failed."""
    if not failed:
        return b""
    failures, tails = failed.in_order(), failed.tails
    shown = [failure for failure in failures if failure.rank in tails]
    others = [failure for failure in failures if failure.rank not in tails]
    share = (limit - SUMMARY_BYTES) // max(1, len(shown))
    parts = [_section(failure, tails[failure.rank] or failure.lines, share) for failure in shown]
    summary = [describe(failure) for failure in others]
    text = "\n".join(summary).encode()
    if len(text) > SUMMARY_BYTES - 64:
        kept = text[: SUMMARY_BYTES - 64].rpartition(b"\n")[0]
        more = len(summary) - len(kept.splitlines())
        text = kept + f"\n... and {more} more ranks".encode()
    return b"\n".join([*parts, text]) if text else b"\n".join(parts)


def _section(failure: Failure, lines: Sequence[str], limit: int) -> bytes:
    how = f"killed by {signal_name(failure.signal)}" if failure.signal else f"exit code {failure.code}"
    title = f"=== rank {failure.rank} on {failure.node}: {how}\n".encode()
    body = "\n".join(lines).encode()
    room = limit - len(title) - 32
    if len(body) > room:
        body = b"[...]\n" + body[len(body) - room :].partition(b"\n")[2]
    return title + body + b"\n"
