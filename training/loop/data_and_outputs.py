"""What a training loop reads, and where it writes."""

from __future__ import annotations

from dataclasses import dataclass

from training.loop.checkpoints.shared import SharedCheckpoints
from training.loop.sharing.balance_record import BalanceRecord
from training.order import Order
from training.ranks.hardware.gpu_use import GpuSampler
from training.reading import RecordReader
from training.results.consumed import ConsumedTrace
from training.results.run_files.history import HistoryFiles
from training.results.tensorboard_log import TensorBoardLog
from training.results.tracking.trackers import Trackers
from training.tf_data.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The examples of a run.

    Attributes:
        pipeline: the batches of the train split.
        order: the order of the train split.
        validation: the records of the validation split; None: there are none.
        balance: counts what each rank does; None: there is one rank.
    """

    pipeline: Pipeline
    order: Order
    validation: RecordReader | None
    balance: BalanceRecord | None = None


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
