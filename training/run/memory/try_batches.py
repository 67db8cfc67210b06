"""``python -m shardmill.training.run.memory.try_batches``: which batch sizes fit into memory. Not for people.

It takes training steps of batches each twice the one before, with ``--ranks`` those of one of so many ranks.
Its parent (``shardmill.training.run.memory.largest_batch``) reads each size that fits from the events, so
that this process may die of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from shardmill.infra import progress as events
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import OutOfMemory
from shardmill.infra.processes.job_command import JobParser, settings_of
from shardmill.infra.processes.process import exit_at_once, own_peak_rss_bytes, run_main
from shardmill.infra.processes.trees import free_memory_bytes
from shardmill.training.config import TrainConfig, faults_of_users
from shardmill.training.dataset import Dataset
from shardmill.training.frameworks import start
from shardmill.training.run.files.folds import divide_train_split
from shardmill.training.run.framework import Framework
from shardmill.training.run.memory.largest_batch import TRIAL
from shardmill.training.run.sharing.division import Division, unit_of_rows

# More examples a step make a run worse and hardly faster.
_MOST = 4096
_LEAST_STEPS_PER_EPOCH = 10
_SHARE_OF_RAM = 0.8
_STEPS = 2


@dataclass(frozen=True, slots=True)
class Trial:
    """A batch size with which training steps were taken.

    Attributes:
        global_batch_size: examples a step, of all ranks together.
        peak_bytes: the most memory so far: of a GPU, or of this process if it trains on the CPU.
    """

    global_batch_size: int
    peak_bytes: int


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials and return the exit status."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    name = "python -m shardmill.training.run.memory.try_batches"
    parser = JobParser(name, "Which batch sizes fit into memory.", "")
    parser.add_argument("dataset", metavar="NAME@VERSION")
    parser.add_argument("--ranks", type=int, default=1, metavar="N")
    parser.add_job_arguments("train")
    args = parser.parse_args(argv)
    config = settings_of(args, TrainConfig, "train")
    version = Catalog(args.root).open_view(args.dataset)
    ram_bytes = int(_SHARE_OF_RAM * free_memory_bytes())
    with faults_of_users(config):
        steps = TriedSteps(config, version, start(config.run.framework, config))
        for trial in fitting_sizes(config, steps, ram_bytes, args.ranks):
            events.metrics(split=TRIAL, **asdict(trial))
    return 0


class TriedSteps:
    """Training steps of one rank of a run, with batches of any size.

    Attributes:
        framework: takes them.
        num_records: the examples of the train split.
    """

    def __init__(self, config: TrainConfig, version: DatasetVersion, framework: Framework) -> None:
        """Build the model.

        Raises:
            ConfigError: it cannot be built.
        """
        self.framework = framework
        self._train = Dataset(version, config.reading).reader("train")
        self._model = framework.build(_sized(config, framework.num_local_replicas), version, 1)
        self.num_records = len(self._train.table)

    def take(self, config: TrainConfig) -> None:
        """Take two steps with the batch size of ``config``, and wait for them.

        Raises:
            OutOfMemory: they do not fit into memory.
        """
        classes, size = self._train.split.version.manifest.classes, config.data.batch_size
        order = divide_train_split(config.data, self._train, classes).order
        examples = self.framework.open_input(config, self._train, order, Division((size,)))
        self._model.begin_stage(config, size, head_alone=False)
        batches = examples.steps(0, _STEPS)
        for number in range(_STEPS):
            self._model.step(next(batches), number, size)
        self._model.take_totals()


def fitting_sizes(
    config: TrainConfig, steps: TriedSteps, ram_bytes: int, num_ranks: int = 1
) -> Iterator[Trial]:
    """Yield the global batch sizes that fit, from small to large.

    On GPUs the last one is that before a step did not fit. On CPUs, where a process that takes too much is
    killed, it is the last one whose double is not expected to exceed this rank's part of the memory: each
    doubling adds twice what the one before it added.

    Args:
        config: the configuration of the run.
        steps: the steps of the rank with the largest share.
        ram_bytes: the memory for all ranks.
        num_ranks: the ranks that share a step; none is expected to need more than this one.
    """
    last: Trial | None = None
    ram_bytes //= num_ranks
    shares = _shares(config, num_ranks)
    for size in _sizes(config, steps, sum(shares)):
        try:
            steps.take(_sized(config, size // sum(shares) * max(shares)))
        except OutOfMemory:
            return
        peaks = steps.framework.peak_device_bytes()
        trial = Trial(size, max(peaks.values(), default=0) or own_peak_rss_bytes())
        if not peaks and trial.peak_bytes > ram_bytes:
            return
        yield trial
        added = trial.peak_bytes - (trial if last is None else last).peak_bytes
        if not peaks and trial.peak_bytes + 2 * added > ram_bytes:
            return
        last = trial


def _sized(config: TrainConfig, size: int) -> TrainConfig:
    """Return the configuration with a batch size, and without a cache, which would be filled for nothing."""
    data = config.data.model_copy(update={"global_batch_size": size})
    reading = config.reading.model_copy(update={"cache": "none"})
    return config.model_copy(update={"data": data, "reading": reading})


def _shares(config: TrainConfig, num_ranks: int) -> list[int]:
    """Return the shares of the ranks in a step; measured ones are not known before the ranks begin."""
    given = config.ranks.shares
    return [1] * num_ranks if isinstance(given, str) or num_ranks == 1 else given


def _sizes(config: TrainConfig, steps: TriedSteps, num_shares: int) -> list[int]:
    """Return sizes that can be divided by shares, devices and parts, each twice the one before."""
    sizes = [num_shares * unit_of_rows(config, steps.framework.num_local_replicas)]
    while 2 * sizes[-1] <= min(_MOST, steps.num_records // _LEAST_STEPS_PER_EPOCH):
        sizes.append(2 * sizes[-1])
    return sizes


if __name__ == "__main__":
    exit_at_once(main())
