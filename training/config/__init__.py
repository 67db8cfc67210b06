"""The settings ``[train]`` of a configuration. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from pydantic import Field, model_validator

from shardmill.infra.own_code import OwnCode, faults_of_own_code
from shardmill.infra.settings import Settings, WrongValue, validate
from shardmill.training.augment.settings import AugmentSettings
from shardmill.training.config.data import Balance, DataSettings
from shardmill.training.config.export import ExportSettings
from shardmill.training.config.model import ModelSettings
from shardmill.training.config.optimizer import OptimizerSettings
from shardmill.training.config.ranks import RankSettings
from shardmill.training.config.reading import ReadingSettings
from shardmill.training.config.run import RunSettings
from shardmill.training.config.torch_settings import check_framework
from shardmill.training.config.tracking import TrackingSettings
from shardmill.training.models import default_image_size, own_model
from shardmill.training.models.names import is_built_in

__all__ = [
    "AugmentSettings",
    "Balance",
    "DataSettings",
    "ExportSettings",
    "ModelSettings",
    "OptimizerSettings",
    "RankSettings",
    "ReadingSettings",
    "RunSettings",
    "TrackingSettings",
    "TrainConfig",
    "faults_of_users",
    "image_size_of",
    "own_callback",
    "own_code",
    "with_devices",
]


class TrainConfig(Settings):
    """The table [train]."""

    model: ModelSettings = Field(default_factory=ModelSettings, description="the model")
    run: RunSettings = Field(default_factory=RunSettings, description="how the run is carried out")
    data: DataSettings = Field(default_factory=DataSettings, description="examples and their order")
    augment: AugmentSettings = Field(
        default_factory=AugmentSettings, description="augmentation of training examples"
    )
    optimizer: OptimizerSettings = Field(
        default_factory=OptimizerSettings, description="optimizer and schedule"
    )
    reading: ReadingSettings = Field(
        default_factory=ReadingSettings, description="how stored records become batches"
    )
    ranks: RankSettings = Field(default_factory=RankSettings, description="training by several processes")
    export: ExportSettings = Field(
        default_factory=ExportSettings, description="forms of the trained model besides the SavedModel"
    )
    tracking: TrackingSettings = Field(
        default_factory=TrackingSettings, description="what other systems are told about a run"
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if self.model.warm_head_epochs >= self.run.epochs:
            raise WrongValue(
                f"model.warm_head_epochs = {self.model.warm_head_epochs} leaves none of run.epochs = "
                f"{self.run.epochs} for the other layers",
                "to train the classifier alone set model.freeze = 'backbone'",
            )
        pruning = self.optimizer.pruning
        if pruning.final_sparsity and (pruning.end_epochs or 0) > self.run.epochs:
            end = f"{pruning.end_epochs:g}"
            raise WrongValue(
                f"optimizer.pruning.end_epochs = {end} is beyond run.epochs = {self.run.epochs}",
                "lower it, or train for more epochs",
            )
        if self.ranks.launcher == "ray" and self.data.global_batch_size == "auto":
            raise WrongValue(
                "data.global_batch_size = 'auto' would be tried on this machine, not on those of the Ray "
                "cluster",
                "give a number",
            )
        check_framework(self)
        return self

    @property
    def scheduled_epochs(self) -> int:
        """The epochs that ``optimizer.schedule`` covers."""
        return self.run.epochs - self.model.warm_head_epochs


def with_devices(
    config: TrainConfig, devices: str | None, workers: str | None, launcher: str | None = None
) -> TrainConfig:
    """Return ``config`` with ``--devices``, ``--workers`` and ``--launcher``; None leaves a setting alone.

    Raises:
        ConfigError: a value is wrong.
    """
    values = config.model_dump()
    if devices is not None:
        values["run"]["devices"] = devices
    if workers is not None:
        values["ranks"]["workers"] = workers
    if launcher is not None:
        values["ranks"]["launcher"] = launcher
    return validate(TrainConfig, values, where="the command")


def own_callback(name: str) -> OwnCode:
    """Return the code of a callback of the user.

    Raises:
        ConfigError: it is not named as module:function.
    """
    return OwnCode.named("run.callbacks", name, "docs/bring-your-own-model.md")


def own_code(config: TrainConfig) -> list[OwnCode]:
    """Return the user's own code and the plugins that the settings name.

    Raises:
        ConfigError: a name has another form, or a plugin is refused.
    """
    models = [] if is_built_in(config.model.name) else [own_model(config.model.name)]
    return [*models, *config.augment.plugins, *map(own_callback, config.run.callbacks)]


@contextmanager
def faults_of_users(config: TrainConfig) -> Iterator[None]:
    """Turn an exception from a user's own code or a plugin, in a block, into an error that names its line.

    Starting a rank or a job again would not help against it.

    Raises:
        ConfigError: such code failed, or is not there.
    """
    own = own_code(config)
    for code in own:
        code.check()
    with faults_of_own_code({code.module: code.setting for code in own}, "docs/bring-your-own-model.md"):
        yield


def image_size_of(config: TrainConfig) -> int:
    """Return height and width of the model's input (pixels). If only the model knows it, import its file.

    Raises:
        ConfigError: neither the settings nor the model say it.
    """
    return config.data.image_size or default_image_size(config.model.name)
