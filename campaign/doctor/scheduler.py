"""Slurm's commands here, and whether the cluster answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from campaign.doctor.check import Check, Need, system_install
from campaign.slurm import commands

SUBMITTING = ("sbatch", "srun", "squeue", "scancel", "scontrol")


def look(need: Need, site: str = "") -> Iterator[Check]:
    """Findings about Slurm. `site` picks the cluster where one login node serves several."""
    users = ("sites with scheduler.kind slurm",)
    install = (
        system_install("slurm-client", "slurm", "log in to a login node of the site, or load its Slurm module")
        + "   # on a supercomputer: log in to its login node instead"
    )
    for program in (*SUBMITTING, "sacct"):
        path = shutil.which(program)
        wanted = need.accounting if program == "sacct" else need.slurm
        yield Check("slurm", program, path is not None if wanted or path else None, path or "missing", users,
                    None if path else install, wanted)  # fmt: skip
    if shutil.which("scontrol"):
        yield _cluster(need, site, users)


def _cluster(need: Need, site: str, users: tuple[str, ...]) -> Check:
    config = commands.show_config(site)
    if isinstance(config, commands.Answer):
        # Slurm's programs without a cluster behind them are common on laptops: no fault unless a site needs it
        ok = False if need.slurm else None
        lines = config.stderr.splitlines()  # the last one is Slurm's reason, those before are its attempts
        return Check("slurm", "cluster", ok, f"no answer: {lines[-1] if lines else 'no message'}", users,
                     "ask again later; or set SLURM_CONF, or log in to the site's login node", need.slurm)  # fmt: skip
    limits = (
        f"{config.name}, Slurm {config.version}, MaxArraySize {config.max_array_size}, KillWait {config.kill_wait_s} s"
    )
    if need.cluster_name and config.name != need.cluster_name:
        return Check("slurm", "cluster", False, f"{limits}; the site file says {need.cluster_name}", users,
                     f"log in to a login node of {need.cluster_name}", need.slurm)  # fmt: skip
    return Check("slurm", "cluster", True, limits, users)
