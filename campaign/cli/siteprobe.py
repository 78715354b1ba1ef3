"""`campaign site probe`: a small job that looks at the facts on compute nodes."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from campaign.cli.common import Context, flags
from campaign.cli.sitefile import NamedSite, fail_once, print_findings, write_new
from campaign.errors import CampaignError, Problem

if TYPE_CHECKING:
    from campaign.site import Site
    from campaign.sitecheck.probejob import Pending, Request

EXAMPLES = """\b
Examples:
  campaign site probe juwels                     2 nodes for some minutes; waits, Ctrl-C leaves the job
  campaign site probe juwels                     again: finds that job and reads what it found
  campaign site probe vega --partition gpu --account mybudget --no-wait
  campaign site probe local                      the same checks on this machine, without a job
"""


@click.command(epilog=EXAMPLES)
@click.argument("name", metavar="SITE")
@click.option("--partition", help="Partition of the job. Default: by size, as for runs.")
@click.option("--nodes", type=click.IntRange(1, 64), default=2, show_default=True, help="Nodes of the job.")
@click.option("--wait/--no-wait", default=True, help="Wait for the job and read what it found.")
@flags
def probe(context: Context, name: str, partition: str | None, nodes: int, wait: bool) -> None:
    """Verify a site file on compute nodes, by a short job.

    The job takes at most 5 minutes and looks at: warning signal, SIGTERM and KillWait; sbcast; /dev/shm and the
    node-local folder; file systems (there, kind) and whether nodes share the run root; container runtime; cores and
    threads of a step and of ranks; GPUs and what Slurm makes visible; interfaces, the name of the first node with
    the site's suffix, TCP latency and bandwidth between two nodes; tracing; internet. The facts are kept with their
    date in .campaign/probes/, and each is held against the file. Nothing edits the file. Without --wait, or after
    Ctrl-C, the same command finds the job again.

    Exit code 1 when the file is wrong or the job failed.
    """
    project = context.project
    the_site = project.load_site(name)
    probes = project.root / ".campaign" / "probes"
    path = project.site_path(name)
    named = NamedSite(the_site, path, project.shown(path), project)
    if the_site.local:
        _probe_here(context, named, probes)
        return
    from campaign.sitecheck import probejob

    sent = probejob.read_pending(probes, the_site.name)
    if sent is None:
        request = _request(context, named, partition, nodes)
        sent = probejob.submit(the_site, request)
        probejob.write_pending(probes, the_site.name, sent)
        context.note(f"sent job {sent.job_id}: {sent.nodes} nodes of {sent.partition}, in {sent.folder}")
    else:
        context.note(f"job {sent.job_id} of {sent.submitted} is on its way: options of this call are left aside")
    context.data = {"site": the_site.name, "state": "queued", "job_id": sent.job_id, "folder": sent.folder,
                    "file": None, "counts": None, "findings": [], "facts": None}  # fmt: skip
    left = _follow(context, the_site, sent, wait)
    if not left:
        context.say(f"job {sent.job_id} of {the_site.name} is on its way; read it with: campaign site probe {name}")
        return
    probejob.pending_file(probes, the_site.name).unlink(missing_ok=True)
    facts = probejob.settled_facts(Path(sent.folder))
    if not any(facts["nodes"].values()):
        context.data["state"] = "failed"
        raise CampaignError(_failure(named, sent, probejob.log_tail(Path(sent.folder))))
    _report(context, named, probes, facts, sent)


def _failure(named: NamedSite, sent: Pending, log: str) -> Problem:
    """Why a job ended before it had looked at anything."""
    message = f"job {sent.job_id} ended before it had looked at anything"
    if log:
        hint = f"mend it, and send another one: campaign site probe {named.site.name}"
        return Problem(f"{message}:\n{log}", sent.folder, hint=hint)
    # not even a log: the job couldn't write where this host can
    message += " and left no log: compute nodes don't see the run root, or may not write there"
    hint = "set paths.run_root in campaign.yaml to a folder that compute nodes see"
    return Problem(message, sent.folder, key="paths.run_root", value=named.site.paths.run_root, hint=hint)


def _request(context: Context, named: NamedSite, partition: str | None, nodes: int) -> Request:
    """What the job asks for. Raises `BadInput`."""
    from campaign.sitecheck.probejob import Request, choose_partition, choose_qos

    the_site, project = named.site, context.project
    paths = project.site_paths(the_site)
    chosen = choose_partition(the_site, nodes, partition)
    filled = {key: named.fill(found.path) for key, found in the_site.filesystems.items()}
    return Request(
        nodes=nodes,
        partition=chosen,
        account=project.resolve_account(the_site, context.account),
        qos=choose_qos(the_site, chosen, nodes),
        run_root=paths.run_root,
        node_local=paths.node_local,
        filesystems={key: path for key, path in filled.items() if path is not None},
    )


def _follow(context: Context, the_site: Site, sent: Pending, wait: bool) -> bool:
    """Wait until the job has left the queue, if that is wanted; True when it has."""
    from campaign.sitecheck.probejob import queued
    from campaign.slurm.commands import Answer

    shown = ""
    try:
        while True:
            report = queued(the_site.name, sent)
            if report is None:
                return True
            state = "no answer from the queue" if isinstance(report, Answer) else report.slurm_state.lower()
            reason = None if isinstance(report, Answer) else report.reason
            line = f"job {sent.job_id}: {state}" + (f" ({reason})" if reason else "")
            if line != shown:
                context.note(line)
                shown = line
            if not wait:
                return False
            time.sleep(the_site.scheduler.poll_interval_s)
    except KeyboardInterrupt:
        context.note(f"job {sent.job_id} goes on; read it later with: campaign site probe {the_site.name}")
        raise


def _probe_here(context: Context, named: NamedSite, probes: Path) -> None:
    """The checks of one node on this machine."""
    from campaign.sitecheck.probejob import read_facts, run_here

    request = _request(context, named, None, 1)
    folder = run_here(named.site, request)
    facts = read_facts(folder)
    context.data = {"job_id": None, "folder": str(folder)}
    _report(context, named, probes, facts, None)


def _report(context: Context, named: NamedSite, probes: Path, facts: dict[str, Any], sent: Pending | None) -> None:
    """Judge the facts, keep them, print them."""
    from campaign.sitecheck import probejob
    from campaign.sitecheck.findings import VERDICTS, count
    from campaign.sitecheck.verdicts import verdicts
    from campaign.slurm.commands import Answer, show_config

    the_site = named.site
    config = show_config(the_site.name) if sent is not None else None
    kill_wait_s = None if config is None or isinstance(config, Answer) else config.kill_wait_s
    partition = sent.partition if sent is not None else the_site.default_partition
    findings = verdicts(the_site, facts, partition, kill_wait_s)
    findings.sort(key=lambda finding: (VERDICTS.index(finding.verdict), finding.line or 0))
    now = datetime.now(UTC)
    path = probes / f"{the_site.name}-{now:%Y-%m-%dT%H%M%SZ}.json"
    folder, complete = Path(context.data["folder"]), probejob.complete(facts)
    answer = {
        "site": the_site.name,
        "state": "done",
        "job_id": sent.job_id if sent else None,
        "folder": None if complete else str(folder),
        "file": str(path),
        "counts": count(findings),
        "findings": [finding.to_json() for finding in findings],
        "facts": facts | {"kill_wait_s": kill_wait_s},
    }
    probes.mkdir(parents=True, exist_ok=True)
    kept = {"schema": 1, "date": f"{now:%Y-%m-%dT%H:%M:%SZ}", "partition": partition, **answer}
    write_new(path, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    if complete:  # nothing stays on shared storage but what was kept
        shutil.rmtree(folder, ignore_errors=True)
    context.data = answer
    wrong = [finding for finding in findings if finding.verdict == "wrong"]
    if context.as_json:
        for finding in wrong:
            context.fail(finding.problem())
        return
    nodes = ", ".join(dict.fromkeys(finding.source for finding in findings)) or "no node"
    print_findings(context, f"{named.shown} against {nodes}", findings, everything=True)
    context.say(f"kept in {context.project.shown(path)}")
    if wrong:
        fail_once(context, named, wrong)
