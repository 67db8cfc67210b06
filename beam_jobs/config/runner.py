"""Execution of the Beam jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.settings import Settings

_MIB = 1 << 20


class RunnerConfig(Settings):
    """Execution of the Beam jobs. No setting of this group changes the written bytes."""

    name: str = Field(
        "embedded",
        description="Beam runner: embedded (this machine) or portable (any job server of Beam's)",
    )
    options: tuple[str, ...] = Field(
        (), description="Beam's own options for the portable runner, each as --name=value"
    )
    processes: Annotated[int, Field(ge=0, le=1024)] = Field(
        0,
        description="Processes that work on images, in each Beam worker; 0 for as many as there are "
        "processor cores (embedded), or one (portable)",
    )
    image_seconds: Annotated[float, Field(gt=0)] = Field(
        60, description="An image that takes longer is quarantined (seconds)"
    )
    image_memory_bytes: Annotated[int, Field(ge=64 * _MIB)] = Field(
        4096 * _MIB, description="An image that needs more memory than this is quarantined (bytes)"
    )
    block_images: Annotated[int, Field(ge=4, le=65_536)] = Field(
        128, description="Mean number of images in a block, the unit of work and of resuming"
    )
