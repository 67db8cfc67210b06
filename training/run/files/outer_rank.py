"""One rank that an outer system started: a parent that watches the process that trains. No TensorFlow.

TensorFlow waits without limit for a rank that never comes, and ignores SIGTERM meanwhile; its process may
abort when a rank is lost; and a collective over a link that is gone may hang. So the process that trains is a
child here too, with the same heartbeats and limits as under ``Supervisor``, but without restarts: this
process ends, with a status that tells the outer system whether to start all ranks again
(``shardmill.training.ranks.launchers.outer``).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import GO_ON, EnvironmentFault, OutOfMemory, RankLost, ShardmillError
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.cluster import Cluster, Meeting
from shardmill.training.ranks.devices import DeviceRequest, Slot, visible_gpus
from shardmill.training.ranks.supervision.attempt import Attempt
from shardmill.training.ranks.supervision.outcomes import Failed, Finished, RankFailure, stop_requests
from shardmill.training.ranks.supervision.running_rank import RankProcess, RankStart
from shardmill.training.ranks.supervision.silence import Limits
from shardmill.training.run.files.supervised_ranks import limits_of, preemption_signals, rank_command

_START_ALL = f"all ranks must be started again; {GO_ON}"


def train_as_outer_rank(
    config: TrainConfig,
    version: DatasetVersion,
    root: str | Path,
    run_dir: Path,
    place: Cluster | Meeting,
    more_parts: Callable[[int], int | None],
) -> dict[str, Any]:
    """Train in a child process that is one of several ranks.

    The caller of rank 0 holds the lock on ``run_dir``.

    Args:
        config: the configuration.
        version: the dataset version.
        root: the folder of the datasets.
        run_dir: the folder of the run.
        place: the place of this process among the ranks.
        more_parts: see ``RankPlan``; it is called by rank 0.

    Returns:
        The result of the run if this is rank 0; other ranks return a part of it.

    Raises:
        RankLost: another rank ended or does not answer.
        EnvironmentFault: the process that trains died, hung, or did not begin in time.
        Preempted, Cancelled: stopped on request.
        ShardmillError: the process reported an error that starting again does not repair.
    """
    with (
        tempfile.TemporaryDirectory(prefix="shardmill-rank-") as scratch,
        stop_requests(preemption_signals(config)) as stop,
        Attempt(_limits(config, root)) as attempt,
    ):
        start = RankStart(
            place.rank,
            rank_command(config, version, root, run_dir),
            {**_environment(config, place), "TMPDIR": scratch},
            None,
            Path(scratch) / "heartbeat",
        )
        attempt.start([RankProcess(start)])
        outcome = attempt.wait(stop, lambda: False)
    if isinstance(outcome, Finished):
        return {**outcome.result, "peak_rss_bytes": outcome.peak_rss_bytes}
    if isinstance(outcome, Failed):
        failure = replace(outcome.failure, num_ranks=place.num_ranks)
        if not stop.asked:
            raise _error_of(failure, more_parts) from failure.error
        events.log(f"{failure}, while the run stopped", level="warning")
    if not stop.asked:  # this process was not asked, but another rank
        stop.ask(preempted=True)
    raise stop.error()


def _limits(config: TrainConfig, root: str | Path) -> Limits:
    """Return the limits of the rank, which may wait for ranks that this process does not watch."""
    return replace(limits_of(config, root), least=config.ranks.peer_timeout_seconds, sees_all=False)


def _environment(config: TrainConfig, place: Cluster | Meeting) -> dict[str, str]:
    """Return the environment variables that name the other ranks and the devices of the process."""
    if isinstance(place, Meeting):  # PyTorch reads the variables of the outer system itself
        return {}
    variables = {"TF_CONFIG": place.to_tf_config()}
    if config.run.framework == "tensorflow" and (slot := _own_slot(config)) is not None:
        variables |= slot.environment(int(os.environ["LOCAL_WORLD_SIZE"]))
    return variables


def _own_slot(config: TrainConfig) -> Slot | None:
    """Return the device of this rank among the ranks of its machine, as torchrun numbers them; None: all."""
    number, ranks = os.environ.get("LOCAL_RANK", ""), os.environ.get("LOCAL_WORLD_SIZE", "")
    if not (number.isdecimal() and ranks.isdecimal() and int(ranks) > 1):
        return None
    gpus = [] if DeviceRequest.parse(config.run.devices).on_cpu else visible_gpus()
    if not gpus:
        return Slot(f"CPU {number}")
    return Slot(f"GPU {number}", gpus[int(number)]) if len(gpus) >= int(ranks) else None


def _error_of(failure: RankFailure, more_parts: Callable[[int], int | None]) -> ShardmillError:
    """Return the error that ends this process."""
    error = failure.error
    if isinstance(error, OutOfMemory) and failure.rank == 0:
        number = more_parts(failure.num_ranks)
        if number is None:
            return error
        return EnvironmentFault(
            f"{error.message}; the next start takes run.accumulate_steps = {number}", GO_ON
        )
    if error is not None:
        return error
    kind = RankLost if failure.reason == "silent" else EnvironmentFault
    return kind(str(failure), _START_ALL)
