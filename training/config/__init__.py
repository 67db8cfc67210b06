"""What a training run is asked to do: the table ``[train]`` of a configuration. Imports no TensorFlow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from infra.digests import digest_of
from infra.settings import Settings
from training.config.augment import AugmentSettings
from training.config.data import Balance, DataSettings
from training.config.model import ModelSettings
from training.config.optimizer import OptimizerSettings
from training.config.reading import ReadingSettings
from training.config.run import RunSettings
from training.models import default_image_size

if TYPE_CHECKING:
    from infra.catalog import DatasetVersion

__all__ = [
    "AugmentSettings",
    "Balance",
    "DataSettings",
    "ModelSettings",
    "OptimizerSettings",
    "ReadingSettings",
    "RunSettings",
    "TrainConfig",
    "image_size_of",
    "run_identity",
    "run_name",
]

# Settings that say how a run is carried out and not what comes of it; they do not name the run, so that it
# can be resumed with others.
_HOW_NOT_WHAT = (
    "devices",
    "logical_devices",
    "fresh",
    "checkpoint_every_steps",
    "checkpoint_every_seconds",
    "keep_checkpoints",
    "log_every_steps",
)


class TrainConfig(Settings):
    """The table [train]."""

    model: ModelSettings = Field(default_factory=ModelSettings, description="the model")
    data: DataSettings = Field(default_factory=DataSettings, description="examples and their order")
    reading: ReadingSettings = Field(
        default_factory=ReadingSettings, description="how stored records become batches"
    )
    augment: AugmentSettings = Field(
        default_factory=AugmentSettings, description="augmentation of training examples"
    )
    optimizer: OptimizerSettings = Field(
        default_factory=OptimizerSettings, description="optimizer and schedule"
    )
    run: RunSettings = Field(default_factory=RunSettings, description="how the run is carried out")


def image_size_of(config: TrainConfig) -> int:
    """Height and width of the model's input (pixels). Where only the model says it, its file is imported.

    Raises:
        ConfigError: neither the settings nor the model say it.
    """
    return config.data.image_size or default_image_size(config.model.name)


def run_identity(config: TrainConfig, version: DatasetVersion) -> dict[str, Any]:
    """All that the outcome of a run depends on. Equal identities are the same run.

    Raises:
        ConfigError: the version cannot be read as the settings ask for.
    """
    from training.pipelines.auto import choose_mode, consumed

    what = config.model_dump(mode="json")
    for key in _HOW_NOT_WHAT:
        del what["run"][key]
    choice = choose_mode(version, config.reading, config.data)
    what["reading"] = consumed(config.reading, choice.mode)
    return {"plan": version.manifest.plan_digest, "dataset": version.ref, "config": what}


def run_name(config: TrainConfig, version: DatasetVersion) -> str:
    """Name of the run's folder: ``<dataset>-v<version>-<digest>``."""
    return f"{version.name}-v{version.version}-{digest_of(run_identity(config, version), length=10)}"
