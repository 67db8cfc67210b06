"""The table [train.ranks.ray]: training on a Ray cluster."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shardmill.infra.settings import Settings


class RaySettings(Settings):
    """Ranks on the machines of a Ray cluster; ranks.launcher = 'ray'."""

    address: str = Field(
        default="auto",
        min_length=1,
        description="Head of the cluster, HOST:PORT; 'auto': as RAY_ADDRESS or this machine says",
    )
    cpus_per_rank: int = Field(
        default=1,
        ge=1,
        le=4096,
        description="CPUs that each rank takes besides its GPU",
    )
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = Field(
        default="PACK",
        description=(
            "'PACK' on as few machines as possible, 'SPREAD' on as many; 'STRICT_PACK' on one, "
            "'STRICT_SPREAD' each on another"
        ),
    )
    wait_seconds: float = Field(
        default=120.0,
        gt=0,
        le=604_800,
        description="Time to wait for room for the least number of ranks (seconds)",
    )
