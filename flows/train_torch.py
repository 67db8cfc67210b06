"""The train-torch flow: as the train flow, with PyTorch."""

from __future__ import annotations

from typing import Any, Literal

from prefect import flow
from prefect.client.schemas.objects import State
from pydantic import Field

from shardmill.flows import promote as promotion_flow
from shardmill.flows.flow_runs.run_states import shardmill_run
from shardmill.flows.parameters import AliasWord, DatasetRef, OptionalFolder, Unset
from shardmill.flows.scheduling.attempts import attempted
from shardmill.flows.train import Promoting, run_training
from shardmill.flows.train_when import TrainWhen
from shardmill.training.aliases import PRODUCTION
from shardmill.training.config import RunSettings, TrainConfig
from shardmill.training.promotion.rules import PromotionRules


class TorchRunSettings(RunSettings):
    """How a run with PyTorch is carried out."""

    framework: Literal["torch"] = Field(
        default="torch", description="PyTorch; the deployment train trains with TensorFlow too"
    )


class TorchTrainConfig(TrainConfig):
    """The settings of a training with PyTorch, whichever of them are given."""

    run: TorchRunSettings = Field(default_factory=TorchRunSettings, description="how the run is carried out")


@flow(name="train-torch", flow_run_name="train-torch-{dataset}")
@shardmill_run
@attempted
def train_torch(  # noqa: PLR0913  the fields of the form
    dataset: DatasetRef,
    root: OptionalFolder = None,
    runs: OptionalFolder = None,
    config: TorchTrainConfig | Unset = None,
    when: TrainWhen | Unset = None,
    promote: bool = False,
    alias: AliasWord = PRODUCTION,
    promotion: PromotionRules = promotion_flow.RULES,
    code: OptionalFolder = None,
) -> State[Any]:
    """Train a model with PyTorch on a published version, evaluate it on the other splits, and export it.

    A run that was cancelled or died continues from its last checkpoint when it is run again.

    Args:
        dataset: What to train on: NAME, NAME@VERSION or NAME@latest.
        root: Folder of the datasets; empty for the worker's default.
        runs: Folder of the training runs; empty for the worker's default.
        config: The model, its data, augmentation, optimizer and run; empty for the defaults.
        when: Train only if a condition holds; empty to train in any case.
        promote: Then compare the model with the one that has the alias, and move the alias if it is better.
        alias: The alias that the model may take over.
        promotion: When it takes over the alias.
        code: Folder of your own modules; empty for the folder in which the worker was started.
    """
    # As a plain TrainConfig, where "torch" is not the default: commands and keys name what is not default.
    settings = TrainConfig.model_validate((config or TorchTrainConfig()).model_dump())
    promoting = Promoting(alias, promotion) if promote else None
    return run_training(dataset, settings, root, runs, when, promoting)
