"""The masks of a batch of images (``infra.format.known_features``), moved as the images are augmented."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra.codecs import ImageRejected
from shardmill.infra.codecs.masks import decode_stored_mask
from shardmill.infra.errors import ConfigError, CorruptDataError
from shardmill.infra.format.known_features import MaskFormat
from shardmill.training.augment.geometry import move_mask
from shardmill.training.augment.parameters import AugmentParameters
from shardmill.training.reading.records.split_records import EncodedImage

Masks = npt.NDArray[Any]  # [b, H, W], of ``batch_dtype``


def batch_dtype(stored: MaskFormat) -> type[np.uint8] | type[np.int32]:
    """Return the type of masks in batches: PyTorch and TensorFlow do little with uint16."""
    return np.uint8 if stored.dtype == "uint8" else np.int32


def check_without_cache(stored: MaskFormat | None, remedy: str) -> None:
    """Check that there are no masks, where only images are kept.

    Raises:
        ConfigError: there are.
    """
    if stored is not None:
        raise ConfigError("a cache keeps images without their masks", remedy)


def fill_mask(
    stored: EncodedImage, parameters: AugmentParameters, row: int, size: int | None, ignore: int, out: Masks
) -> None:
    """Decode the mask of an image and move it with the image.

    Args:
        stored: the image and its mask.
        parameters: parameters of the augmentation of the batch.
        row: row of the image in the batch.
        size: height and width of images (pixels); None: whole images, padded to the largest of the batch.
        ignore: number of pixels that belong to no class, for the padding.
        out: [H, W], written.

    Raises:
        CorruptDataError: the record has no mask, or one that cannot be decoded or is of another size.
    """
    try:
        mask = decode_stored_mask(stored.mask or b"")
    except ImageRejected as rejected:
        raise CorruptDataError(f"its mask is {rejected.message}") from rejected
    if mask.shape != stored.shape[:2]:
        raise CorruptDataError(f"its mask has {mask.shape} pixels, and the image {stored.shape[:2]}")
    if size is not None:
        out[...] = move_mask(mask, parameters, row, size)
        return
    height, width = mask.shape
    out[...] = ignore
    out[:height, :width] = mask
