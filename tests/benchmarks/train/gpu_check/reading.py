"""Rates of reading: into memory, into the GPU with PyTorch and JAX, and of decoding on the GPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from shardmill.infra.processes.process import num_cpus
from tests.benchmarks.read.peers.reading import endless
from tests.benchmarks.read.peers.shardmill.numpy_batches import decoded
from tests.benchmarks.train.gpu_check.measuring import (
    AUGMENT,
    ENDLESS,
    IMAGE_SIZE,
    Skipped,
    Told,
    measured,
)
from tests.benchmarks.train.gpu_check.rows import INTO_DEVICE, LIMIT, Row


def read(told: Told) -> Iterator[Row]:
    """Measure the decoder alone in a process a core, then numpy batches."""
    dataset, seconds = told.open(), told.window(5)
    ticks = decoded(stored(told), num_cpus())
    limit = measured(LIMIT, ticks, lambda count: count, seconds)
    ticks.close()
    yield replace(limit, note=f"{num_cpus()} processes")
    batches = dataset.batches("train", epochs=ENDLESS, **told.examples)
    row = measured("numpy batches", iter(batches), lambda batch: len(batch.images), seconds)
    yield row.compared(limit)


def torch_into_device(told: Told) -> Iterator[Row]:
    """Measure the PyTorch loader with every batch copied to the device, and the copy alone."""
    import torch

    yield _torch(told, told.window(4), f"PyTorch, {INTO_DEVICE}")
    size = (told.batch_size, IMAGE_SIZE, IMAGE_SIZE, 3)
    batch = torch.zeros(size, dtype=torch.uint8, pin_memory=told.on_gpu)
    copies = itertools.repeat(batch)

    def use(images: Any) -> int:
        images.to(told.device, non_blocking=True, copy=True)
        return len(images)

    yield measured("copy alone, pinned", copies, use, told.window(12), finish=waits(told))


def _torch(told: Told, seconds: float, what: str) -> Row:
    import torch

    loader = told.loader()

    def use(images: Any) -> int:
        images.to(told.device, non_blocking=True)
        return len(images)

    batches = endless(loader, lambda batch: batch.images)
    row = measured(what, batches, use, seconds, finish=waits(told))
    loader.close()
    peak = torch.cuda.max_memory_allocated() if told.on_gpu else None
    return replace(row, gpu_bytes=peak, note=f"{loader.num_workers} workers")


def jax_into_device(told: Told) -> Iterator[Row]:
    """Measure ``Dataset.jax``, which copies to the device ahead of use."""
    import jax

    device = jax.local_devices()[0]
    if told.on_gpu and device.platform != "gpu":
        raise Skipped(f"JAX sees no GPU: {jax.devices()}")

    def use(batch: Any) -> int:
        batch.images.block_until_ready()
        return len(batch.images)

    batches = told.open().jax("train", epochs=ENDLESS, **told.examples)
    row = measured(f"JAX, {INTO_DEVICE}", iter(batches), use, told.window(4))
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
    yield replace(row, gpu_bytes=peak)


def decode_on_device(told: Told) -> Iterator[Row]:
    """Measure torchvision's decoder on the device: alone, and with a random window; then ours."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2.functional import resized_crop

    files = [torch.frombuffer(bytearray(image), dtype=torch.uint8) for image in stored(told)]
    parts = [files[at : at + told.batch_size] for at in range(0, len(files), told.batch_size)]

    def decode(part: Any) -> Any:
        return decode_jpeg(part, mode=ImageReadMode.RGB, device=told.device)

    try:
        difference = _difference(decode(files[:32]), files[:32])
    except RuntimeError as error:
        if "nvjpeg" not in str(error).lower():
            raise
        raise Skipped(f"torchvision decodes no JPEG on a GPU: {str(error).splitlines()[0]}") from error
    seconds, finish = told.window(6), waits(told)

    def whole(part: Any) -> int:
        return len(decode(part))

    row = measured("torchvision decodes on the device", itertools.cycle(parts), whole, seconds, finish=finish)
    yield replace(row, note=f"differs from ours by {difference:.2f} grey levels")
    windows = itertools.cycle(_windows(decode(files)))

    def cut(part: Any) -> int:
        size = [IMAGE_SIZE, IMAGE_SIZE]
        torch.stack([resized_crop(image, *next(windows), size=size) for image in decode(part)])
        return len(part)

    row = measured("the same, random window of 224", itertools.cycle(parts), cut, seconds, finish=finish)
    peak = torch.cuda.max_memory_allocated() if told.on_gpu else None
    yield replace(row, gpu_bytes=peak)
    yield _torch(told, seconds, "ours with PyTorch").compared(row)


def _difference(found: Any, files: Any) -> float:
    """Return the mean difference of decoded images to those of our decoder (grey levels)."""
    import simplejpeg

    levels = [
        np.abs(image.permute(1, 2, 0).cpu().numpy().astype(int) - simplejpeg.decode_jpeg(file.numpy())).mean()
        for image, file in zip(found, files, strict=True)
    ]
    return float(np.mean(levels))


def _windows(images: Any) -> Any:
    """Return a window (top, left, height, width) of each image, as training draws them."""
    from shardmill.training.augment.parameters import draw_parameters

    heights, widths = np.array([image.shape[1:] for image in images]).T
    positions = np.arange(len(images), dtype=np.int64)
    return draw_parameters(AUGMENT, 0, 0, positions, heights, widths, IMAGE_SIZE).windows.tolist()


def stored(told: Told) -> list[bytes]:
    """Return the JPEGs of the train split, at most 2,048."""
    records = told.open().reader("train")
    ordinals = np.arange(min(len(records.table), 2048))
    return [record.image for record in records.read_many(ordinals)]


def waits(told: Told) -> Any:
    """Return a function that waits for the device."""
    import torch

    return torch.cuda.synchronize if told.on_gpu else lambda: None
