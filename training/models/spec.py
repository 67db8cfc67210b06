"""The parameters from which a model is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.errors import UsageError
from shardmill.infra.format.contract import Manifest

# What a square input shows of an image: its central square, or all of it, squeezed.
Fit = Literal["crop", "stretch"]
# What a model gives for an image: logits of classes, objects at cells
# (``shardmill.training.tensorflow.models.detector``), or logits of the classes of each pixel.
ModelOutput = Literal["classes", "objects", "pixels"]

# A channel that hardly varies holds no information; dividing by its deviation would amplify noise.
LEAST_STD = 1.0
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


@dataclass(frozen=True, slots=True)
class PixelStatistics:
    """Mean and standard deviation of pixels, 0 to 255, for each channel of the model's input."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@checked
@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The parameters from which a model is built.

    Attributes:
        name: the name of the model, as in the configuration.
        num_classes: width of the output.
        image_size: height and width of the input (pixels).
        dropout: share of features dropped before the classifier.
        synchronized: batch normalisation takes its moments over all replicas.
        weights: None for random weights, "imagenet", or the path of a Keras weights file.
        partial_weights: further layers than the head may be missing in the weights file.
        seed: the seed of the random weights and of dropout.
        pixels: the statistics of the training images, for the normalisation of its input; None:
            unknown or not used.
        image_channels: channels of the input: 3, or 1 for grey images.
        output: what the model gives for an image.
        fit: what the model sees of images that are not square.
    """

    name: str
    num_classes: int
    image_size: int
    dropout: float = 0.0
    synchronized: bool = False
    weights: str | None = None
    seed: int = 0
    pixels: PixelStatistics | None = None
    image_channels: int = 3
    output: ModelOutput = "classes"
    fit: Fit = "crop"
    partial_weights: bool = False

    def __post_init__(self) -> None:
        at_least(1, num_classes=self.num_classes, image_size=self.image_size)
        at_least(0, seed=self.seed)
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout = {self.dropout} must be at least 0 and below 1")
        if self.image_channels not in (1, 3):
            raise UsageError(f"image_channels = {self.image_channels}", "give 3, or 1 for grey images")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the input, for ``keras.Input``."""
        return self.image_size, self.image_size, self.image_channels

    @property
    def output_shape(self) -> tuple[int | None, ...]:
        """The shape of logits: of each image, or of each pixel."""
        places = (self.image_size, self.image_size) if self.output == "pixels" else ()
        return None, *places, self.num_classes


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
