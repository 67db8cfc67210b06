"""``python -m shardmill.training.starting.try_torch_batches``: which batch sizes fit into memory.

See ``shardmill.training.starting.try_tensorflow_batches``. Not for people.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.processes.process import exit_at_once
from shardmill.training.config import TrainConfig
from shardmill.training.run.memory.sizes import TriedSteps
from shardmill.training.starting.torch_processes import set_environment
from shardmill.training.starting.try_tensorflow_batches import try_batches


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials and return the exit status."""
    return try_batches("shardmill.training.starting.try_torch_batches", argv, _steps)


def _steps(config: TrainConfig, version: DatasetVersion) -> TriedSteps:
    set_environment(config)
    from shardmill.training.torch.memory.trial import TorchSteps

    return TorchSteps(config, version)


if __name__ == "__main__":
    exit_at_once(main())
