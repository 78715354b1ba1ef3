"""munge, MariaDB, slurmdbd and the controllers: how each is started and when it is ready."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.slurm.testbed.clusters import ACCOUNTS, QOS, USER_QOS
from tests.slurm.testbed.config import Layout
from tests.slurm.testbed.network import Network
from tests.slurm.testbed.processes import PidFiles, tail
from tests.slurm.testbed.settings import Settings
from tests.waiting import wait_for

START_S = 120.0
"""Deadline for one service; a healthy machine needs a second."""

PROGRAMS = {
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "ip": "iproute2",
    "unshare": "util-linux",
    "mount": "mount",
}
"""Program -> Debian package."""


def missing_packages() -> list[str]:
    """Debian packages whose programs the bed needs and the machine lacks."""
    path = search_path()
    return sorted({package for program, package in PROGRAMS.items() if shutil.which(program, path=path) is None})


def search_path() -> str:
    """PATH with the folders where daemons lie."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"


def daemon_environment(settings: Settings, **extra: str) -> dict[str, str]:
    """A bare environment, so that no variable of the caller reaches a daemon or a job through it."""
    return {"PATH": search_path(), "LANG": "C.UTF-8", "TESTBED_ROOT": str(settings.root), **extra}


class Services:
    """The daemons of one bed."""

    def __init__(self, settings: Settings, network: Network, pids: PidFiles) -> None:
        self.settings = settings
        self.network = network
        self.layout = Layout(settings.root)
        self.pids = pids

    def start_munge(self) -> None:
        """Own key, own socket; waits until it answers."""
        key = self.layout.root / "munge" / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        folder = self.layout.root / "munge"
        files = {"key-file": key, "socket": self.layout.munge_socket}
        files |= {"pid-file": folder / "pid", "log-file": folder / "log", "seed-file": folder / "seed"}
        argv = ["munged", "-F", "--num-threads=4", *(f"--{option}={path}" for option, path in files.items())]
        self._start("munged", argv)
        self._ready("munged", lambda: _accepts_unix(self.layout.munge_socket))

    def start_database(self) -> None:
        """MariaDB on a unix socket. Its data lie on a tmpfs that it alone sees: ten times faster to initialise, and
        gone with the process."""
        data = self.layout.database
        # small log files: 5 s on a disk with the defaults, 0.6 s like this
        common = f"--no-defaults --datadir={data} --user=root --innodb-log-file-size=8M --innodb-flush-method=nosync"
        script = f"""set -e
        mount -t tmpfs -o mode=700 db {data}
        mariadb-install-db {common} --auth-root-authentication-method=socket --skip-test-db
        exec mariadbd {common} --socket={self.layout.mysql_socket} --pid-file={data}/pid --skip-networking \\
            --innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 \\
            --skip-log-bin --performance-schema=OFF
        """
        self._start("mariadbd", ["unshare", "-m", "--propagation", "private", "/bin/sh", "-c", script])

    def database_ready(self) -> None:
        """Wait until MariaDB talks."""
        self._ready("mariadbd", lambda: _accepts_unix(self.layout.mysql_socket, greeting=True))

    def start_dbd(self) -> None:
        """slurmdbd; waits until its port is open."""
        # slurmdbd.conf can't name a socket; the client library reads this variable
        env = {"MYSQL_UNIX_PORT": str(self.layout.mysql_socket), "SLURM_CONF": str(self.layout.dbd_conf.parent / "x")}
        self._start("slurmdbd", ["slurmdbd", "-D"], env)
        self._ready("slurmdbd", lambda: _accepts_tcp(self.network.login, self.network.dbd_port))

    def create_accounts(self) -> None:
        """Clusters, QOS, accounts and users, in one connection."""
        clusters = ",".join(self.settings.clusters)
        accounts = ",".join(ACCOUNTS)
        commands = [f"add cluster {clusters}", *(f"add qos {line}" for line in QOS)]
        commands.append(f"add account {accounts} Description=test Organization=test Cluster={clusters}")
        commands.append(
            f"add user {','.join(self.settings.users)} Account={accounts} DefaultAccount={ACCOUNTS[0]} "
            f"Cluster={clusters} QOS={','.join(USER_QOS)} DefaultQOS=normal"
        )
        env = daemon_environment(self.settings, SLURM_CONF=str(self.layout.slurm_conf(self.settings.clusters[0])))
        script = "\n".join([*commands, "quit", ""])
        answer = subprocess.run(["sacctmgr", "-i"], input=script, env=env, capture_output=True, text=True, check=False)
        (self.layout.logs / "sacctmgr.log").write_text(answer.stdout + answer.stderr)
        if answer.returncode != 0 or "error" in answer.stderr:
            raise RuntimeError(f"sacctmgr: {answer.stderr or answer.stdout}")

    def start_ctld(self, cluster: str) -> None:
        """One controller; doesn't wait."""
        self._start(f"slurmctld-{cluster}", ["slurmctld", "-D", "-f", str(self.layout.slurm_conf(cluster))])

    def ctld_ready(self, cluster: str) -> None:
        """Wait until the controller answers."""
        env = daemon_environment(self.settings, SLURM_CONF=str(self.layout.slurm_conf(cluster)))
        self._ready(f"slurmctld-{cluster}", lambda: _succeeds(["scontrol", "ping"], env))

    def _start(self, name: str, argv: list[str], env: Mapping[str, str] | None = None) -> None:
        log = self.layout.logs / f"{name}.out"
        self.pids.start(name, argv, log=log, env=daemon_environment(self.settings, **(env or {})))

    def _ready(self, name: str, answers: Callable[[], bool]) -> None:
        """Wait until `answers`; at once an error, with the log's end, when the process has ended."""

        def ready() -> bool:
            if self.pids.process(name) is None:
                raise RuntimeError(f"{name} has ended: {self._last_words(name)}")
            return answers()

        wait_for(ready, START_S, what=lambda: f"{name} isn't ready: {self._last_words(name)}", interval=0.02)

    def _last_words(self, name: str) -> str:
        logs = (self.layout.logs / f"{name}.log", self.layout.logs / f"{name}.out")
        return "\n".join(tail(log) for log in logs if log.exists())


def _succeeds(argv: list[str], env: Mapping[str, str]) -> bool:
    return subprocess.run(argv, env=env, capture_output=True, check=False).returncode == 0


def _accepts_unix(path: Path, *, greeting: bool = False) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
            return bool(client.recv(1)) if greeting else True
        except OSError:
            return False


def _accepts_tcp(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
