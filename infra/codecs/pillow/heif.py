"""Open HEIF files (HEIC, from telephones) with libheif, if the extra ``heif`` is installed.

It is an extra because its HEVC decoder is under the LGPL, and is the least hardened of the image libraries.
"""

from __future__ import annotations

import importlib
import io
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from PIL import Image

from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.structure.boxes import items_are_text


def heif_build() -> str:
    """Return the version of the binding and its libheif, or "absent"."""
    try:
        return version("pi-heif")
    except PackageNotFoundError:
        return "absent"


def open_heif(data: bytes) -> Image.Image:
    """Open the primary image. Loading it will decode it and turn it as the container says.

    Raises:
        ImageRejected: no library for HEIF is installed ("unsupported"), or it would crash ("corrupt").
    """
    try:
        binding: Any = importlib.import_module("pi_heif")
    except ImportError as error:
        raise ImageRejected(
            "unsupported", "a HEIF image; to read these, pip install 'shardmill[heif]', and prepare again"
        ) from error
    if not items_are_text(data):
        # pi-heif 1.4 follows a null pointer if the type of an item is no text.
        raise ImageRejected("corrupt", "not a sound HEIF file: the types and names of its items are no text")
    binding.options.DECODE_THREADS = 1  # jobs decode one image a thread
    for unused in ("THUMBNAILS", "DEPTH_IMAGES", "AUX_IMAGES"):
        setattr(binding.options, unused, False)
    return cast(Image.Image, binding.as_plugin.HeifImageFile(io.BytesIO(data)))
