"""``python -m shardmill.training.train_rank``: one rank of ``shardmill.training.train``, which starts it.

The parent of rank 0 holds the lock of the run, and has written ``run.json``. Environment variables say where
the other ranks are (``shardmill.training.ranks.cluster``). Not for people.
"""

from __future__ import annotations

import faulthandler
import signal
import traceback
from collections.abc import Sequence
from pathlib import Path

from shardmill.infra import progress as events
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import ChildDied
from shardmill.infra.processes.job_command import JobParser, settings_of
from shardmill.infra.processes.process import (
    REPORT_DEFECT,
    die_at_once_with_parent,
    exit_at_once,
    own_peak_rss_bytes,
    run_main,
)
from shardmill.training.config import TrainConfig, faults_of_users
from shardmill.training.ranks.cluster import cluster_from_environment
from shardmill.training.ranks.heartbeat import heart_of_this_process
from shardmill.training.run.session import train

# Errors of Python that come from the code alone: to start the ranks again does not help.
_OF_THE_CODE = (ImportError, NameError, AttributeError, TypeError, LookupError, NotImplementedError)

# As in shardmill.training.train: the frames of an error hold what must not be destroyed.
_unfinished: list[BaseException] = []


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rank and return its exit status."""
    return run_main(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    die_at_once_with_parent()
    # The parent asks a rank that hangs, also in foreign code, where it is: the answer is in its log.
    faulthandler.register(signal.SIGQUIT)
    parser = JobParser("python -m shardmill.training.train_rank", "One rank of a training.", "")
    parser.add_argument("dataset", metavar="NAME@VERSION")
    parser.add_argument("--run-dir", required=True, metavar="DIR")
    parser.add_job_arguments("train")
    args = parser.parse_args(argv)
    config = settings_of(args, TrainConfig, "train")
    place = cluster_from_environment()
    heart = heart_of_this_process()

    if heart is not None:
        events.subscribe(heart.hear)
    try:
        version = Catalog(args.root).open_view(args.dataset)
        with faults_of_users(config):
            result = train(config, version, Path(args.run_dir), place, heart)
    except _OF_THE_CODE as error:
        _unfinished.append(error)
        traceback.print_exception(error)
        raise ChildDied(
            f"{type(error).__name__}: {error} (its traceback is in the log of the rank)", REPORT_DEFECT
        ) from error
    except BaseException as error:
        _unfinished.append(error)
        raise
    events.result({**result, "peak_rss_bytes": own_peak_rss_bytes()})
    return 0


if __name__ == "__main__":
    exit_at_once(main())
