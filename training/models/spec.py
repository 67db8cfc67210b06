"""The parameters from which a model is built, and the pixels that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from shardmill.infra.arguments import at_least, checked
from shardmill.infra.errors import ConfigError, UsageError
from shardmill.infra.format.contract import Manifest
from shardmill.infra.preparation import SampleKind, SampleType

# What a square input shows of an image: its central square, or all of it, squeezed.
Fit = Literal["crop", "stretch"]
# What a model gives for an image: logits of classes, objects or oriented ones at cells
# (``shardmill.training.tensorflow.models.detector``), places of key points, or logits of the classes of each
# pixel.
ModelOutput = Literal["classes", "objects", "oriented", "points", "pixels"]

STRIDES: Final = (8, 16, 32)  # pixels of the image per cell of a map on which places are found

# A channel that hardly varies holds no information; dividing by its deviation would amplify noise. Whole
# numbers: one step. float32: a share of the mean, below which its digits are rounded away.
LEAST_STD = 1.0
_LEAST_SHARE = 1e-6
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def samples_read(manifest: Manifest, image_channels: int | None = None) -> SampleKind:
    """Return the samples of the images that are read of a dataset version.

    Common images, of 8 bits of grey or RGB, are read with three channels or one; others as they are stored.

    Args:
        manifest: the manifest of the version.
        image_channels: ``data.image_channels``; None: as many as are stored, and three of common images.

    Raises:
        ConfigError: the images have other channels.
    """
    stored = manifest.samples
    choices = (3, 1) if stored.is_common else (stored.channels,)
    if image_channels is not None and image_channels not in choices:
        others = ", or set it to 1 for grey" if stored.is_common else ""
        raise ConfigError(
            f"data.image_channels = {image_channels}, and the images of {manifest.dataset}@"
            f"{manifest.version} are {replace(stored, channels=choices[0])}",
            f"leave data.image_channels out{others}",
        )
    return replace(stored, channels=image_channels or choices[0])


@dataclass(frozen=True, slots=True)
class PixelStatistics:
    """Mean and standard deviation of pixels, in their unit, for each channel of the model's input."""

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
        image_channels: channels of the input.
        dtype: type of the pixels.
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
    dtype: SampleType = "uint8"

    def __post_init__(self) -> None:
        at_least(
            1, num_classes=self.num_classes, image_size=self.image_size, image_channels=self.image_channels
        )
        at_least(0, seed=self.seed)
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout = {self.dropout} must be at least 0 and below 1")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the input, for ``keras.Input``."""
        return self.image_size, self.image_size, self.image_channels

    @property
    def normalization(self) -> PixelStatistics:
        """What is subtracted from each channel of the input, and what it is divided by then.

        The statistics of the train split; without them pixels become -1 to 1.

        Raises:
            ConfigError: pixels are float32, which have no range, and there are no statistics.
        """
        if self.pixels is not None:
            stds = [self._divisor(*both) for both in zip(self.pixels.mean, self.pixels.std, strict=True)]
            return PixelStatistics(self.pixels.mean, tuple(stds))
        white = self.samples.white
        if white is None:
            raise ConfigError(
                "float32 images have no range that could become -1 to 1",
                "set data.normalization = 'dataset', for a version whose manifest has their statistics, or "
                "normalise them in a model of your own",
            )
        return PixelStatistics((white / 2,) * self.image_channels, (white / 2,) * self.image_channels)

    @property
    def samples(self) -> SampleKind:
        """The samples of the input."""
        return SampleKind(self.dtype, self.image_channels)

    def check_common(self) -> None:
        """Check that the input is common images, as the models of libraries take them.

        Raises:
            ConfigError: it is something else.
        """
        if not self.samples.is_common:
            raise ConfigError(
                f"model.name = {self.name!r} takes grey or RGB of 8 bits, and the images are {self.samples}",
                "choose small_cnn, compact_resnet (TensorFlow) or a model of your own",
            )

    def check_cells(self) -> None:
        """Check that images have whole cells of all maps on which places are found.

        Raises:
            ConfigError: their size is no multiple of the largest stride.
        """
        largest = STRIDES[-1]
        if self.image_size % largest:
            raise ConfigError(
                f"data.image_size = {self.image_size}: models that find objects need a multiple of {largest}",
                f"set it to {max(round(self.image_size / largest), 1) * largest}",
            )

    def _divisor(self, mean: float, std: float) -> float:
        """Return the deviation of a channel, or for one that hardly varies a number that does not amplify."""
        if self.dtype != "float32":
            return max(std, LEAST_STD)
        return std if std > _LEAST_SHARE * abs(mean) else abs(mean) or 1.0

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
    if not samples_read(manifest, image_channels).is_common:
        return PixelStatistics(tuple(mean), tuple(std)) if len(mean) == len(std) == image_channels else None
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
