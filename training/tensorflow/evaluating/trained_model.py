"""Build the model of a finished run again, from its settings and its saved weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError
from shardmill.training.config import TrainConfig
from shardmill.training.tensorflow.evaluating.evaluation import EvaluationSize, Evaluator
from shardmill.training.tensorflow.models import build_model
from shardmill.training.tensorflow.optimization.precision import precision
from shardmill.training.tensorflow.parts import model_spec
from shardmill.training.tensorflow.tasks.of_dataset import task_of

WEIGHTS_FILE = "model.weights.h5"


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The best model of a run.

    Attributes:
        model: the Keras model.
        evaluator: evaluates it as training did.
    """

    model: Any
    evaluator: Evaluator


def load_trained(config: TrainConfig, version: DatasetVersion, run_dir: Path, strategy: Any) -> TrainedModel:
    """Build the model of a run and load its weights.

    Args:
        config: the settings of the run.
        version: the dataset version that it was trained on.
        run_dir: the folder of the run.
        strategy: the ``tf.distribute.Strategy`` that evaluates.

    Raises:
        CorruptDataError: the weights are missing or damaged.
    """
    task = task_of(version, config)
    spec = replace(model_spec(config, version, task.num_outputs, 1), weights=None)
    weights = run_dir / WEIGHTS_FILE
    with strategy.scope():
        with precision(config.run.mixed_precision):
            model = build_model(spec)
        try:
            model.load_weights(weights)
        except (OSError, ValueError) as error:
            raise CorruptDataError(
                f"the weights {weights} cannot be loaded: {error}", "train again with run.fresh=true"
            ) from error
    return TrainedModel(model, Evaluator(strategy, model, task, EvaluationSize.of(config)))
