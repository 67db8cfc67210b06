"""Settings of Beam on Apache Flink."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shardmill.infra.settings import Settings


class FlinkConfig(Settings):
    """A Flink cluster; used if runner.name = "flink"."""

    master: str = Field(
        "", description="REST address of the Flink JobManager, HOST:PORT; its port is 8081 as a rule"
    )
    job_endpoint: str = Field(
        "",
        description="Address of Beam's job server for Flink, HOST:PORT; empty: port 8099 on the same host",
    )
    pool_endpoint: str = Field(
        "localhost:50000",
        description="Address of the pool of Python workers, HOST:PORT, as each TaskManager sees it",
    )
    parallelism: Annotated[int, Field(ge=0, le=100_000)] = Field(
        0, description="Blocks or shards at a time; 0: all task slots of the cluster"
    )
    sdk_worker_parallelism: Annotated[int, Field(ge=1, le=1024)] = Field(
        1, description="Python workers of each TaskManager; each task slot has processes of its own anyway"
    )
    environment_cache_millis: Annotated[int, Field(ge=0, le=86_400_000)] = Field(
        0,
        description=(
            "Time that a Python worker is kept for a later stage (milliseconds); 0: none is left behind"
        ),
    )
