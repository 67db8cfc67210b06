"""The beginning of a run: what it settled, its records, its model."""

from __future__ import annotations

import gc
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.peers import Peers
from shardmill.training.reading import RecordReader
from shardmill.training.results.run_files.environment import describe_environment
from shardmill.training.run.files.folds import TrainRecords, divide_train_split
from shardmill.training.run.files.settled import Settled, read_settled, settled_by
from shardmill.training.run.framework import Framework, Model


@dataclass(frozen=True, slots=True)
class Beginning:
    """A run before its model is built.

    Attributes:
        config: the configuration that it follows: as asked for, with what the run has settled.
        settled: what it settled when it began.
        records: the records of the train split that it learns from, and those that it leaves out.
    """

    config: TrainConfig
    settled: Settled
    records: TrainRecords


def begin_run(config: TrainConfig, train: RecordReader, run_dir: Path, ranks: Peers) -> Beginning:
    """Return what the run in a folder follows and learns from. The folder of rank 0 counts.

    Args:
        config: the configuration as it was asked for.
        train: the records of the train split.
        run_dir: the folder of the run.
        ranks: the ranks that train together; every rank must call this.
    """
    own = (read_settled(run_dir) or settled_by(config)) if ranks.is_first else None
    settled = Settled(**ranks.value_of_first(None if own is None else asdict(own)))
    config = settled.with_batch_size(config)
    records = divide_train_split(config.data, train, train.split.version.manifest.classes)
    return Beginning(settled.applied(config, records.order.steps_per_epoch), settled, records)


def write_environment(
    config: TrainConfig, version: DatasetVersion, devices: list[str], run_dir: Path
) -> dict[str, Any]:
    """Write environment.json, and return its content."""
    environment = describe_environment(config, version, devices)
    Storage.at(run_dir).write_atomic("environment.json", dump_json(environment, indent=1).encode("ascii"))
    return environment


class Models:
    """The model of a run, built for each attempt to train it.

    The first is built at once, so that a model that cannot be built stops the run before anything is read.
    An attempt takes it out: if a step does not fit into memory, nothing else holds it.
    """

    def __init__(
        self, framework: Framework, version: DatasetVersion, config: TrainConfig, steps_per_epoch: int
    ) -> None:
        """Build the first.

        Raises:
            ConfigError: it cannot be built.
        """
        self._framework, self._version, self._steps = framework, version, steps_per_epoch
        self._built = [framework.build(config, version, steps_per_epoch)]

    @property
    def first(self) -> Model:
        """The model before the first attempt."""
        return self._built[0]

    def take(self, config: TrainConfig) -> Model:
        """Return the model; build it again, with the same weights, if an attempt has taken it before."""
        if self._built:
            return self._built.pop()
        gc.collect()  # what the failed attempt held
        return self._framework.build(config, self._version, self._steps)
