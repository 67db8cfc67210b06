"""Train in this process with PyTorch, alone or as one of several ranks. Imports PyTorch only when called."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import GO_ON, EnvironmentFault, RankLost
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.cluster import Cluster, Meeting
from shardmill.training.ranks.heartbeat import Heart
from shardmill.training.starting.torch_processes import set_environment

if TYPE_CHECKING:
    from shardmill.training.torch.ranks.group import Place

_LINE_CHARACTERS = 300
# What gloo and NCCL say when another rank has gone. PyTorch raises a plain RuntimeError for gloo.
_LOST = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "process group")


def check_installed() -> None:
    """Check that PyTorch is there, without importing it.

    Raises:
        EnvironmentFault: it is not.
    """
    if importlib.util.find_spec("torch") is None:
        raise EnvironmentFault("PyTorch is not installed", "pip install 'shardmill[torch]'")


def train_in_process(
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    place: Cluster | Meeting | None = None,
    heart: Heart | None = None,
) -> dict[str, Any]:
    """Train in this process. See ``shardmill.training.torch.session.train``.

    Raises:
        RankLost: another rank ended or does not answer.
    """
    set_environment(config)
    from shardmill.training.torch import session

    try:
        return _trained(session.train, config, version, run_dir, place, heart)
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if place is None or not any(word in said.lower() for word in _LOST):
            raise
        raise RankLost(
            f"rank {place.rank} lost another rank: {said[:_LINE_CHARACTERS]}",
            f"all ranks must be started again; {GO_ON}",
        ) from error


def _trained(
    train: Any,
    config: TrainConfig,
    version: DatasetVersion,
    run_dir: Path,
    place: Place,
    heart: Heart | None,
) -> dict[str, Any]:
    if place is None or place.rank == 0:
        result: dict[str, Any] = train(config, version, run_dir, place, heart)
        return result
    # Rank 0 writes the run's folder; what the others write on their way is the same, and of no use.
    with tempfile.TemporaryDirectory(prefix="shardmill-rank-") as scratch:
        found: dict[str, Any] = train(config, version, Path(scratch), place, heart)
        return found
