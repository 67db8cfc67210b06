"""Normalise pixels in a layer of the model, so that the exported model takes images as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardmill.infra.arguments import checked
from shardmill.infra.format.contract import Manifest
from shardmill.training.models.spec import ModelSpec, PixelStatistics

# A channel that hardly varies holds no information; dividing by its deviation would amplify noise.
_LEAST_STD = 1.0
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def pixels_of(manifest: Manifest, image_channels: int = 3) -> PixelStatistics | None:
    """Return the pixel statistics of the train split; None if the manifest has none.

    The deviation of the luma of coloured images is not recorded. It is at most the weighted mean of those of
    their channels, which is taken in its place: neighbouring channels vary together in photographs.
    """
    found = manifest.statistics.get("train")
    if found is None or found.pixels is None:
        return None
    mean, std = found.pixels.mean, found.pixels.std
    if image_channels == 1:
        return _of_luma(mean, std)
    if len(mean) == 1:  # grey records are read as three equal channels
        mean, std = mean * 3, std * 3
    if len(mean) != 3 or len(std) != 3:
        return None
    return PixelStatistics(tuple(mean), tuple(std))


def _of_luma(mean: Sequence[float], std: Sequence[float]) -> PixelStatistics | None:
    if len(mean) == len(std) == 1:
        return PixelStatistics((mean[0],), (std[0],))
    if len(mean) != 3 or len(std) != 3:
        return None
    luma_mean, luma_std = (
        sum(share * value for share, value in zip(_LUMA, values, strict=True)) for values in (mean, std)
    )
    return PixelStatistics((luma_mean,), (luma_std,))


@checked
def normalized(images: Any, spec: ModelSpec) -> Any:
    """Normalise images to mean 0 and deviation 1 over the train split; without statistics, to -1 to 1.

    A layer without weights: a weights file fits models of any dataset.

    Args:
        images: Keras tensor [B, S, S, C].
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
