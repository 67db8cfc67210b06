"""Normalisation of pixels inside the model, and batch normalisation in runs of any length, over all ranks.

The momentum of PyTorch is the share of the new statistics: 1 minus that of Keras.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import torch
import torch.distributed
from torch import nn
from torch.distributed.nn.functional import all_reduce

from shardmill.training.models.changes import LimitedMomentum
from shardmill.training.models.spec import ModelSpec
from shardmill.training.torch.models.layers import BATCH_NORMALIZATIONS


class Normalization(nn.Module):  # type: ignore[misc]
    """Subtracts a mean from each channel and divides it by a deviation.

    It has no state: weights of a model fit any dataset.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], *, fills: bool = False) -> None:
        """Normalise by ``mean`` and ``std`` of each channel, or of all, in the unit of the pixels."""
        super().__init__()
        self.fills = fills
        for name, values in (("mean", mean), ("std", std)):
            values = torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1)
            self.register_buffer(name, values, persistent=False)

    @classmethod
    def of(cls, spec: ModelSpec) -> Normalization:
        """Normalise as ``spec.normalization`` says.

        Raises:
            ConfigError: see there.
        """
        by = spec.normalization
        return cls(by.mean, by.std, fills=spec.dtype == "float32")

    def forward(self, images: Any) -> Any:
        """Normalise float32 [B, C, H, W]; with ``fills`` a value that is not finite becomes the mean."""
        if self.fills:
            images = torch.where(images.abs() < float("inf"), images, self.mean)
        return (images - self.mean) / self.std


# Whether the rows that this thread takes now are padding. Without any row a layer would fail.
_only_padding: ContextVar[bool] = ContextVar("only_padding", default=False)


@contextlib.contextmanager
def padding_alone(is_so: bool) -> Iterator[None]:
    """Leave the rows of this rank out of the moments of all ranks in the block, if they are padding."""
    token = _only_padding.set(is_so)
    try:
        yield
    finally:
        _only_padding.reset(token)


def limit_momentum(model: Any, limit: float) -> LimitedMomentum | None:
    """Let the moving statistics of every batch normalisation follow faster than the Keras momentum ``limit``.

    Returns:
        What was changed, in momenta of Keras; None if nothing was.
    """
    slow = [
        module
        for module in model.modules()
        if isinstance(module, BATCH_NORMALIZATIONS)
        and module.momentum is not None
        and 1 - module.momentum > limit + 1e-9
    ]
    if not slow:
        return None
    highest = max(1 - module.momentum for module in slow)
    for module in slow:
        module.momentum = 1 - limit
    return LimitedMomentum(limit, round(highest, 9), len(slow))


class _SynchronizedBatchNorm2d(nn.BatchNorm2d):  # type: ignore[misc]
    """Batch normalisation of images whose moments are taken over the batches of all ranks.

    ``torch.nn.SyncBatchNorm`` works only on accelerators; this one is for the CPU. The means and squared
    deviations of the ranks are combined as in ``shardmill.training.tensorflow.models.normalization``.
    """

    def forward(self, images: Any) -> Any:
        """Normalise [b, C, H, W]; b may differ between ranks."""
        if not self.training:
            return super().forward(images)
        values = images.float()
        own_mean = values.mean((0, 2, 3))
        own_squares = (values - own_mean.detach().view(1, -1, 1, 1)).square().sum((0, 2, 3))
        own = torch.cat([values.new_tensor([values.numel() / values.shape[1]]), own_mean, own_squares])
        if _only_padding.get():
            own = own * 0.0
        # One row a rank. With zeros in the others the sum puts the rows together.
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        moments = all_reduce(nn.functional.pad(own[None], (0, 0, rank, ranks - rank - 1)))
        counts = moments[:, :1].detach()
        means, squares = moments[:, 1:].chunk(2, 1)
        count = counts.sum().clamp(min=1)  # 0: no rank has anything but padding
        mean = (counts * means).sum(0) / count
        variance = (squares + counts * (means - mean).square()).sum(0) / count
        if counts.any():
            with torch.no_grad():
                self._follow(mean, variance, count)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        shift = self.bias - mean * scale
        return (values * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)).to(images.dtype)

    def _follow(self, mean: Any, variance: Any, count: Any) -> None:
        """Move the moving statistics, with the variance of a sample, as in ``torch.nn.BatchNorm2d``."""
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance * count / (count - 1).clamp(min=1), share)


def synchronized(model: Any, device: Any) -> Any:
    """Return a model whose batch normalisation takes its moments over all ranks, with the same weights."""
    if device.type != "cpu":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for path, module in list(model.named_modules()):
        if type(module) is nn.BatchNorm2d and module.affine and module.track_running_stats:
            made = _SynchronizedBatchNorm2d(module.num_features, eps=module.eps, momentum=module.momentum)
            made.load_state_dict(module.state_dict())
            made.requires_grad_(module.weight.requires_grad)
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, made)
    return model
