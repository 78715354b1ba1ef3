"""What each site's documents say of its jobs, and how to see it in what is sent. Written by hand from the sources.

Apart from the golden files: those show what has changed, these say what is right. Sources in brackets: docs/sites.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from campaign.job.network import with_suffix
from tests.sites.sent import PYTHON, Sent

Get = Callable[[Sent], Any]


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact: what is looked at, and what it must be."""

    says: str
    """The fact and its source."""
    get: Get
    expected: Any
    nodes: int = 2
    walltime: str = "00:30:00"


def option(name: str) -> Get:
    """An #SBATCH option; None when it isn't given."""
    return lambda sent: sent.options.get(name)


def rank(variable: str) -> Get:
    """A variable of a rank's environment; None when we don't set it."""
    return lambda sent: sent.rank.get(variable)


def srun(argument: str) -> Get:
    """Whether the step is started with this argument."""
    return lambda sent: argument in sent.srun


def master(host: str) -> Get:
    """The name under which ranks find the node `host`."""
    return lambda sent: with_suffix(host, sent.spec.network["master_addr_suffix"])


def network(key: str) -> Get:
    """What the head and the agents are told of the network."""
    return lambda sent: sent.spec.network[key]


def setup(start: str) -> Get:
    """Lines of the batch script, before the head, that begin with `start`."""
    return lambda sent: [line for line in sent.before if line.startswith(start)]


def spec(name: str) -> Get:
    """What the head is told."""
    return lambda sent: getattr(sent.spec, name)


def own_lines(sent: Sent) -> list[str]:
    """The lines of the site's own set-up, in order."""
    return [line for line in sent.before if not line.startswith(("ulimit", "{", "}", "export"))]


def stage(sent: Sent) -> str:
    """The first module that is loaded."""
    return str(setup("module load")(sent)[0].split()[2])


def last_kill(sent: Sent) -> str:
    """The last of several options wins."""
    return [word for word in sent.srun if word.startswith("--kill-on-bad-exit")][-1]


def price(key: str) -> Get:
    """A part of the price of half an hour."""
    return lambda sent: getattr(sent.run.price, key)


CHECKLIST: dict[str, Sequence[Fact]] = {
    "juwels": (
        Fact("4 nodes for 2 hours: develbooster [JPY 2021]", option("partition"), "develbooster", 4, "02:00:00"),
        Fact("5 nodes: booster, develbooster has at most 4 [JPY 2021]", option("partition"), "booster", 5),
        Fact("4 nodes for 3 hours: booster [JPY 2021]", option("partition"), "booster", 4, "03:00:00"),
        Fact("384 nodes are the booster's most [JPY 2021]", option("partition"), "booster", 384),
        Fact("more: largebooster [JOBS 2024-11]", option("partition"), "largebooster", 512),
        Fact("GPUs by gres [R in every script]", option("gres"), "gpu:4"),
        Fact("48 cores a node, as cores [TEUKEN]", option("cpus-per-task"), "48"),
        Fact("no hardware threads [JSC affinity text]", option("hint"), "nomultithread"),
        Fact("nodes are exclusive: no memory is asked for", option("mem"), None),
        Fact("every rank is shown all four GPUs [JUB, DLC, ITW]", rank("CUDA_VISIBLE_DEVICES"), "0,1,2,3"),
        Fact("12 cores a rank", rank("OMP_NUM_THREADS"), "12"),
        Fact("MASTER_ADDR is the first host + i [JUB]", master("jwb0001.juwels"), "jwb0001i.juwels"),
        Fact("as an address [DLC, JUB]", network("resolve_ip"), True),
        Fact("NCCL over ib0 [ITW, OELLM]", rank("NCCL_SOCKET_IFNAME"), "ib0"),
        Fact("gloo over ib0 too [ITW, OELLM]", rank("GLOO_SOCKET_IFNAME"), "ib0"),
        Fact("srun doesn't bind [ITW, DLC]", srun("--cpu-bind=none"), True),
        Fact("modules of Stages/2025 [ITW]", stage, "Stages/2025"),
        Fact("records in the project's scratch [DLC]", spec("run_root"), "/p/scratch/proj/campaign"),
    ),
    "vega": (
        Fact("partition gpu [HYT, ITW, EESSI]", option("partition"), "gpu", 4),
        Fact("all 60 nodes may be asked for [VEGA-ARCH]", option("partition"), "gpu", 32),
        Fact("CPUs are threads: 128 cores are 256 [VEGA-ARCH]", option("cpus-per-task"), "256"),
        Fact("nodes are shared, so they are asked for whole [HYT]", option("exclusive"), True),
        Fact("memory must be asked for: 384 GiB [HYT]", option("mem"), f"{384 * 1024}M"),
        Fact("GPUs by gres [HYT, ITW, EESSI]", option("gres"), "gpu:4"),
        Fact("no --hint: the threads are ours", option("hint"), None),
        Fact("shared nodes: Slurm says which GPUs", rank("CUDA_VISIBLE_DEVICES"), None),
        Fact("a rank has 32 cores, not 64", rank("OMP_NUM_THREADS"), "32"),
        Fact("MASTER_ADDR is the plain name [ITW]", master("gn01"), "gn01"),
        Fact("NCCL over ib0 [ITW]", rank("NCCL_SOCKET_IFNAME"), "ib0"),
        Fact("gloo over ib0 [ITW]", rank("GLOO_SOCKET_IFNAME"), "ib0"),
        Fact("no PMIx: it broke GROMACS [EESSI]", srun("--mpi=none"), True),
        Fact("scratch is the user's [HYT]", spec("run_root"), "/exa5/scratch/user/alice/campaign"),
    ),
    "jupiter": (
        Fact("partition booster, also for the smallest [jsc-batch]", option("partition"), "booster", 1),
        Fact("12 hours are allowed [jsc-batch]", option("time"), "720", 1, "12:00:00"),
        Fact("all 4 GPUs must be used: gres gpu:4 [jsc-batch]", option("gres"), "gpu:4"),
        Fact("288 cores without SMT are 288 CPUs [jsc-config]", option("cpus-per-task"), "288"),
        Fact("72 cores a rank, those of its Grace [jsc-config]", rank("OMP_NUM_THREADS"), "72"),
        Fact("exclusive, and RealMemory counts HBM: no memory is asked for [JDD]", option("mem"), None),
        Fact("one task would see one GPU: all are named [jsc-gpu]", rank("CUDA_VISIBLE_DEVICES"), "0,1,2,3"),
        Fact("GPUs aren't bound to tasks: it broke NCCL's P2P [NICAM, OELLM]", srun("--gpu-bind=none"), True),
        Fact("no --gpus-per-task either [NICAM]", lambda sent: "--gpus-per-task" in sent.text, False),
        Fact("no suffix i here [OELLM]", master("jpbo-003-02.jupiter.internal"), "jpbo-003-02.jupiter.internal"),
        Fact("NCCL over ib0 [OELLM]", rank("NCCL_SOCKET_IFNAME"), "ib0"),
        Fact("all four HCAs [OELLM]", rank("NCCL_IB_HCA"), "mlx5_0,mlx5_1,mlx5_2,mlx5_3"),
        Fact("gloo's interface isn't needed [OELLM]", rank("GLOO_SOCKET_IFNAME"), None),
        Fact(
            "/p is not on compute nodes: all is below /e [jsc-filesystems]",
            spec("run_root"),
            "/e/scratch/proj/campaign",
        ),
        Fact("the job's log is below /e too [NICAM]", lambda sent: sent.options["output"].startswith("/e/"), True),
        Fact("no disk: node-local is memory [jsc-filesystems]", spec("node_local"), "/dev/shm/campaign-alice"),
        Fact("modules are loaded in the job [jsc-batch]", stage, "Stages/2026"),
        Fact("288 core-h a node-hour: 2 nodes, half an hour [JDD]", price("site_units"), 288.0),
    ),
    "lumi": (
        Fact(
            "standard-g for whole nodes, 2 days [LUMI partitions]", option("partition"), "standard-g", 4, "2-00:00:00"
        ),
        Fact("3 days only in small-g, to 4 nodes [LUMI partitions]", option("partition"), "small-g", 4, "3-00:00:00"),
        Fact("1024 nodes are standard-g's most [LUMI partitions]", option("partition"), "standard-g", 1024),
        Fact(
            "small-g shares nodes: they are asked for whole [LUMI lumig-job]",
            option("exclusive"),
            True,
            4,
            "3-00:00:00",
        ),
        Fact("and 480 GiB, the most of a node [OELLM]", option("mem"), f"{480 * 1024}M", 4, "3-00:00:00"),
        Fact("8 GPUs a node: a GCD is one [LUMI lumig]", option("gpus-per-node"), "8"),
        Fact("not as gres", option("gres"), None),
        Fact("8 ranks a node, one a GCD", spec("ranks_per_node"), 8),
        Fact("56 cores for jobs, jobs of 64 never run [LUMI lumig-job]", option("cpus-per-task"), "56"),
        Fact("as cores: Slurm counts threads [LUMI-TRAIN]", option("hint"), "nomultithread"),
        Fact("7 cores a rank [LUMI lumig-job]", rank("OMP_NUM_THREADS"), "7"),
        Fact("rank n begins next to GCD n [LUMI lumig-job]", spec("cpu_bind"), [49, 57, 17, 25, 1, 9, 33, 41]),
        Fact("AMD: ROCR_VISIBLE_DEVICES [LUMI lumig-job]", rank("ROCR_VISIBLE_DEVICES"), "0,1,2,3,4,5,6,7"),
        Fact("and not CUDA's", rank("CUDA_VISIBLE_DEVICES"), None),
        Fact("RCCL over all four Slingshot interfaces [OELLM, ITW]", rank("NCCL_SOCKET_IFNAME"), "hsn0,hsn1,hsn2,hsn3"),
        Fact("GPU-direct to the host bridge [OELLM]", rank("NCCL_NET_GDR_LEVEL"), "PHB"),
        Fact("libfabric's cxi [ITW]", rank("FI_PROVIDER"), "cxi"),
        Fact("MIOpen's caches are node-local [LUMI pytorch]", rank("MIOPEN_USER_DB_PATH"), "/local/x/c/miopen"),
        Fact("MASTER_ADDR is the plain name [OELLM]", master("nid005124"), "nid005124"),
        Fact(
            "the bindings' module, after its path [ITW]",
            own_lines,
            ["module use /appl/local/containers/ai-modules", "module load singularity-AI-bindings"],
        ),
        Fact("4 GPU-hours a node-hour: 2 nodes, half an hour [LUMI billing]", price("site_units"), 4.0),
    ),
    "leonardo": (
        Fact("partition boost_usr_prod [CINECA-UG]", option("partition"), "boost_usr_prod"),
        Fact("to 64 nodes and 24 hours: normal [CINECA-UG]", option("qos"), "normal", 64, "24:00:00"),
        Fact("from 65 nodes: boost_qos_bprod [CINECA-UG]", option("qos"), "boost_qos_bprod", 128, "24:00:00"),
        Fact("256 nodes are its most [CINECA-UG]", option("qos"), "boost_qos_bprod", 256),
        Fact(
            "more than a day, few nodes: boost_qos_lprod [CINECA-UG]", option("qos"), "boost_qos_lprod", 2, "4-00:00:00"
        ),
        Fact("32 cores a node [CINECA-UG]", option("cpus-per-task"), "32"),
        Fact("8 cores a rank [JOBS]", rank("OMP_NUM_THREADS"), "8"),
        Fact("4 GPUs by gres [OELLM]", option("gres"), "gpu:4"),
        Fact("nodes are shared, so they are asked for whole [CINECA-UG]", option("exclusive"), True),
        Fact("shared nodes: Slurm says which GPUs", rank("CUDA_VISIBLE_DEVICES"), None),
        Fact("what may be asked for isn't known: no memory is", option("mem"), None),
        Fact("NCCL's timeout [OELLM]", rank("NCCL_IB_TIMEOUT"), "120"),
        Fact("MASTER_ADDR is the plain name's address [OELLM]", master("lrdn0001"), "lrdn0001"),
        Fact("resolved [OELLM]", network("resolve_ip"), True),
        Fact("the project's area is shared [CINECA-UG]", spec("run_root"), "/leonardo_work/proj/campaign"),
        Fact("core-hours, 32 a node [CINECA-UG]", price("site_units"), 32.0),
    ),
    "marenostrum5": (
        Fact("partition acc [MN5G]", option("partition"), "acc"),
        Fact("a QOS must be named: acc_ehpc [MN5G]", option("qos"), "acc_ehpc"),
        Fact("64 nodes are below its 8000 cores [MN5G]", option("qos"), "acc_ehpc", 64),
        Fact("72 hours are allowed [MN5G]", option("time"), "4320", 2, "72:00:00"),
        Fact("80 cores a node [MN5G]", option("cpus-per-task"), "80"),
        Fact("as cores: Slurm sees 160 threads [OELLM]", option("hint"), "nomultithread"),
        Fact("20 cores a GPU [MN5G]", rank("OMP_NUM_THREADS"), "20"),
        Fact("4 GPUs by gres [OELLM]", option("gres"), "gpu:4"),
        Fact("--mem can't be set [EESSI]", option("mem"), None),
        Fact("whole nodes [OELLM]", option("exclusive"), True),
        Fact("shared nodes: Slurm says which GPUs", rank("CUDA_VISIBLE_DEVICES"), None),
        Fact("NCCL over four interfaces [OELLM]", rank("NCCL_SOCKET_IFNAME"), "ib0,ib1,ib2,ib3"),
        Fact("these HCAs [OELLM]", rank("NCCL_IB_HCA"), "mlx5_0,mlx5_1,mlx5_4,mlx5_5"),
        Fact("srun doesn't bind GPUs [OELLM]", srun("--gpu-bind=none"), True),
        Fact("MASTER_ADDR is the plain name's address [OELLM]", network("resolve_ip"), True),
        Fact("records in the project's scratch [MN5G]", spec("run_root"), "/gpfs/scratch/proj/campaign"),
    ),
    "karolina": (
        Fact("to 16 nodes: qgpu [IT4I]", option("partition"), "qgpu", 16),
        Fact("more: qgpu_big [IT4I]", option("partition"), "qgpu_big", 32),
        Fact("48 hours in qgpu [IT4I-Q]", option("time"), "2880", 2, "48:00:00"),
        Fact("8 GPUs a node [IT4I]", option("gres"), "gpu:8"),
        Fact("8 ranks a node", spec("ranks_per_node"), 8),
        Fact("128 cores a node, 16 a GPU [IT4I]", option("cpus-per-task"), "128"),
        Fact("16 cores a rank [IT4I]", rank("OMP_NUM_THREADS"), "16"),
        Fact("memory comes with the GPUs [IT4I-Q]", option("mem"), None),
        Fact("shared nodes: Slurm says which GPUs [IT4I]", rank("CUDA_VISIBLE_DEVICES"), None),
        Fact("no QOS is known", option("qos"), None),
        Fact("scratch by project [JOBS]", spec("run_root"), "/scratch/project/proj/campaign"),
        Fact("node-hours: GPUs x hours / 8 [IT4I]", price("site_units"), 1.0),
        Fact("no interface is known, so none is set", rank("NCCL_SOCKET_IFNAME"), None),
    ),
    "meluxina": (
        Fact("partition gpu [LXP]", option("partition"), "gpu"),
        Fact("a QOS must be named [LXP]: default, to 48 hours [LXP-Q]", option("qos"), "default", 2, "48:00:00"),
        Fact("longer: long, to 6 days [LXP-Q]", option("qos"), "long", 2, "6-00:00:00"),
        Fact("64 cores a node [LXP]", option("cpus-per-task"), "64"),
        Fact("hyper-threading is on: only cores [LXP]", option("hint"), "nomultithread"),
        Fact("16 cores a rank", rank("OMP_NUM_THREADS"), "16"),
        Fact("4 GPUs a node [LXP]", option("gpus-per-node"), "4"),
        Fact("jobs get whole nodes anyway [LXP]", option("exclusive"), None),
        Fact("and their memory [LXP]", option("mem"), None),
        Fact("every rank is shown all four GPUs [LXP: the complete node]", rank("CUDA_VISIBLE_DEVICES"), "0,1,2,3"),
        Fact(
            "a login shell's profile first: it brings the modules [LXP, PICONGPU]",
            own_lines,
            [". /etc/profile || true", "module load env/release/2024.1"],
        ),
        Fact("records in the project's home [LXP]", spec("run_root"), "/project/home/proj/campaign"),
        Fact("node-hours [ICHEC]", price("site_units"), 1.0),
    ),
}

EVERYWHERE: Sequence[Fact] = (
    Fact("the account is charged", option("account"), "budget"),
    Fact("the warning reaches the head alone", option("signal"), "B:USR2@90"),
    Fact("a retry is a new job", option("no-requeue"), True),
    Fact("logs aren't truncated", option("open-mode"), "append"),
    Fact("one task a node: the agent", option("ntasks-per-node"), "1"),
    Fact(
        "the head takes the shell's place",
        lambda sent: sent.head.split()[:5],
        ["exec", PYTHON, "-P", "-m", "campaign.job.head"],
    ),
    Fact("no core dumps", lambda sent: sent.before[0], "ulimit -c 0"),
    Fact("modules come before the head", lambda sent: "module" in sent.head, False),
    Fact(
        "and never per rank: the step is our interpreter",
        lambda sent: sent.srun[-4:],
        [PYTHON, "-P", "-m", "campaign.job.agent"],
    ),
    Fact("no shell stands before it", lambda sent: {"bash", "sh"} & set(sent.srun), set()),
    Fact("the head decides who ends when a rank fails: the last word on it", last_kill, "--kill-on-bad-exit=0"),
    Fact("the interpreter of ranks is the site's", spec("python"), PYTHON),
    Fact("secrets stay out of the script", lambda sent: "token" in sent.text, False),
)
