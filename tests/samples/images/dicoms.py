"""DICOM files, written by pydicom."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

# Stands in elements that name a patient, and in a private one.
SECRET = "SECRET"


def data_set(stored: npt.NDArray[Any], **elements: Any) -> Dataset:
    """Return a data set of a picture.

    Args:
        stored: integers [H, W], [frames, H, W] or [H, W, 3].
        elements: data elements by keyword, in place of those that follow from ``stored``; None: left out.
    """
    found = Dataset()
    found.file_meta = FileMetaDataset()
    found.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    color = stored.ndim == 3 and stored.shape[2] == 3
    size = stored.shape[:2] if color else stored.shape[-2:]
    bits = 8 * stored.dtype.itemsize
    given = {
        "SOPClassUID": CTImageStorage, "SOPInstanceUID": generate_uid(), "SeriesInstanceUID": "1.2.3",
        "PatientName": SECRET, "PatientID": f"{SECRET}1", "PatientBirthDate": "19700101",
        "Rows": size[0], "Columns": size[1], "SamplesPerPixel": 3 if color else 1,
        "PhotometricInterpretation": "RGB" if color else "MONOCHROME2", "BitsAllocated": bits,
        "BitsStored": bits, "HighBit": elements.get("BitsStored", bits) - 1,
        "PixelRepresentation": int(stored.dtype.kind == "i"), "PixelData": stored.tobytes(),
    }  # fmt: skip
    if color:
        given["PlanarConfiguration"] = 0
    elif stored.ndim == 3:
        given["NumberOfFrames"] = len(stored)
    for name, value in (given | elements).items():
        if value is not None:
            setattr(found, name, value)
    found.private_block(0x0041, SECRET, create=True).add_new(1, "LO", SECRET)
    return found


def written(found: Dataset) -> bytes:
    """Return the file of a data set."""
    sink = io.BytesIO()
    found.save_as(sink, enforce_file_format=True)
    return sink.getvalue()


def dicom(stored: npt.NDArray[Any], **elements: Any) -> bytes:
    """Return a file; the arguments are those of ``data_set``."""
    return written(data_set(stored, **elements))


def slice_of(series: int, number: int) -> npt.NDArray[np.uint16]:
    """Return a slice of a volume, 12 bits, [40, 48]."""
    down, across = np.mgrid[:40, :48]
    waves = np.sin(across / (3 + series) + number / 4) + np.cos(down / (4 + series % 5))
    return (1024 + 200 * waves).astype(np.uint16)
