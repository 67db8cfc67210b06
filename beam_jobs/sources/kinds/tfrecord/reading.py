"""Single records of a TFRecord file, by their offset in what it unpacks to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from typing import BinaryIO

from shardmill.beam_jobs.config import RowsConfig
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.kinds.tfrecord.framing import Frames, compression_of, unpacked
from shardmill.beam_jobs.sources.rows.feature_map import image_of, recognised_image
from shardmill.beam_jobs.sources.rows.ranges import Ranges
from shardmill.beam_jobs.sources.rows.row_files import RowFile, RowFileBroken
from shardmill.beam_jobs.sources.rows.unpacked import open_unpacked
from shardmill.infra.errors import CorruptDataError
from shardmill.infra.format.records import FRAME_BYTES, HEADER_BYTES, payload_length, unframe
from shardmill.infra.storage.filesystem import Storage

_RECORDS_TRIED = 16  # to recognise the image
_SLACK_BYTES = 1024  # of a record beyond its image: the other features


class Records:
    """The records of one open TFRecord file.

    Args:
        file: the file.
        settings: names of features, and the compression.
        scratch: folder of the run, with unpacked copies; None outside of a run.

    Raises:
        RowFileBroken: it is no TFRecord file.
    """

    def __init__(self, file: RowFile, settings: RowsConfig, scratch: Storage | None) -> None:
        compression = compression_of(file, settings.compression)
        opens = partial(unpacked, file, compression)
        self._image = settings.image or _recognised(opens)
        self._ranges: Ranges = (
            file.ranges() if compression == "none" else open_unpacked(file, compression, opens, scratch)
        )

    def read(self, file: FileRef, position: int) -> bytes:
        """Return the image of a record.

        Raises:
            SourceFault: the record has none. RowFileBroken: the file is damaged there.
        """
        data = self._ranges.read_at(FRAME_BYTES + file.size_bytes + _SLACK_BYTES, position)
        try:
            length = FRAME_BYTES + payload_length(data[:HEADER_BYTES])
            if length > len(data):
                data += self._ranges.read_at(length - len(data), position + len(data))
            return image_of(unframe(memoryview(data)[:length]), self._image)
        except CorruptDataError as error:
            raise RowFileBroken(f"at byte {position:,}: {error.message}") from error

    def close(self) -> None:
        """Close the file."""
        self._ranges.close()


def _recognised(opens: Callable[[], AbstractContextManager[BinaryIO]]) -> str:
    """Return the name of the feature with the image, as the first records have it.

    Raises:
        RowFileBroken: none of them has an image.
    """
    with opens() as stream:
        for frame in islice(Frames(stream), _RECORDS_TRIED):
            images = recognised_image(frame.payload) if frame.fault is None else []
            if len(images) == 1:
                return images[0]
    raise RowFileBroken("none of its first records has an image: name the feature with source.rows.image")
