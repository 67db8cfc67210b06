"""``python -m training.loop.memory.try_batches``: which batch sizes fit into memory, for a run that begins.

Its parent reads each size that fits from the events, so that this process may die of the next one. Not for
people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from infra import progress as events
from infra.dataset.catalog import Catalog
from infra.processes.job_command import JobParser, settings_of
from infra.processes.process import exit_at_once, run_main
from training.config import TrainConfig
from training.loop.memory.largest_batch import TRIAL


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials and return the exit status."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    parser = JobParser("python -m training.loop.memory.try_batches", "Which batch sizes fit into memory.", "")
    parser.add_argument("dataset", metavar="NAME@VERSION")
    parser.add_job_arguments("train")
    args = parser.parse_args(argv)
    config = settings_of(args, TrainConfig, "train")
    version = Catalog(args.root).open_view(args.dataset)
    from training.ranks import tensorflow_runtime

    with tensorflow_runtime.quiet_start():
        tensorflow_runtime.start(
            devices=config.run.devices,
            seed=config.data.seed,
            gpu_memory_limit_bytes=config.run.gpu_memory_limit_bytes,
        )
        from training.loop.memory.trial import available_ram_bytes, fitting_sizes

    for trial in fitting_sizes(config, version, available_ram_bytes()):
        events.metrics(split=TRIAL, **asdict(trial))
    return 0


if __name__ == "__main__":
    exit_at_once(main())
