"""Open the model of a finished run with PyTorch: to evaluate it again."""

from __future__ import annotations

from pathlib import Path

import torch

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError
from shardmill.training.config import TrainConfig
from shardmill.training.torch.evaluating.evaluation import Evaluator
from shardmill.training.torch.outputs.export import WEIGHTS_FILE
from shardmill.training.torch.parts import build_parts
from shardmill.training.torch.ranks.group import TorchRanks, choose_device


def open_evaluator(config: TrainConfig, version: DatasetVersion, run_dir: Path) -> Evaluator:
    """Return what evaluates the best model of a run as training did.

    Args:
        config: the settings of the run.
        version: the dataset version that it was trained on.
        run_dir: the folder of the run.

    Raises:
        CorruptDataError: the weights are missing or damaged.
    """
    own = choose_device(config, None)
    plain = config.model.model_copy(update={"weights": None, "freeze": "none"})
    parts = build_parts(
        config.model_copy(update={"model": plain}), version, 1, TorchRanks(0, 1, own.device), own.device
    )
    path = run_dir / WEIGHTS_FILE
    try:
        parts.model.load_state_dict(torch.load(path, map_location=own.device, weights_only=True))
    except (OSError, RuntimeError, ValueError) as error:
        raise CorruptDataError(
            f"the weights {path} cannot be loaded: {error}", "train again with run.fresh=true"
        ) from error
    return Evaluator(config, parts, own)
