"""A real slurmdbd for `sitebed`: the QOS of site files with their limits, and one account; one cluster after another.

Its own MariaDB on a unix socket, without munge; everything is gone afterwards.
"""

from __future__ import annotations

import contextlib
import math
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.site import Qos, Site
from tests.slurm.testbed.services import search_path
from tests.waiting import wait_for

START_S = 90.0
ACCOUNT = "demo"
CLUSTER = "sites"
"""ClusterName of every controller that uses a `SiteDbd`."""


@dataclass(frozen=True, slots=True)
class SiteDbd:
    """A running slurmdbd."""

    folder: Path
    port: int

    @property
    def slurm_conf(self) -> str:
        """Lines that make a controller of 127.0.0.1 use it, and keep its limits."""
        return f"""\
ClusterName={CLUSTER}
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={self.port}
AccountingStorageEnforce=associations,limits,qos
"""

    def know(self, sites: Sequence[Site]) -> None:
        """Make the QOS of all these sites with their limits, and an account that may use them.

        All sites are one cluster, one after another: making a cluster takes seconds.
        """
        own = [(name, qos) for site in sites for name, qos in _qos_of(site).items()]
        limits = {name: _limits(qos) for name, qos in own}
        assert len(limits) == len(own), "two sites have QOS of one name: they need a slurmdbd each"
        commands = [f"add cluster {CLUSTER}"]
        for name, text in limits.items():
            # every slurmdbd has `normal` already
            commands.append(f"{'modify qos normal set' if name == 'normal' else f'add qos {name}'} {text}")
        user = pwd.getpwuid(os.geteuid()).pw_name
        commands.append(f"add account {ACCOUNT} Description=test Organization=test Cluster={CLUSTER}")
        commands.append(f"add user {user} Account={ACCOUNT} Cluster={CLUSTER} QOS={','.join(limits)}")
        script = "\n".join([*commands, "quit", ""])
        answer = subprocess.run(
            ["sacctmgr", "-i"], input=script, env=self.env, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert "rror" not in answer.stderr, answer.stderr

    @property
    def env(self) -> dict[str, str]:
        """For sacctmgr."""
        return {"PATH": search_path(), "SLURM_CONF": str(self.folder / "client.conf")}


def _qos_of(site: Site) -> dict[str, Qos]:
    return {name: qos for partition in site.partitions.values() for name, qos in partition.qos.items()}


def _limits(qos: Qos) -> str:
    """DenyOnLimit: refused at once instead of waiting for ever."""
    limits = ["Flags=DenyOnLimit"]
    limits += [f"MaxTRESPerJob=node={qos.max_nodes}"] if qos.max_nodes else []
    limits += [f"MinTRESPerJob=node={qos.min_nodes}"] if qos.min_nodes else []
    limits += [f"MaxWall={math.floor(qos.max_time / 60)}"] if qos.max_time and not math.isinf(qos.max_time) else []
    return " ".join(limits)


@contextlib.contextmanager
def site_dbd(port: int) -> Iterator[SiteDbd]:
    """Start MariaDB and slurmdbd."""
    folder = Path(tempfile.mkdtemp(prefix="sitedbd-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else "/tmp"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        _start_database(folder, stack)
        dbd = _start_dbd(folder, port, stack)
        (folder / "client.conf").write_text(
            f"SlurmctldHost=localhost(127.0.0.1)\nAuthType=auth/none\nCredType=cred/none\n"
            f"SlurmUser={pwd.getpwuid(os.geteuid()).pw_name}\n{dbd.slurm_conf}"
        )

        def answers() -> bool:
            argv = ["sacctmgr", "-n", "list", "qos", "format=name"]
            done = subprocess.run(argv, env=dbd.env, capture_output=True, text=True, check=False)
            return done.returncode == 0 and "normal" in done.stdout

        wait_for(answers, START_S, what=lambda: (folder / "slurmdbd.log").read_text()[-3000:])
        yield dbd


def _start_database(folder: Path, stack: contextlib.ExitStack) -> None:
    data, socket = folder / "db", folder / "mysql.sock"
    data.mkdir()
    common = [
        "--no-defaults", f"--datadir={data}", f"--user={pwd.getpwuid(os.geteuid()).pw_name}",
        "--innodb-log-file-size=8M", "--innodb-flush-method=nosync",
    ]  # fmt: skip
    env = {"PATH": search_path(), "LANG": "C.UTF-8"}
    install = ["mariadb-install-db", *common, "--auth-root-authentication-method=socket", "--skip-test-db"]
    subprocess.run(install, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    small = ["--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"]
    argv = ["mariadbd", *common, f"--socket={socket}", f"--pid-file={data}/pid", "--skip-networking", *small,
            "--skip-log-bin", "--performance-schema=OFF"]  # fmt: skip
    _daemon(argv, env, folder / "mariadbd.log", stack)
    wait_for(socket.exists, START_S, what="MariaDB's socket")


def _start_dbd(folder: Path, port: int, stack: contextlib.ExitStack) -> SiteDbd:
    conf = folder / "slurmdbd.conf"
    conf.touch(mode=0o600)
    user = pwd.getpwuid(os.geteuid()).pw_name
    conf.write_text(f"""\
AuthType=auth/none
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user}
StorageLoc=slurm_acct_db
LogFile={folder / "slurmdbd.log"}
PidFile={folder / "slurmdbd.pid"}
""")
    # slurmdbd.conf is looked for beside $SLURM_CONF and can't name a socket; the client library reads the variable
    env = {"PATH": search_path(), "SLURM_CONF": str(folder / "slurm.conf"),
           "MYSQL_UNIX_PORT": str(folder / "mysql.sock")}  # fmt: skip
    _daemon(["slurmdbd", "-D"], env, folder / "slurmdbd.out", stack)
    return SiteDbd(folder, port)


def _daemon(argv: list[str], env: Mapping[str, str], log: Path, stack: contextlib.ExitStack) -> None:
    """A process that ends with the stack, before what was started before it."""
    out = stack.enter_context(log.open("w"))
    process = stack.enter_context(subprocess.Popen(argv, env=env, stdout=out, stderr=out))
    stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
