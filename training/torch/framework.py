"""PyTorch as a framework of ``shardmill.training.run``: the device of this rank, and the model of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig
from shardmill.training.models.spec import ModelSpec
from shardmill.training.order import Order
from shardmill.training.reading import RecordReader
from shardmill.training.reading.decode import Pixels
from shardmill.training.reading.opening import open_for_run
from shardmill.training.run.ending.source_check import Written, checked_on
from shardmill.training.run.framework import Framework, Model, Shown, StepTotals, rank_lost
from shardmill.training.run.sharing.division import Division
from shardmill.training.tasks.registry import kind_of
from shardmill.training.torch.data.batch import TorchBatch
from shardmill.training.torch.data.device_augment import DeviceAugment
from shardmill.training.torch.evaluation import TorchEvaluator
from shardmill.training.torch.export.program import WEIGHTS_FILE, export_model
from shardmill.training.torch.group import Place, TorchRanks, choose_device, join
from shardmill.training.torch.models import build_model
from shardmill.training.torch.models.layers import freeze_modules, num_parameters, set_training
from shardmill.training.torch.parts import MIXED, TrainingParts, build_parts, in_type
from shardmill.training.torch.reading import Batches
from shardmill.training.torch.state import TensorState
from shardmill.training.torch.step import TrainStep, pixels

# What gloo and NCCL say when another rank has gone. PyTorch raises a plain RuntimeError for gloo.
_LOST = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "process group")


def start(config: TrainConfig, place: Place = None) -> Torch:
    """Choose the device of this process, and find the other ranks. It waits for them.

    Args:
        config: the configuration of the run.
        place: the place of this process among the ranks; None: it trains alone.

    Raises:
        ConfigError: ``run.devices`` asks for GPUs that are not there.
        EnvironmentFault: the other ranks did not come in time.
        RankLost: another rank ended or does not answer.
    """
    if config.run.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    torch.use_deterministic_algorithms(config.run.deterministic)
    torch.backends.cudnn.benchmark = not config.run.deterministic  # all batches have one shape
    device, threads = choose_device(config, place)
    with _errors_of_peers(place):
        return Torch(join(config, place, device, threads), device, place)


class Torch(Framework):
    """PyTorch in this process, on one device.

    Attributes:
        device: the ``torch.device``.
    """

    name = "torch"
    version = torch.__version__

    def __init__(self, ranks: TorchRanks, device: Any, place: Place = None) -> None:
        self.ranks: TorchRanks = ranks
        self.device = device
        self._place = place
        on_cpu = device.type == "cpu"
        self.kind_of_device = (
            f"CPU, {ranks.threads} threads" if on_cpu else str(torch.cuda.get_device_name(device))
        )
        own = str(device) if on_cpu else f"{device} ({self.kind_of_device})"
        self.devices = ranks.all_values(own)
        self._profiler: Any = None
        self._profiles = Path()

    def build(self, config: TrainConfig, version: DatasetVersion, steps_per_epoch: int) -> TorchModel:
        """Build the model of a run; see ``Framework``."""
        return TorchModel(config, build_parts(config, version, steps_per_epoch, self.ranks, self.device))

    def open_input(
        self, config: TrainConfig, reader: RecordReader, order: Order, division: Division
    ) -> Batches:
        """Open the batches of the train split; see ``Framework``."""
        objects = kind_of(reader.split.version, config.data.objects).objects(
            reader.split.version, reader.table.split
        )
        opened = open_for_run(config, reader, order, objects)
        opened.budget()  # two batches must fit beside cache and windows
        return Batches(opened, self.ranks, self.device, division.rows)

    def open_trained(self, config: TrainConfig, version: DatasetVersion, run_dir: Path) -> TorchEvaluator:
        """Build the model of a run again, and load its weights; see ``Framework``."""
        plain = config.model.model_copy(update={"weights": None, "freeze": "none"})
        model = self.build(config.model_copy(update={"model": plain}), version, 1)
        path = run_dir / WEIGHTS_FILE
        try:
            model.parts.model.load_state_dict(torch.load(path, map_location=self.device, weights_only=True))
        except (OSError, RuntimeError, ValueError) as error:
            raise CorruptDataError(
                f"the weights {path} cannot be loaded: {error}", "train again with run.fresh=true"
            ) from error
        return model.evaluator

    def lone_step(self, spec: ModelSpec, config: TrainConfig, rows: int) -> Callable[[], float]:
        """Return a forward and backward pass on the device of this rank, without an update."""
        model = build_model(replace(spec, synchronized=False, weights=None))
        freeze_modules(model, config.model.freeze)
        model = model.to(self.device, memory_format=torch.channels_last)
        set_training(model)
        dtype = getattr(torch, spec.dtype)
        images = torch.zeros((rows, *spec.image_shape), dtype=dtype, device=self.device)
        images = images.permute(0, 3, 1, 2)  # channels last in memory

        def step() -> float:
            model.zero_grad(set_to_none=True)
            with in_type(self.device, MIXED[config.run.mixed_precision]):
                # Any loss will do: the work does not depend on it.
                loss = model(pixels(images)).float().sum()
            loss.backward()
            gradients = [own.grad for own in model.parameters() if own.grad is not None]
            return float(torch.nn.utils.get_total_norm(gradients))  # waits for the device

        return step

    def peak_device_bytes(self) -> dict[str, int]:
        """Return the most memory that PyTorch has held of the GPU so far; see ``Framework``."""
        if self.device.type == "cpu":
            return {}
        return {str(self.device): int(torch.cuda.max_memory_reserved(self.device))}

    def copy_to_device(self, images: Pixels) -> None:
        """Copy images to the device; reading one value back waits for the whole copy."""
        float(torch.from_numpy(images).to(self.device)[-1, -1, -1, -1])

    def start_profile(self, logs: Path) -> None:
        """Begin to record operations of the host, and kernels of the GPU."""
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler, self._profiles = profile(activities=activities), logs / "profile"
        self._profiler.start()

    def stop_profile(self) -> str:
        """Write ``profile/<time>.pt.trace.json``, and return its path."""
        running, self._profiler = self._profiler, None
        running.stop()
        self._profiles.mkdir(parents=True, exist_ok=True)
        path = self._profiles / f"{time.strftime('%Y-%m-%d-%H-%M-%S')}.pt.trace.json"
        running.export_chrome_trace(str(path))
        return str(path)

    def errors_of_peers(self) -> AbstractContextManager[None]:
        """Raise RankLost in the block if another rank ended or does not answer."""
        return _errors_of_peers(self._place)


class TorchModel(Model):
    """A ``torch.nn.Module`` with everything that trains, evaluates and exports it.

    Attributes:
        parts: module, optimizer and what else trains it.
    """

    def __init__(self, config: TrainConfig, parts: TrainingParts) -> None:
        self.parts = parts
        self.spec, self.task, self.stages = parts.spec, parts.task, parts.stages
        self.changes, self.pruning = parts.notes, parts.pruning
        self.evaluator: TorchEvaluator = TorchEvaluator(config, parts)
        self._augment = DeviceAugment(config.augment, config.data.seed)
        self._optimizer = parts.optimizer

    def begin_stage(self, config: TrainConfig, rows: int, *, head_alone: bool) -> None:
        """Prepare the step of a stage; see ``Model``."""
        head = self.parts.head
        if head is not None:
            (head.alone.begin if head_alone else head.alone.end)()
        self.step = step = TrainStep(config, self.parts, head_alone=head_alone)
        self._optimizer = step.optimizer

    def take_totals(self) -> StepTotals:
        """Return the sums of the steps since the last call. It waits for the device."""
        return self.parts.totals.take()

    def last_rate(self) -> float:
        """Return the learning rate that the optimizer took in the last step."""
        group = self._optimizer.param_groups[0]
        return float(group["lr"] / group["rate_factor"])

    @property
    def state(self) -> list[TensorState]:
        """All arrays of a checkpoint; see ``Model``."""
        return self.parts.state

    @property
    def model_state(self) -> list[TensorState]:
        """The arrays of the model."""
        return self.parts.model_state

    def evaluated(self) -> AbstractContextManager[None]:
        """Let the model have the weights that are evaluated, kept as the best and exported."""
        return self.parts.evaluated()

    def consumed(self, batch: TorchBatch, rows: slice, num_rows: int) -> Ints:
        """Return the ordinals of the real examples of all ranks, in the order of the global batch."""
        columns = np.stack([batch.ordinals.numpy(), (batch.weights > 0).cpu().numpy()], axis=1)
        ordinals, real = self.parts.ranks.gather_rows(columns.astype(np.int64), rows, num_rows).T
        found: Ints = ordinals[real > 0]
        return found

    def shown(self, batch: TorchBatch, most: int) -> Shown:
        """Return the first examples of a batch after all augmentation."""
        images = self._augment(batch).images[:most].permute(0, 2, 3, 1)
        return Shown(images.cpu().numpy(), batch.labels.cpu().numpy())

    def export(self, config: TrainConfig, readers: Mapping[str, RecordReader], run_dir: Path) -> Written:
        """Export the model, and compare its forms with it on the test split, if there is one."""
        records = checked_on(readers)
        names, maker = records.split.version.manifest.label_names, self.evaluator.maker(records)
        return export_model(self.parts.model, self.parts.task, names, maker, run_dir, config.export.formats)

    @property
    def num_parameters(self) -> int:
        """The number of its weights."""
        return num_parameters(self.parts.model)


@contextmanager
def _errors_of_peers(place: Place) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        said = " ".join(str(error).split())
        if place is None or not any(word in said.lower() for word in _LOST):
            raise
        raise rank_lost(place.rank, said) from error
