"""The table [train.ranks]: training by several processes. None of it changes the outcome of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from shardmill.infra.settings import Settings
from shardmill.training.ranks.launchers.kubernetes.settings import KubernetesSettings
from shardmill.training.ranks.launchers.ray.settings import RaySettings
from shardmill.training.ranks.launchers.registry import LauncherName
from shardmill.training.ranks.launchers.slurm.settings import SlurmSettings
from shardmill.training.ranks.supervision.slots import RankCount


def _workers(value: object) -> str | None:
    if value is None:
        return None
    RankCount.parse(str(value))
    return str(value)


class RankSettings(Settings):
    """Training by several processes, one a rank."""

    workers: Annotated[str | None, BeforeValidator(_workers)] = Field(
        default=None,
        description="train with so many supervised processes, one a device; a range such as '2..4' goes on "
        "with fewer when a device is gone; unset: one process for all devices",
    )
    launcher: LauncherName = Field(
        default="local",
        description="who places the ranks: 'local', this command on this machine; 'ray', this command on the "
        "machines of a Ray cluster; 'slurm' and 'kubernetes' write the job for such a cluster",
    )
    slurm: SlurmSettings = Field(default_factory=SlurmSettings, description="the batch job of Slurm")
    kubernetes: KubernetesSettings = Field(
        default_factory=KubernetesSettings, description="the JobSet of Kubernetes"
    )
    ray: RaySettings = Field(default_factory=RaySettings, description="training on a Ray cluster")
    shares: Literal["auto", "equal", "measured"] | list[Annotated[int, Field(ge=1)]] = Field(
        default="auto",
        description="how the ranks share the examples of a step: 'equal' parts; 'measured': each rank "
        "computes a few steps for itself at first, and takes what suits its speed; 'auto': measured if the "
        "devices of the ranks have different names, else equal; or a number for each rank, such as [3, 1]",
    )
    max_restarts: int = Field(
        default=3, ge=0, le=10_000, description="restarts in a row that gain no step, before the run fails"
    )
    collectives: Literal["auto", "ring", "nccl"] = Field(
        default="auto",
        description="how ranks sum gradients: 'nccl' between NVIDIA GPUs, 'ring' over the network in host "
        "memory; 'auto' chooses NCCL on GPUs",
    )
    peer_timeout_seconds: float = Field(
        default=60.0,
        ge=1,
        le=604_800,
        description="ranks give up on one whose process is silent for so long; a parent notices a "
        "dead rank at once",
    )
    start_timeout_seconds: float = Field(
        default=600.0,
        gt=0,
        le=604_800,
        description="time for a rank to find the others, to compile and to take its first steps",
    )
    step_timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        le=604_800,
        description="a rank without a step for so long counts as hung; unset: 20 times the slowest step "
        "so far, at least 10 s, or ranks.peer_timeout_seconds with several machines or an object store",
    )
    stop_timeout_seconds: float = Field(
        default=120.0,
        gt=0,
        le=604_800,
        description="time for all ranks to save and end when a signal asks them to stop",
    )

    @model_validator(mode="after")
    def _known_number_of_ranks(self) -> RankSettings:
        if self.launcher != "local" and self.workers is None:
            raise ValueError(
                f"ranks.launcher = {self.launcher!r} needs ranks.workers, the number of ranks on all "
                "machines: --workers 4, or a range such as 2..4"
            )
        return self

    @model_validator(mode="after")
    def _a_share_for_each_rank(self) -> RankSettings:
        if self.workers is None or isinstance(self.shares, str):
            return self
        count = RankCount.parse(self.workers)
        if {count.least, count.most} != {len(self.shares)}:
            raise ValueError(
                f"ranks.shares = {self.shares} has {len(self.shares)} shares for ranks.workers = "
                f"{self.workers}: give one for each rank, or set it to auto"
            )
        return self
