"""The pages of a TIFF and the frames of a DICOM file, each as a file of its own."""

from __future__ import annotations

import importlib
import io
from functools import cached_property
from typing import Any, Final

from shardmill.infra.codecs.formats import HEAD_BYTES, ImageRejected, sniff
from shardmill.infra.codecs.pages.tiff_pages import picture_pages, tiff_page
from shardmill.infra.extras import install

PAGE: Final = "page"


class InMemory(io.BytesIO):
    """A file in memory, whose pages or frames become files of their own.

    Args:
        data: the file.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._data = data

    def read_at(self, length: int, offset: int) -> bytes:
        """Return ``length`` bytes from ``offset``; fewer only if the file ends."""
        return self._data[offset : offset + length]

    @cached_property
    def _directories(self) -> list[int]:
        return picture_pages(self.read_at)

    @cached_property
    def _frames(self) -> Any:
        return importlib.import_module(f"{__name__}.dicom_frames").DicomFrames(self._data)

    def page(self, number: int) -> bytes:
        """Return a page of a TIFF or a frame of a DICOM file as a file; the same bytes in each run.

        Args:
            number: from 0; among the pages of a TIFF that are neither thumbnails nor masks.

        Raises:
            ImageRejected: the file is damaged, or has no such page.
        """
        try:
            if sniff(self._data) == "tiff":
                return tiff_page(self._data, self._directories, number)
            frame: bytes = self._frames.frame(number)
            return frame
        except ModuleNotFoundError as error:
            raise ImageRejected("unsupported", f"a DICOM image; to read these, {install('dicom')}") from error


def page_name(name: str, number: int) -> str:
    """Return the name of a page, by its number from 0: ``scan.tif#page=0000002`` is the third."""
    return f"{name}#{PAGE}={number:07}"


def count_pages(file: Any) -> tuple[str | None, int]:
    """Return the format of a file and its number of pages or frames; 1 for other formats than TIFF and DICOM.

    Args:
        file: open at its beginning, with ``read_at``, as that of ``InMemory``.

    Raises:
        ImageRejected: its directories are damaged, or its library is not installed.
    """
    found = sniff(file.read_at(HEAD_BYTES, 0))
    if found == "tiff":
        return found, len(picture_pages(file.read_at)) or 1
    if found != "dicom":
        return found, 1
    from shardmill.infra.codecs.pages.dicom_frames import count_frames

    return found, count_frames(file)
