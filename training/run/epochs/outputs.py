"""The files that a run writes while it trains: checkpoints, curves, figures of epochs, consumed records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shardmill.infra.storage.filesystem import Storage
from shardmill.training.ranks.gpu_use import GpuSampler, nvml_reader
from shardmill.training.results.consumed import ConsumedTrace
from shardmill.training.results.run_files.history import HistoryFiles
from shardmill.training.results.tensorboard_log import TensorBoardLog
from shardmill.training.results.tracking.trackers import Trackers
from shardmill.training.run.checkpoints.checkpoints import Progress
from shardmill.training.run.checkpoints.shared import SharedCheckpoints


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
    trace: ConsumedTrace | None
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
            trace = ConsumedTrace(run_dir / "consumed.jsonl", progress.trace_bytes)
            open_files.enter_context(contextlib.closing(trace))
        open_files.callback(checkpoints.close)  # first of all, since it puts the trace on disk
        gpus = open_files.enter_context(GpuSampler(nvml_reader()))
        yield RunOutputs(checkpoints, log, HistoryFiles(Storage.at(run_dir)), trace, trackers, gpus)
