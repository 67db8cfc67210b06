"""The table [train.ranks.slurm]: the batch job of ``--launcher slurm``."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from shardmill.infra.settings import Settings, WholeText


def _on_one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it has a line feed or another character that cannot be printed")
    return text


Line = Annotated[str, StringConstraints(min_length=1, max_length=4096), AfterValidator(_on_one_line)]
_Time = Annotated[
    str,
    StringConstraints(pattern=r"^(\d+|\d+:\d\d|\d+:\d\d:\d\d|\d+-\d+(:\d\d){0,2})$"),
    WholeText(),
]
_Option = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$"), WholeText()]


class SlurmSettings(Settings):
    """The batch job of `--launcher slurm`."""

    ranks_per_node: int = Field(default=1, ge=1, le=1024, description="ranks on each node, one a GPU")
    partition: Line | None = Field(default=None, description="name of the partition; unset: the default one")
    account: Line | None = Field(default=None, description="account that pays")
    time: _Time | None = Field(
        default=None,
        description=(
            "Time limit, such as '4:00:00' or '2-0'; before it ends the ranks save and the job is "
            "queued again; unset: the partition's"
        ),
    )
    gpu_type: Line | None = Field(default=None, description="type of the GPUs, such as 'a100'; unset: any")
    cpus_per_rank: int | None = Field(default=None, ge=1, le=4096, description="processor cores of each rank")
    memory_per_node: Line | None = Field(
        default=None, description="memory of each node as Slurm writes it, such as '200G'"
    )
    options: dict[_Option, Line] = Field(
        default_factory=dict,
        description="Options of sbatch by their long names, such as { constraint = 'nvlink' }",
    )
    state: Line | None = Field(
        default=None,
        description=(
            "Shared folder for exit statuses; unset: `.slurm` in the folder of the runs; needed for "
            "runs in an object store"
        ),
    )
    setup: list[str] = Field(
        default_factory=list,
        description="Lines of shell before the ranks start, such as 'module load cuda'",
    )
    python: Line | None = Field(
        default=None, description="Python on the nodes; unset: the one that writes the script"
    )
