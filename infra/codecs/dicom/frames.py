"""Decompress a frame with the library that is meant for its transfer syntax, whatever else is installed.

imagecodecs becomes a decoder of pydicom (its guide "Decoding plugins"), under the names that it looks for.
"""

from __future__ import annotations

from typing import Any

import imagecodecs
from pydicom import uid
from pydicom.pixels import get_decoder, pixel_array

from shardmill.infra.codecs.formats import ImageRejected

_LABEL = "imagecodecs"
_JPEG = (uid.JPEGExtended12Bit, uid.JPEGLossless, uid.JPEGLosslessSV1)
_JPEG_LS = (uid.JPEGLSLossless, uid.JPEGLSNearLossless)
_JPEG_2000 = (uid.JPEG2000Lossless, uid.JPEG2000, uid.HTJ2KLossless, uid.HTJ2KLosslessRPCL, uid.HTJ2K)
_DECODERS = {
    **dict.fromkeys(_JPEG, imagecodecs.jpeg_decode),
    **dict.fromkeys(_JPEG_LS, imagecodecs.jpegls_decode),
    **dict.fromkeys(_JPEG_2000, imagecodecs.jpeg2k_decode),
}
DECODER_DEPENDENCIES = dict.fromkeys(_DECODERS, (_LABEL,))
_PLUGINS = {uid.JPEGBaseline8Bit: "pillow", uid.RLELossless: "pydicom", **dict.fromkeys(_DECODERS, _LABEL)}


def is_available(syntax: str) -> bool:
    """Tell whether a transfer syntax is decompressed here."""
    return syntax in _DECODERS


def decode_frame(data: bytes, runner: Any) -> bytes:
    """Return the samples of a frame, pixel by pixel, in the byte order of this machine.

    Args:
        data: the compressed frame.
        runner: ``pydicom.pixels.decoders.base.DecodeRunner``, which is told the form of the samples.
    """
    samples = _DECODERS[runner.transfer_syntax](data)
    runner.set_option("planar_configuration", 0)
    runner.set_option("bits_allocated", 8 * samples.dtype.itemsize)
    if runner.transfer_syntax in _JPEG_2000 and runner.samples_per_pixel == 3:
        runner.set_option(
            "photometric_interpretation", "RGB"
        )  # the codec has undone its transform of colours
    return bytes(samples.tobytes())


def stored_values(file: Any, number: int) -> Any:
    """Return the stored values of a frame, [H, W] or [H, W, 3] in RGB.

    Args:
        file: a data set of pydicom with pixels.
        number: of the frame, from 0.

    Raises:
        ImageRejected: its compression is not supported. pydicom raises anything for a damaged file.
    """
    syntax = file.file_meta.TransferSyntaxUID
    if not syntax.is_encapsulated:
        return pixel_array(file, index=number)
    plugin = _PLUGINS.get(syntax)
    if plugin is None:
        raise ImageRejected("unsupported", f"a DICOM file compressed as {syntax.name} ({syntax})")
    if plugin == _LABEL and _LABEL not in get_decoder(syntax).available_plugins:
        get_decoder(syntax).add_plugin(_LABEL, (__name__, decode_frame.__name__))
    return pixel_array(file, index=number, decoding_plugin=plugin)
