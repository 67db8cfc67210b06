"""Find the largest batch that fits into memory, by a process that may die of it.

If several ranks share a step, the process takes the part of one of them, with its device and its part of the
host; the others are expected to need as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shardmill.infra import progress as events
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import OutOfMemory
from shardmill.infra.processes.children import run_child
from shardmill.infra.processes.job_command import config_arguments, python_module
from shardmill.infra.progress import Event
from shardmill.infra.readable import readable_bytes
from shardmill.training.config import TrainConfig
from shardmill.training.ranks.cluster import Cluster, Meeting
from shardmill.training.run.ranks import first_places, of_a_rank

TRIAL = "trial"
_COMMAND = "shardmill.training.run.memory.try_batches"


@dataclass(frozen=True, slots=True)
class _Tried:
    """The rank that is tried.

    Attributes:
        config: its configuration.
        num_ranks: the ranks that share a step.
        environment: variables that restrict a process to the devices of the rank.
    """

    config: TrainConfig
    num_ranks: int
    environment: Mapping[str, str] = field(default_factory=dict)


def find_largest_batch(
    config: TrainConfig, version: DatasetVersion, root: str | Path, place: Cluster | Meeting | None = None
) -> int:
    """Return the largest global batch that fits into memory, a power of two of examples for each device.

    Args:
        config: the configuration of the run.
        version: the dataset version.
        root: the folder of the datasets.
        place: the place of this process among ranks that an outer system started; None: it is no rank.

    Raises:
        ConfigError: there are fewer devices than ranks.
        OutOfMemory: not even the smallest fits.
        ShardmillError: the process failed for another reason.
    """
    tried = _tried(config, place)
    found: list[int] = []

    def on_event(event: Event) -> None:
        if event.get("event") == "metrics" and event.get("split") == TRIAL:
            found.append(int(event["global_batch_size"]))
            peak = readable_bytes(event["peak_bytes"])
            each = " in each rank" if tried.num_ranks > 1 else ""
            events.log(f"steps of {event['global_batch_size']} examples fit, with {peak} at most{each}")

    events.log("looking for the largest data.global_batch_size that fits into memory")
    argv = python_module(_COMMAND, version.ref)
    argv += ["--root", str(root), *config_arguments(tried.config.model_dump_json())]
    argv += ["--ranks", str(tried.num_ranks)]
    outcome = run_child(argv, on_event=on_event, env=tried.environment)
    if outcome.error is not None or not found:
        outcome.raise_for_status()  # a process that the system kills for its memory has tried too much
    if not found:
        raise OutOfMemory(
            "not even the smallest step fits into memory", "take a smaller model or smaller images"
        )
    return found[-1]


def _tried(config: TrainConfig, place: Cluster | Meeting | None) -> _Tried:
    """Return the first rank of a run that begins."""
    if config.ranks.workers is not None:
        places = first_places(config)
        return _Tried(of_a_rank(config), len(places), places[0].environment(len(places)))
    return _Tried(config, 1 if place is None else place.num_ranks)
