"""HEIF (HEIC, as telephones write it) through libheif, where the extra ``heif`` is installed.

It is an extra because its decoder of HEVC is under the LGPL, and the least hardened of the image libraries.
"""

from __future__ import annotations

import importlib
import io
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from PIL import Image

from infra.codecs.boxes import items_are_text
from infra.codecs.formats import ImageRejected


def heif_build() -> str:
    """Version of the binding and its libheif; "absent" where there is none."""
    try:
        return version("pi-heif")
    except PackageNotFoundError:
        return "absent"


def open_heif(data: bytes) -> Image.Image:
    """The primary image, not yet decoded; turned as the container says once it is.

    Raises:
        ImageRejected: no library for it is installed ("unsupported"), or it would crash that library.
    """
    try:
        binding: Any = importlib.import_module("pi_heif")
    except ImportError as error:
        raise ImageRejected(
            "unsupported", "a HEIF image; to read these, pip install 'shardmill[heif]', and prepare again"
        ) from error
    if not items_are_text(data):
        # pi-heif 1.4 follows a null pointer where the type of an item is no text.
        raise ImageRejected("corrupt", "not a sound HEIF file: what it lists of its items is no text")
    binding.options.DECODE_THREADS = 1  # parallelism comes from the jobs above, one image a thread
    for unused in ("THUMBNAILS", "DEPTH_IMAGES", "AUX_IMAGES"):
        setattr(binding.options, unused, False)
    return cast(Image.Image, binding.as_plugin.HeifImageFile(io.BytesIO(data)))
