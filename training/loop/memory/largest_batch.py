"""Find the largest batch that fits into memory, by a process that may die of it. Imports no framework."""

from __future__ import annotations

import sys
from pathlib import Path

from infra import progress as events
from infra.dataset.version import DatasetVersion
from infra.errors import OutOfMemory
from infra.processes.children import run_child
from infra.progress import Event
from infra.readable import readable_bytes
from training.config import TrainConfig

TRIAL = "trial"

# Each takes real steps with its framework.
_COMMANDS = {
    "tensorflow": "training.loop.memory.try_batches",
    "torch": "training.torch_loop.memory.try_batches",
}


def find_largest_batch(config: TrainConfig, version: DatasetVersion, root: str | Path) -> int:
    """Return the largest batch size whose training steps fit into memory, among some powers of two.

    Args:
        config: the configuration of the run.
        version: the dataset version.
        root: the folder of the datasets.

    Raises:
        OutOfMemory: not even the smallest fits.
        ShardmillError: the process failed for another reason.
    """
    found: list[int] = []

    def on_event(event: Event) -> None:
        if event.get("event") == "metrics" and event.get("split") == TRIAL:
            found.append(int(event["global_batch_size"]))
            peak = readable_bytes(event["peak_bytes"])
            events.log(f"steps of {event['global_batch_size']} examples fit, with {peak} at most")

    events.log("looking for the largest data.global_batch_size that fits into memory")
    argv = [sys.executable, "-m", _COMMANDS[config.run.framework], version.ref]
    argv += ["--root", str(root), "--config-json", config.model_dump_json()]
    outcome = run_child(argv, on_event=on_event)
    if outcome.error is not None or not found:
        outcome.raise_for_status()  # a process that the system kills for its memory has tried too much
    if not found:
        raise OutOfMemory(
            "not even the smallest step fits into memory", "take a smaller model or smaller images"
        )
    return found[-1]
