"""The random arrays that augmentations draw for a batch, each by its name, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardmill.training.augment.parameters import AugmentParameters, draw_batch_parameters
from shardmill.training.augment.settings import AugmentSettings


class Drawn:
    """The arrays by name: ``drawn.ops``, ``drawn.left_right``; ``nested`` as product code takes them."""

    def __init__(self, settings: AugmentSettings, nested: dict[str, Any]) -> None:
        self.settings, self.nested = settings, nested

    def __getattr__(self, name: str) -> Any:
        for arrays in self.nested.values():
            if name in arrays:
                return arrays[name]
        raise AttributeError(name)


def drawn_for_images(parameters: AugmentParameters) -> Drawn:
    """Return what augmentations of single images have drawn."""
    return Drawn(AugmentSettings(), {type(one).__name__: drawn for one, drawn in parameters.images})


def drawn_for_batches(settings: AugmentSettings, seed: int, epoch: int, positions: Any, size: int) -> Drawn:
    """Return what augmentations of whole batches draw."""
    return Drawn(settings, draw_batch_parameters(settings, seed, epoch, np.asarray(positions), size))
