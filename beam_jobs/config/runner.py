"""Execution of the Beam jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shardmill.infra.settings import AlsoCalled, Settings


class DataflowConfig(Settings):
    """Google Cloud Dataflow; used if runner.name = "dataflow". Each setting is needed."""

    project: str = Field("", description="Google Cloud project")
    region: str = Field("", description="Region, such as europe-west4")
    temp_location: str = Field(
        "", description="Folder for files of the jobs, gs://BUCKET/FOLDER, other than that of the datasets"
    )
    image: str = Field(
        "",
        description=(
            "Container image of the workers: the same Shardmill and libraries, and Beam's "
            "/opt/apache/beam/boot as entry point"
        ),
    )


class FlinkConfig(Settings):
    """A Flink cluster; used if runner.name = "flink"."""

    master: str = Field("", description="REST address of the Flink JobManager, HOST:PORT; usually port 8081")
    job_endpoint: str = Field(
        "",
        description="Beam's job server for Flink, HOST:PORT; empty: port 8099 on the same host",
    )
    pool_endpoint: str = Field(
        "localhost:50000",
        description="Pool of Python workers, HOST:PORT, as each TaskManager sees it",
    )
    parallelism: Annotated[int, Field(ge=0, le=100_000)] = Field(
        0, description="Blocks or shards at a time; 0: all task slots of the cluster"
    )
    sdk_worker_parallelism: Annotated[int, Field(ge=1, le=1024)] = Field(
        1, description="Python workers of each TaskManager; each task slot has processes of its own anyway"
    )
    environment_cache_millis: Annotated[int, Field(ge=0, le=86_400_000)] = Field(
        0,
        description=("Time that a Python worker is kept for a later stage"),
    )


_MIB = 1 << 20


class RunnerConfig(Settings):
    """Execution of the Beam jobs. No setting of this group changes the written bytes."""

    name: str = Field(
        "embedded",
        description=(
            "Embedded (this machine), flink, prism, dataflow, or portable (any job server of Beam's)"
        ),
    )
    options: tuple[str, ...] = Field(
        (), description="Beam's options for a cluster, each as --name=value; they win"
    )
    flink: FlinkConfig = Field(FlinkConfig(), description='The Flink cluster, for runner.name = "flink"')
    prism_program: str | None = Field(None, description="Path of Beam's program prism; it is not downloaded")
    dataflow: DataflowConfig = Field(
        DataflowConfig(), description='Google Cloud Dataflow, for runner.name = "dataflow"'
    )
    processes: Annotated[int, Field(ge=0, le=1024), AlsoCalled("workers", "num_workers")] = Field(
        0,
        description=("Processes in each Beam worker; 0: one a core (embedded, prism), else one"),
    )
    image_seconds: Annotated[float, Field(gt=0, le=86_400)] = Field(
        60, description="An image that takes longer is quarantined"
    )
    image_memory_bytes: Annotated[int, Field(ge=64 * _MIB, le=1 << 44)] = Field(
        4096 * _MIB, description="An image that needs more memory is quarantined"
    )
    plan_ranges: Annotated[int, Field(ge=0, le=4096)] = Field(
        0,
        description=(
            "Ranges in which a version is planned; 0: one process where half of the free memory "
            "suffices, else ranges of at most a million files"
        ),
    )
    block_images: Annotated[int, Field(ge=4, le=65_536)] = Field(
        128, description="Most images in a block, the unit of work and of resuming"
    )


def runner_overrides(runner: str | None, flink_master: str | None) -> list[str]:
    """The settings, each as KEY=VALUE, that the options --runner and --flink-master stand for."""
    overrides = []
    if flink_master is not None:
        overrides += ["runner.name=flink", f"runner.flink.master={flink_master}"]
    if runner is not None:
        overrides.append(f"runner.name={runner}")
    return overrides
