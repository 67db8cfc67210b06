"""Pixels as a model wants them, as a layer of the model: what is exported then takes images as they are."""

from __future__ import annotations

from typing import Any

from infra.contract import Manifest
from training.models import ModelSpec, PixelStatistics

# A channel that hardly varies holds nothing to learn from; dividing by its deviation would make noise of it.
_LEAST_STD = 1.0


def pixels_of(manifest: Manifest) -> PixelStatistics | None:
    """What the images of the train split are like; None where the manifest does not say."""
    found = manifest.statistics.get("train")
    if found is None or found.pixels is None:
        return None
    mean, std = found.pixels.mean, found.pixels.std
    if len(mean) == 1:  # grey records are read as three equal channels
        mean, std = mean * 3, std * 3
    if len(mean) != 3 or len(std) != 3:
        return None
    return PixelStatistics((mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))


def normalized(images: Any, spec: ModelSpec) -> Any:
    """Images of 0 to 255 with mean 0 and deviation 1 over the train split; where that is not known, -1 to 1.

    A layer without weights: a weights file fits models of any data set.

    Args:
        images: Keras tensor [B, S, S, 3].
        spec: of the model.
    """
    import keras

    if spec.pixels is None:
        return keras.layers.Rescaling(1 / 127.5, offset=-1.0, name="normalization")(images)
    stds = [max(std, _LEAST_STD) for std in spec.pixels.std]
    return keras.layers.Rescaling(
        scale=[1 / std for std in stds],
        offset=[-mean / std for mean, std in zip(spec.pixels.mean, stds, strict=True)],
        name="normalization",
    )(images)
