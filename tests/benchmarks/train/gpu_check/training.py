"""ResNet-50 in bfloat16, channels last: images a second with one batch over and over, and with ours."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from torchvision.models import get_model

from tests.benchmarks.read.peers.reading import endless
from tests.benchmarks.train.gpu_check.measuring import IMAGE_SIZE, Told, measured
from tests.benchmarks.train.gpu_check.reading import waits
from tests.benchmarks.train.gpu_check.rows import Row

_ALL_IMAGENET_CLASSES = 1000


class Trainer:
    """Trains a model on one device; the next step is prepared while the device works on this one."""

    def __init__(self, told: Told, *, compiled: bool) -> None:
        """Build the model; ``compiled`` by ``torch.compile``."""
        torch.backends.cudnn.benchmark = True
        name = "resnet50" if told.on_gpu else "shufflenet_v2_x0_5"
        model = get_model(name, num_classes=_ALL_IMAGENET_CLASSES)
        self._device = told.device
        self._model: Any = model.to(told.device, memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01, momentum=0.9)
        if compiled:
            self._model = torch.compile(self._model, backend="inductor" if told.on_gpu else "eager")
        self._last: Any = None
        self.name = f"{name}{', compiled' if compiled else ''}"

    def step(self, batch: Any) -> int:
        """Take a step on (images uint8 [B, 3, S, S], labels int64 [B]), and wait for the step before it."""
        images, labels = (part.to(self._device, non_blocking=True) for part in batch)
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self._device, torch.bfloat16, enabled=self._device == "cuda"):  # slow on CPUs
            loss = cross_entropy(self._model(images.float().div_(127.5).sub_(1)), labels)
        loss.backward()
        self._optimizer.step()
        if self._device == "cuda":
            event = torch.cuda.Event()
            event.record()
            if self._last is not None:
                self._last.synchronize()
            self._last = event
        return len(images)


def resnet(told: Told) -> Iterator[Row]:
    """Train without ``torch.compile``."""
    return _rows(told, Trainer(told, compiled=False), told.window(7))


def compiled_resnet(told: Told) -> Iterator[Row]:
    """Train with ``torch.compile``."""
    return _rows(told, Trainer(told, compiled=True), told.window(16))


def _rows(told: Told, trainer: Trainer, seconds: float) -> Iterator[Row]:
    """Measure the same batch over and over, real batches, and the same batch again."""
    shape = (told.batch_size, IMAGE_SIZE, IMAGE_SIZE, 3)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, device=told.device).permute(0, 3, 1, 2)
    labels = torch.randint(0, _ALL_IMAGENET_CLASSES, shape[:1], device=told.device)
    synthetic = itertools.repeat((images, labels))
    name, finish = trainer.name, waits(told)

    def train(kind: str, batches: Iterator[Any], time: float, warm: int) -> Row:
        row = measured(f"{name}, {kind}", batches, trainer.step, time, finish=finish, warm=warm)
        return replace(row, gpu_bytes=torch.cuda.max_memory_allocated() if told.on_gpu else None)

    before = train("synthetic", synthetic, seconds, 5)
    yield before
    loader = told.loader()
    batches = endless(loader, lambda batch: (batch.images, batch.labels))
    # The batches that workers have prepared before are taken first, unmeasured.
    ready = loader.num_workers * 2 + 2
    real = train("real data", batches, 2 * seconds, ready).compared(before)
    yield real
    loader.close()
    yield train("synthetic again", synthetic, seconds, 2).compared(before)
