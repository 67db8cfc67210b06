"""The table [train.run]: how a run is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from shardmill.infra.settings import AlsoCalled, Settings
from shardmill.training.metrics.figures import CHOICES, CHOOSING
from shardmill.training.ranks.devices import DeviceRequest

if TYPE_CHECKING:
    Metric = str
else:
    Metric = Literal["auto", *CHOICES]  # a figure of validation


def _devices(value: object) -> str:
    DeviceRequest.parse(str(value))
    return str(value)


class RunSettings(Settings):
    """How the run is carried out."""

    epochs: Annotated[int, AlsoCalled("num_epochs", "max_epochs")] = Field(
        default=12, ge=1, le=1_000_000, description="passes over the train split"
    )
    framework: Literal["tensorflow", "torch"] = Field(
        default="tensorflow",
        description="TensorFlow, or PyTorch (one process per device)",
    )
    devices: Annotated[str, BeforeValidator(_devices), AlsoCalled("gpus", "gpu", "num_gpus")] = Field(
        default="all",
        description=("'all': every visible GPU (or the CPU); 'one'; a number; 'cpu:N': the CPU as N devices"),
    )
    gpu_memory_limit_bytes: int | None = Field(
        default=None,
        ge=1 << 27,
        le=1 << 50,
        description="Most memory of each GPU; unset: as needed",
    )
    mixed_precision: Annotated[
        Literal["off", "bfloat16", "float16"], AlsoCalled("precision", "amp", "fp16", "bf16")
    ] = Field(default="off", description="type of the computation; weights and loss stay float32")
    accumulate_steps: int = Field(
        default=1,
        ge=1,
        le=65_536,
        description="Parts of a step whose gradients are added up, for less memory",
    )
    rematerialize: bool = Field(
        default=False,
        description=(
            "Compute the outputs of blocks again for the gradient: less memory, more time; "
            "TensorFlow: on one device"
        ),
    )
    jit_compile: bool = Field(default=False, description="compile the step with XLA; on one device")
    deterministic: bool = Field(
        default=False, description="Only operations with the same result bit for bit (slower)"
    )
    validate_every_epochs: int = Field(
        default=1, ge=1, le=1_000_000, description="epochs between validations"
    )
    evaluate_train: bool = Field(
        default=False,
        description="At the end evaluate the best model on the train split too",
    )
    best_metric: Metric = Field(
        default="auto",
        description="Figure of validation that chooses the best model; 'auto': "
        + ", ".join(f"{figures[0]} ({task})" for task, figures in CHOOSING.items()),
    )
    patience: Annotated[int | None, AlsoCalled("early_stopping")] = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="stop after so many validations without a better best_metric",
    )
    callbacks: list[str] = Field(
        default_factory=list,
        description="callbacks of Keras, each as 'module:factory'",
    )
    checkpoint_every_steps: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="steps between checkpoints, besides those of epochs",
    )
    checkpoint_every_seconds: float = Field(
        default=300.0,
        gt=0,
        le=604_800,
        description="longest time without a checkpoint, at the next step boundary",
    )
    keep_checkpoints: int = Field(
        default=2, ge=1, le=10_000, description="latest checkpoints kept, besides the best"
    )
    log_every_steps: int = Field(
        default=10, ge=1, le=1_000_000_000, description="steps between figures of the train split"
    )
    log_pictures: bool = Field(
        default=True,
        description=("Pictures in TensorBoard: augmented examples, and the hardest of validation"),
    )
    profile_steps: tuple[int, int] | None = Field(
        default=None,
        description="First and last step (from 1) of a profile, as in [10, 15]",
    )
    trace_records: bool = Field(
        default=False, description="write the ids of all records consumed to consumed.jsonl"
    )
    preemption_signal: Literal["SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP"] = Field(
        default="SIGTERM",
        description="Signal to save and end with status 75, besides SIGTERM",
    )
    fresh: bool = Field(default=False, description="forget what an earlier run of this configuration did")

    @field_validator("profile_steps")
    @classmethod
    def _in_order(cls, steps: tuple[int, int] | None) -> tuple[int, int] | None:
        if steps is not None and not 1 <= steps[0] <= steps[1]:
            raise ValueError("give two steps from 1 on, the first one first, as in [10, 15]")
        return steps
