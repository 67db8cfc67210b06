"""Make Pillow's settings for the whole process safe for several threads that decode at once; open HEIF files.

HEIF (HEIC, from telephones) is read with libheif, if the extra ``heif`` is installed. It is an extra because
its HEVC decoder is under the LGPL, and is the least hardened of the image libraries.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import threading
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from PIL import AvifImagePlugin, Image, ImageFile

from shardmill.infra.codecs.formats import ImageRejected
from shardmill.infra.codecs.structure.boxes import items_are_text

# Jobs decode one image a thread.
AvifImagePlugin.DEFAULT_MAX_THREADS = 1


class _Tolerance(threading.local):
    """A value of Pillow's LOAD_TRUNCATED_IMAGES for each thread. Pillow only asks whether it is true."""

    on = False

    def __bool__(self) -> bool:
        return self.on


_tolerance = _Tolerance()
# If other code in the process sets this to True or False, truncated files can no longer be salvaged.
ImageFile.LOAD_TRUNCATED_IMAGES = cast(bool, _tolerance)


@contextlib.contextmanager
def truncation_tolerated() -> Iterator[None]:
    """Let Pillow decode a part of files that end early, in this thread."""
    _tolerance.on = True
    try:
        yield
    finally:
        _tolerance.on = False


class _Silence:
    """Ignore the warnings of the process as long as any thread asks for it.

    ``warnings.catch_warnings`` alone restores the filters that it found. If two threads overlap, the second
    one would restore the silence of the first, for ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._caught = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._wanted == 0:
                self._caught.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
            self._wanted += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                self._caught.close()


# Nobody needs Pillow's remarks about odd metadata: sound pixels make an image sound.
no_warnings = _Silence()


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
