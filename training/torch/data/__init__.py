"""Records for PyTorch, with the order and reader of every other framework (extra ``torch``).

Two datasets, and the classes that drive them:

- ``StepBatches``: iterable, whole batches of one rank, for ``DataLoader(..., batch_size=None)``. Worker w of
  W makes steps w, w + W, ...; a ``DataLoader`` takes from its workers in turn, so the order is exact.
- ``Examples``: map-style, one example by number, or by its ``Place`` in the order. ``OrderSampler`` is its
  ``batch_sampler`` and stands in for ``DistributedSampler``; ``pad_collate`` joins images of unlike sizes.
- ``DeviceAugment``: RandAugment, MixUp and CutMix of whole batches, on the device where their images lie.
- ``TorchLoader``: a ``DataLoader`` over either that tracks the position of the run: ``state_dict`` counts the
  batches that the training loop received, not those that workers have prepared ahead.
- ``follow_loader``: the ``worker_init_fn`` of a ``DataLoader`` whose workers end with its process.

A step's records are a function of (seed, epoch, step) alone: the numbers of ranks and of workers change
nothing. ``Dataset.torch`` puts the parts together.
"""

from __future__ import annotations

import importlib.util

from shardmill.infra.errors import EnvironmentFault
from shardmill.infra.extras import install

if importlib.util.find_spec("torch") is None:
    raise EnvironmentFault("PyTorch is not installed", install("torch"))

from shardmill.training.reading.cache import PreloadedRecords
from shardmill.training.reading.workers import follow_loader
from shardmill.training.torch.data.batch import Example, TorchBatch, pad_collate
from shardmill.training.torch.data.datasets import Examples, OrderSampler, Place, StepBatches
from shardmill.training.torch.data.device_augment import AugmentedBatch, DeviceAugment
from shardmill.training.torch.data.loader import TorchLoader
from shardmill.training.torch.data.options import LoaderOptions, TorchOptions, auto_workers
from shardmill.training.torch.data.ranks import RankOrder, this_rank
from shardmill.training.torch.data.transform import Transform, TransformRecord

__all__ = [
    "AugmentedBatch",
    "DeviceAugment",
    "Example",
    "Examples",
    "LoaderOptions",
    "OrderSampler",
    "Place",
    "PreloadedRecords",
    "RankOrder",
    "StepBatches",
    "TorchBatch",
    "TorchLoader",
    "TorchOptions",
    "Transform",
    "TransformRecord",
    "auto_workers",
    "follow_loader",
    "pad_collate",
    "this_rank",
]
