"""Write a frame of a DICOM file as a file of its own: its pixels, how they are shown, and the series."""

from __future__ import annotations

import io
import threading
from copy import copy
from typing import Any

import pydicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate, get_frame
from pydicom.pixels import pack_bits
from pydicom.pixels.utils import unpack_bits

from shardmill.infra.codecs.dicom.decode import groups_of_frame, own_errors
from shardmill.infra.codecs.formats import ImageRejected

_IMAGE_GROUP = 0x0028  # of elements that describe pixels
_KEPT = ("SOPClassUID", "SeriesInstanceUID")
_FLOATS = ("FloatPixelData", "DoubleFloatPixelData")


def count_frames(file: Any) -> int:
    """Return the number of frames of an open file.

    Raises:
        ImageRejected: it is damaged.
    """
    with own_errors():
        return int(pydicom.dcmread(file, True, specific_tags=["NumberOfFrames"]).get("NumberOfFrames") or 1)


class DicomFrames:
    """The frames of a file, which is parsed once. Threads may share it.

    Args:
        data: the file.

    Raises:
        ImageRejected: it is damaged.
    """

    def __init__(self, data: bytes) -> None:
        self._alone = threading.Lock()  # pydicom converts an element when it is first read
        with own_errors():
            self._file = pydicom.dcmread(io.BytesIO(data))

    def frame(self, number: int) -> bytes:
        """Return a frame, by its number from 0, as a file of its own.

        Raises:
            ImageRejected: the file is damaged, or has no such frame.
        """
        with self._alone, own_errors():
            return _written(self._file, number)


def _written(file: Any, number: int) -> bytes:
    frames = int(file.get("NumberOfFrames") or 1)
    if number >= frames:
        raise ImageRejected("corrupt", f"its frame {number} is no longer there: it has {frames}")
    syntax = file.file_meta.TransferSyntaxUID
    frame = Dataset()
    for element in file.group_dataset(_IMAGE_GROUP):
        frame.add(copy(element))  # its value may change below
    for name in _KEPT:
        if name in file:
            frame.add(copy(file[name]))
    frame.NumberOfFrames = "1"
    if parts := groups_of_frame(file, number):
        shared = Dataset()
        for name, part in parts.items():
            setattr(shared, name, [part])
        frame.SharedFunctionalGroupsSequence = [shared]
    held = next((name for name in ("PixelData", *_FLOATS) if name in file), None)
    if held is not None:
        frame.add(copy(file[held]))
        frame[held].value = _pixels(file, held, number, frames)
    frame.preamble = bytes(128)
    frame.file_meta = FileMetaDataset()
    frame.file_meta.TransferSyntaxUID = syntax
    sink = io.BytesIO()
    pydicom.dcmwrite(sink, frame, enforce_file_format=False)
    return sink.getvalue()


def _pixels(file: Any, held: str, number: int, frames: int) -> bytes:
    value: bytes = file[held].value
    if file.file_meta.TransferSyntaxUID.is_encapsulated:
        return bytes(encapsulate([get_frame(value, number, number_of_frames=frames)]))
    pixels = int(file.Rows) * int(file.Columns)
    if file.get("BitsAllocated") == 1:
        bits = unpack_bits(value)[number * pixels : (number + 1) * pixels]
        return bytes(pack_bits(bits))
    length = pixels * int(file.SamplesPerPixel) * int(file.get("BitsAllocated", 0)) // 8
    if held in _FLOATS:
        length = pixels * (4 if held == _FLOATS[0] else 8)
    elif file.PhotometricInterpretation == "YBR_FULL_422":  # two pixels share a sample of each chroma
        length = length * 2 // 3
    content = value[number * length : (number + 1) * length]
    if len(content) < length:
        raise ImageRejected("truncated", "the DICOM file ends early")
    return content + b"\x00" * (len(content) % 2)
