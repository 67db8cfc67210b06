"""Normalise pixels in a layer of the model, so that the exported model takes images as they are."""

from __future__ import annotations

from typing import Any

from infra.format.contract import Manifest
from training.models.spec import ModelSpec, PixelStatistics

# A channel that hardly varies holds no information; dividing by its deviation would amplify noise.
_LEAST_STD = 1.0


def pixels_of(manifest: Manifest) -> PixelStatistics | None:
    """Return the pixel statistics of the train split; None if the manifest has none."""
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
    """Normalise images to mean 0 and deviation 1 over the train split; without statistics, to -1 to 1.

    A layer without weights: a weights file fits models of any data set.

    Args:
        images: Keras tensor [B, S, S, 3].
        spec: the parameters of the model.
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
