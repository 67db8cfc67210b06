"""The table [train.ranks]: training by several processes. None of it changes the outcome of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from shardmill.infra.settings import Settings, WrongValue
from shardmill.training.ranks.devices import RankCount
from shardmill.training.ranks.launchers import LauncherName
from shardmill.training.ranks.launchers.settings import KubernetesSettings, RaySettings, SlurmSettings


def _workers(value: object) -> str | None:
    if value is None:
        return None
    RankCount.parse(str(value))
    return str(value)


class RankSettings(Settings):
    """Training by several processes, one a rank."""

    workers: Annotated[str | None, BeforeValidator(_workers)] = Field(
        default=None,
        description=(
            "Supervised processes, one a device, or a range such as '2..4'; unset: one process for "
            "all devices"
        ),
    )
    launcher: LauncherName = Field(
        default="local",
        description=(
            "Who places ranks: 'local' (this machine), 'ray', 'slurm' or 'kubernetes' (the job is written)"
        ),
    )
    slurm: SlurmSettings = Field(default_factory=SlurmSettings, description="the batch job of Slurm")
    kubernetes: KubernetesSettings = Field(
        default_factory=KubernetesSettings, description="the JobSet of Kubernetes"
    )
    ray: RaySettings = Field(default_factory=RaySettings, description="training on a Ray cluster")
    shares: Literal["auto", "equal", "measured"] | list[Annotated[int, Field(ge=1)]] = Field(
        default="auto",
        description=(
            "Parts of a step: 'measured': by each rank's speed; 'auto': measured if devices have "
            "different names, else equal; or a number a rank, as [3, 1]"
        ),
    )
    max_restarts: int = Field(
        default=3, ge=0, le=10_000, description="restarts in a row that gain no step, before the run fails"
    )
    collectives: Literal["auto", "ring", "nccl"] = Field(
        default="auto",
        description=("How ranks sum gradients: 'nccl' between NVIDIA GPUs, 'ring' over the network"),
    )
    peer_timeout_seconds: float = Field(
        default=60.0,
        ge=1,
        le=604_800,
        description="Silence after which ranks give up on a process",
    )
    start_timeout_seconds: float = Field(
        default=600.0,
        gt=0,
        le=604_800,
        description="Time for a rank to find the others, compile and take its first steps",
    )
    step_timeout_seconds: float | None = Field(
        default=None,
        gt=0,
        le=604_800,
        description=(
            "Time without a step after which a rank counts as hung; unset: 20 times the slowest "
            "step, at least 10 s, or peer_timeout_seconds with several machines or an object store"
        ),
    )
    stop_timeout_seconds: float = Field(
        default=120.0,
        gt=0,
        le=604_800,
        description="Time for all ranks to save and end after a signal",
    )

    @model_validator(mode="after")
    def _known_number_of_ranks(self) -> RankSettings:
        if self.launcher != "local" and self.workers is None:
            raise WrongValue(
                f"ranks.launcher = {self.launcher!r} needs ranks.workers, the number of ranks",
                "give it, over all machines: --workers 4, or a range such as 2..4",
            )
        return self

    @model_validator(mode="after")
    def _a_share_for_each_rank(self) -> RankSettings:
        if self.workers is None or isinstance(self.shares, str):
            return self
        count = RankCount.parse(self.workers)
        if {count.least, count.most} != {len(self.shares)}:
            raise WrongValue(
                f"ranks.shares = {self.shares} has {len(self.shares)} shares for ranks.workers = "
                f"{self.workers}",
                "give one for each rank, or set it to auto",
            )
        return self
