"""``python -m shardmill.training.starting.try_tensorflow_batches``: which batch sizes fit into memory.

With ``--ranks`` it takes the steps of one of so many ranks. Its parent reads each size that fits from the
events, so that this process may die of the next one. Not for people.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

from shardmill.infra import progress as events
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.processes.job_command import JobParser, settings_of
from shardmill.infra.processes.process import exit_at_once, run_main
from shardmill.training.config import TrainConfig, faults_of_users
from shardmill.training.run.memory.largest_batch import TRIAL
from shardmill.training.run.memory.sizes import TriedSteps, available_ram_bytes, fitting_sizes

StepsOf = Callable[[TrainConfig, DatasetVersion], TriedSteps]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials and return the exit status."""
    return try_batches("shardmill.training.starting.try_tensorflow_batches", argv, _steps)


def try_batches(module: str, argv: Sequence[str] | None, steps_of: StepsOf) -> int:
    """Try batch sizes with the steps of a framework, and return the exit status of the process.

    Args:
        module: the module that is run.
        argv: its arguments; None: those of the process.
        steps_of: starts the framework and builds the model.
    """
    parser = JobParser(f"python -m {module}", "Which batch sizes fit into memory.", "")
    parser.add_argument("dataset", metavar="NAME@VERSION")
    parser.add_argument("--ranks", type=int, default=1, metavar="N")
    parser.add_job_arguments("train")

    def run() -> int:
        args = parser.parse_args(argv)
        config = settings_of(args, TrainConfig, "train")
        version = Catalog(args.root).open_view(args.dataset)
        with faults_of_users(config):
            for trial in fitting_sizes(config, steps_of(config, version), available_ram_bytes(), args.ranks):
                events.metrics(split=TRIAL, **asdict(trial))
        return 0

    return run_main(run)


def _steps(config: TrainConfig, version: DatasetVersion) -> TriedSteps:
    from shardmill.training.tensorflow import starting

    with starting.quiet_start():
        starting.start(
            devices=config.run.devices,
            seed=config.data.seed,
            gpu_memory_limit_bytes=config.run.gpu_memory_limit_bytes,
        )
        from shardmill.training.tensorflow.memory.trial import TensorFlowSteps

    return TensorFlowSteps(config, version)


if __name__ == "__main__":
    exit_at_once(main())
