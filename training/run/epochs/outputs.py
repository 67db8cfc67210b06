"""The files that a run writes while it trains: checkpoints, curves, figures of epochs, consumed records."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json
from shardmill.training.arrays import Ints
from shardmill.training.ranks.devices import GpuSampler, nvml_reader
from shardmill.training.reading import SplitTable
from shardmill.training.results.run_files.history import HistoryFiles
from shardmill.training.results.tensorboard_log import TensorBoardLog
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.checkpoints.shared import SharedCheckpoints


class _ConsumedTrace:
    """Appends a line for each step. A resumed run first removes the lines after its checkpoint."""

    def __init__(self, path: Path, num_bytes: int) -> None:
        """Open the file and cut it to ``num_bytes``, its length at the checkpoint."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        found = self._file.tell()
        if found < num_bytes:
            events.log(f"{path} was shortened by somebody: its first steps are incomplete", level="warning")
        self._file.truncate(min(num_bytes, found))
        self._file.seek(0, os.SEEK_END)

    def add(self, epoch: int, step: int, table: SplitTable, records: Ints) -> None:
        """Write the ids of a step's real examples, in the order of the global batch.

        Args:
            epoch: number of the epoch.
            step: number of the step in it.
            table: the records of the split. Of several data sets the number of each record's is written too.
            records: int64 [n], ordinals.
        """
        found: dict[str, Any] = {"epoch": epoch, "step": step, "ids": table.ids(records)}
        if table.set_sizes:
            found["data_sets"] = table.data_set_of(records).tolist()
        line = dump_json(found, separators=(",", ":"))
        self._file.write(line.encode("ascii") + b"\n")

    def flush(self) -> int:
        """Give all lines to the system; returns the file's length (bytes), for the checkpoint."""
        self._file.flush()
        return self._file.tell()

    def sync(self) -> None:
        """Force the flushed lines to the disk; other threads may write lines during the call."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class RunOutputs:
    """The outputs of a run during training.

    Attributes:
        checkpoints: the checkpoints.
        log: the curves for TensorBoard.
        history: the figures of each epoch as files.
        trace: the ids of all consumed records; None: they are not recorded.
        trackers: other systems that are told about the run.
        gpus: figures of the GPUs of this process.
    """

    checkpoints: SharedCheckpoints
    log: TensorBoardLog
    history: HistoryFiles
    trace: _ConsumedTrace | None
    trackers: Trackers
    gpus: GpuSampler


@contextlib.contextmanager
def open_outputs(
    run_dir: Path,
    checkpoints: SharedCheckpoints,
    progress: Progress,
    trackers: Trackers,
    *,
    trace_records: bool,
) -> Iterator[RunOutputs]:
    """Open the outputs of a run; with the block they end on disk.

    Args:
        run_dir: the folder of the run.
        checkpoints: the checkpoints.
        progress: where the run goes on; what its trace has after this position is cut off.
        trackers: other systems that are told about the run.
        trace_records: record the ids of all consumed records.
    """
    with contextlib.ExitStack() as open_files:
        log = open_files.enter_context(contextlib.closing(TensorBoardLog(run_dir / "logs")))
        trace = None
        if trace_records:
            trace = _ConsumedTrace(run_dir / "consumed.jsonl", progress.trace_bytes)
            open_files.enter_context(contextlib.closing(trace))
        open_files.callback(checkpoints.close)  # first of all, since it puts the trace on disk
        gpus = open_files.enter_context(GpuSampler(nvml_reader()))
        yield RunOutputs(checkpoints, log, HistoryFiles(Storage.at(run_dir)), trace, trackers, gpus)
