"""The tables ``[train.ranks.<launcher>]`` of settings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from shardmill.infra.settings import Settings, WholeText

_Name = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253), WholeText()
]
_Label = Annotated[
    str, StringConstraints(pattern=r"^[a-z]([a-z0-9-]*[a-z0-9])?$", max_length=40), WholeText()
]
_Quantity = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"), WholeText()]
_Path = Annotated[str, StringConstraints(pattern=r"^/[^\s:]*$", max_length=1024), WholeText()]
_Image = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"), WholeText()]
_LabelKey = Annotated[
    str, StringConstraints(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$"), WholeText()
]
_LabelValue = Annotated[
    str,
    StringConstraints(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$", max_length=63),
    WholeText(),
]


class KubernetesSettings(Settings):
    """The JobSet of `--launcher kubernetes`."""

    image: _Image = Field(default="shardmill-train:0.2.0", description="image of the pods")
    name: _Label | None = Field(default=None, description="name of the JobSet; unset: of the run")
    namespace: _Name | None = Field(default=None, description="namespace; unset: the one in use")
    ranks_per_pod: int = Field(default=1, ge=1, le=64, description="Ranks of each pod, one a GPU")
    gpu_resource: _LabelKey = Field(default="nvidia.com/gpu", description="name of the GPUs as a resource")
    cpus: _Quantity = Field(default="4", description="processor cores of each pod")
    memory: _Quantity = Field(default="16Gi", description="memory of each pod")
    shared_memory: _Quantity = Field(default="2Gi", description="Memory of /dev/shm")
    datasets_claim: _Name = Field(
        default="shardmill-datasets",
        description="Volume claim of the datasets, unless --root is in an object store",
    )
    runs_claim: _Name = Field(
        default="shardmill-runs",
        description="Volume claim of the runs, writable by all pods, unless --runs is in an object store",
    )
    datasets_path: _Path = Field(default="/data/datasets", description="folder of the datasets in the pods")
    runs_path: _Path = Field(
        default="/data/runs", description="Folder of the runs, or of their copies, in the pods"
    )
    secret: _Name | None = Field(
        default=None, description="secret with environment variables, such as credentials of an object store"
    )
    service_account: _Name | None = Field(default=None, description="service account of the pods")
    priority_class: _Name | None = Field(default=None, description="priority class of the pods")
    node_selector: dict[_LabelKey, _LabelValue] = Field(
        default_factory=dict, description="labels of the nodes to run on"
    )
    queue: _Name | None = Field(default=None, description="queue of Kueue, which then starts the JobSet")
    max_restarts: int = Field(default=10, ge=0, le=10_000, description="restarts before the JobSet fails")


class RaySettings(Settings):
    """Ranks on the machines of a Ray cluster; ranks.launcher = 'ray'."""

    address: str = Field(
        default="auto",
        min_length=1,
        description="Head of the cluster, HOST:PORT; 'auto': as RAY_ADDRESS or this machine says",
    )
    cpus_per_rank: int = Field(default=1, ge=1, le=4096, description="CPUs of each rank")
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = Field(
        default="PACK",
        description=(
            "'PACK' on few machines, 'SPREAD' on many; 'STRICT_PACK' on one, 'STRICT_SPREAD' each on another"
        ),
    )
    wait_seconds: float = Field(
        default=120.0,
        gt=0,
        le=604_800,
        description="Time to wait for room for the least number of ranks",
    )


def _on_one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it has a line feed or another character that cannot be printed")
    return text


_Line = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_on_one_line)]
_Time = Annotated[
    str, StringConstraints(pattern=r"^(\d+|\d+:\d\d|\d+:\d\d:\d\d|\d+-\d+(:\d\d){0,2})$"), WholeText()
]
_Option = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$"), WholeText()]


class SlurmSettings(Settings):
    """The batch job of `--launcher slurm`."""

    ranks_per_node: int = Field(default=1, ge=1, le=1024, description="ranks on each node, one a GPU")
    partition: _Line | None = Field(default=None, description="partition; unset: the default one")
    account: _Line | None = Field(default=None, description="account that pays")
    time: _Time | None = Field(
        default=None,
        description=(
            "Time limit, such as '4:00:00' or '2-0', before which ranks save and the job is queued again"
        ),
    )
    gpu_type: _Line | None = Field(default=None, description="type of the GPUs, such as 'a100'")
    cpus_per_rank: int | None = Field(default=None, ge=1, le=4096, description="processor cores of each rank")
    memory_per_node: _Line | None = Field(default=None, description="memory of each node, such as '200G'")
    options: dict[_Option, _Line] = Field(
        default_factory=dict,
        description="Options of sbatch, such as { constraint = 'nvlink' }",
    )
    state: _Line | None = Field(
        default=None,
        description=(
            "Shared folder for exit statuses; unset: `.slurm` in the folder of the runs; needed for "
            "runs in an object store"
        ),
    )
    setup: list[str] = Field(
        default_factory=list, description="Lines of shell before the ranks start, such as 'module load cuda'"
    )
    python: _Line | None = Field(
        default=None, description="Python on the nodes; unset: the one that writes the script"
    )
