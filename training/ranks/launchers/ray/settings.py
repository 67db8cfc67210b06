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
        description="address of the head of the cluster, HOST:PORT; 'auto': the cluster that RAY_ADDRESS "
        "names, or of which this machine is a part",
    )
    cpus_per_rank: int = Field(
        default=1,
        ge=1,
        le=4096,
        description="CPUs of the cluster that each rank takes, besides its GPU if any",
    )
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = Field(
        default="PACK",
        description="how Ray places the ranks: 'PACK' on as few machines as possible, 'SPREAD' on as many; "
        "'STRICT_PACK' on one, 'STRICT_SPREAD' each on another",
    )
    wait_seconds: float = Field(
        default=120.0,
        gt=0,
        le=604_800,
        description="time to wait for room for the least number of ranks, at the beginning and after a "
        "machine was lost",
    )
