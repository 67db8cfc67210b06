"""Segmentation masks, as features of records.

=====================  ======  =========================================================================
mask/encoded           bytes   PNG, grey, of the size of the stored image: number of the class of each
                               pixel, and ``MaskFormat.ignore`` where there is none; in no index
mask/pixels            int64   number of pixels of each class in ``labels``, in the same order
mask/stored_bytes      int64   scalar: length of mask/encoded
mask/source_sha256     bytes   scalar: SHA-256 of the source of the mask, 64 hexadecimal digits
mask/source_uri        bytes   scalar: the source of the mask, relative to the source of the images
=====================  ======  =========================================================================

The feature ``labels`` (``shardmill.infra.format.labels``) has each class of the stored mask once, rising.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import ConfigDict

from shardmill.infra.format.features import Feature
from shardmill.infra.format.labels import LABELS
from shardmill.infra.settings import Settings

MASK: Final = "mask/encoded"
MASK_PIXELS: Final = "mask/pixels"
MASK_BYTES: Final = "mask/stored_bytes"
MASK_SHA256: Final = "mask/source_sha256"
MASK_URI: Final = "mask/source_uri"

MASK_MEANING: Final = "bytes: grey PNG of the image's size, the number of the class of each pixel"
MAX_CLASSES: Final = 65_535

# Found by reading the mask of an image.
READ_MASK_FEATURES: Final = (
    Feature(name=LABELS, dtype="int64", shape="variable"),
    Feature(name=MASK_PIXELS, dtype="int64", shape="variable"),
    Feature(name=MASK_BYTES, dtype="int64"),
    Feature(name=MASK_SHA256, dtype="bytes", is_text=True),
)
MASK_FEATURES: Final = (*READ_MASK_FEATURES, Feature(name=MASK_URI, dtype="bytes", is_text=True))


class MaskFormat(Settings):
    """The stored form of the masks of a version.

    Attributes:
        dtype: type of the pixels.
        ignore: number of pixels that belong to no class, or lie around a padded image.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dtype: Literal["uint8", "uint16"] = "uint8"
    ignore: Literal[255, 65_535] = 255


def mask_format(num_classes: int) -> MaskFormat:
    """Return the stored form of masks with so many classes."""
    if num_classes <= MaskFormat().ignore:
        return MaskFormat()
    return MaskFormat(dtype="uint16", ignore=65_535)
