"""The table [train.ranks.kubernetes]: the JobSet of ``--launcher kubernetes``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from shardmill.infra.settings import Settings, WholeText

_Name = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", max_length=253),
    WholeText(),
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
    name: _Label | None = Field(default=None, description="name of the JobSet; unset: that of the run")
    namespace: _Name | None = Field(default=None, description="name of the namespace; unset: the one in use")
    ranks_per_pod: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Ranks of each pod, one a GPU",
    )
    gpu_resource: _LabelKey = Field(default="nvidia.com/gpu", description="name of the GPUs as a resource")
    cpus: _Quantity = Field(default="4", description="processor cores of each pod")
    memory: _Quantity = Field(default="16Gi", description="memory of each pod")
    shared_memory: _Quantity = Field(
        default="2Gi", description="Memory for /dev/shm, through which GPUs of a node talk"
    )
    datasets_claim: _Name = Field(
        default="shardmill-datasets",
        description="Volume claim of the datasets, but with --root in an object store",
    )
    runs_claim: _Name = Field(
        default="shardmill-runs",
        description="Volume claim of the runs, writable by all pods, but with --runs in an object store",
    )
    datasets_path: _Path = Field(default="/data/datasets", description="folder of the datasets in the pods")
    runs_path: _Path = Field(
        default="/data/runs",
        description="Folder of the runs, or of their copies, in the pods",
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
    max_restarts: int = Field(
        default=10, ge=0, le=10_000, description="restarts after failures, before the JobSet fails"
    )
