"""Frames of videos as image files, decoded one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from shardmill.beam_jobs.reasons import BROKEN_CONTAINER, SAME_SCENE, UNREADABLE
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.containers import Containers
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kinds.arrays.reading import stored_png
from shardmill.beam_jobs.sources.kinds.video.packets import (
    FROM_BEGINNING,
    is_counted,
    library,
    opened,
    read_packets,
)
from shardmill.beam_jobs.sources.rows.listing import row_of
from shardmill.infra.codecs.color.video import rgb_of
from shardmill.infra.codecs.formats import ImageRejected, check_pixels

_Pixels = npt.NDArray[np.uint8]

_AHEAD_SECONDS = 5  # a frame that is further away is looked up by its key frame, not decoded towards
_MOST_DELAYED = 64  # packets that a decoder holds back


class FrameReader:
    """Reads frames of videos, each as a PNG file of its pixels. The last video stays open.

    Frames of a video that are read in their order are decoded once.

    Args:
        folder: the source.
        max_pixels: most pixels of a frame.
        least_change: read only frames that differ at least so much from the one before (0 to 1); None: all.
    """

    decodes = True

    def __init__(self, folder: SourceFolder, max_pixels: int, least_change: float | None) -> None:
        self._folder, self._max_pixels, self._least_change = folder, max_pixels, least_change
        self._containers = Containers(folder)
        self._of: tuple[str, int] | None = None
        self._video: Video | None = None
        self._positions: list[int] = []
        self._last: tuple[int, _Pixels] | None = None  # position, and pixels of the frame read last

    def __reduce__(self) -> tuple[type[FrameReader], tuple[SourceFolder, int, float | None]]:
        return FrameReader, (self._folder, self._max_pixels, self._least_change)

    def read(self, file: FileRef) -> bytes:
        """Read a frame, if its video has not changed since it was listed.

        Raises:
            SourceFault: it is gone, changed or unreadable, or begins no scene. StorageError: this machine is
                at fault.
        """
        number = row_of(file.uri)
        if number is None:
            raise SourceFault(UNREADABLE, "it names no frame of a video")
        if file.container is None:
            file = file._replace(container=number[0])
        container = self._containers.of(file) if file.mtime_ns else self._folder.open_container(number[0])
        if self._of != (container.uri, file.mtime_ns):
            self.close()
            self._positions = []
            if file.position is None or self._least_change is not None:
                self._positions = read_packets(container).positions
            self._video = Video(container)
            self._of = container.uri, file.mtime_ns
        if file.position is None:
            if number[2] >= len(self._positions):
                raise SourceFault(UNREADABLE, "its video has no such frame now")
            file = file._replace(position=self._positions[number[2]])
        try:
            return stored_png(self._frame(file.position or 0, number[2]))
        except ImageRejected as rejected:
            raise SourceFault(rejected.reason, rejected.message) from rejected

    def _frame(self, position: int, number: int) -> _Pixels:
        before = None
        if self._least_change is not None and number:
            before = self._pixels_before(self._positions[number - 1])
        pixels = self._pixels(position)
        if before is None or self._least_change is None or before.shape != pixels.shape:
            return pixels
        change = cv2.norm(before, pixels, cv2.NORM_L1) / (255 * pixels.size)
        if change < self._least_change:
            raise SourceFault(SAME_SCENE, f"it differs from the frame before by {change:.3f} of the range")
        return pixels

    def _pixels_before(self, position: int) -> _Pixels | None:
        """Return the pixels of the frame before; None if it is lost."""
        try:
            return self._pixels(position)
        except (SourceFault, ImageRejected):
            return None

    def _pixels(self, position: int) -> _Pixels:
        if self._last is not None and self._last[0] == position:
            return self._last[1]
        assert self._video is not None
        frame = self._video.frame(position)
        check_pixels(frame.height, frame.width, self._max_pixels)
        pixels = rgb_of(frame)
        if self._least_change is not None:
            self._last = position, pixels
        return pixels

    def close(self) -> None:
        """Close the video."""
        if self._video is not None:
            self._video.close()
        self._video = self._of = self._last = None


class Video:
    """The frames of an open video, each by its position: see ``Packets``.

    Args:
        file: open at its beginning.

    Raises:
        SourceFault: it is damaged from the beginning, or holds no video.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._stack = ExitStack()
        self._has_near_keys = True  # so a seek ahead saves decoding
        self._is_sequential = False
        self._begin()

    def _begin(self) -> None:
        """Open the file, and stand before its first frame."""
        self.close()
        self._container, self._stream = self._stack.enter_context(opened(self._file))
        for other in self._container.streams:
            if other is not self._stream:
                other.discard = library().stream.Discard.all
        decoder = self._stream.codec_context
        decoder.thread_count = 1  # the workers are processes
        decoder.flags |= library().codec.context.Flags.bitexact
        decoder.options = decoder.options | {"idct": "simple"}  # the same on every processor
        self._is_counted = is_counted(self._container, self._stream)
        self._is_sequential = self._is_sequential or self._is_counted
        self._count = 0
        self._stand_before(self._container.demux(self._stream))

    def _stand_before(self, packets: Iterator[Any]) -> None:
        self._sent: deque[tuple[int | None, bool]] = deque(maxlen=_MOST_DELAYED)
        self._suspect = set[int | None]()
        self._is_damaged = False
        self._whole_from: int | None = None  # time stamp of the key frame behind the damage
        self._frames = self._decoded(packets)
        self._held: tuple[int, Any | None] | None = None
        self._at: int | None = None

    def close(self) -> None:
        """Close the video; its file stays open."""
        self._stack.close()

    def frame(self, position: int) -> Any:
        """Return a frame: an ``av.VideoFrame``.

        Raises:
            SourceFault: it is damaged, or refers to a frame that is.
        """
        if position < FROM_BEGINNING // 2:
            position -= FROM_BEGINNING
            self._is_sequential = True
        is_behind = self._at is None or position < self._at or (position == self._at and self._held is None)
        if is_behind or self._is_far(position):
            self._go_to(position)
        frame = self._next(position)
        if frame is None and not self._is_sequential:
            # Some key frames refer to earlier frames, so the frame may be whole.
            self._is_sequential = True
            self._begin()
            frame = self._next(position)
        if frame is None:
            raise SourceFault(BROKEN_CONTAINER, "the frame, or one that it is made from, is damaged")
        return frame

    def _next(self, position: int) -> Any | None:
        """Return a frame that comes behind this place; None if it does not come, or is damaged."""
        while (found := self._held or next(self._frames, None)) is not None:
            self._held = None
            self._at = found[0]
            if found[0] >= position:
                self._held = found
                return found[1] if found[0] == position else None
        return None

    def _is_far(self, position: int) -> bool:
        if self._is_sequential or self._at is None or not self._has_near_keys:
            return False
        return bool((position - self._at) * self._stream.time_base > _AHEAD_SECONDS)

    def _go_to(self, position: int) -> None:
        """Stand before the last key frame that is not behind a frame."""
        back = 0
        begins = self._stream.start_time or 0
        while not self._is_sequential and position - back > begins:
            try:
                self._container.seek(position - back, stream=self._stream)
                packets = self._container.demux(self._stream)
                first = next(packets, None)
            except library().error.FFmpegError:
                break
            if first is None or first.pts is None:
                break
            if first.is_keyframe and first.pts <= position:
                self._has_near_keys = self._at is None or not first.pts <= self._at <= position
                self._stand_before(_with_first(first, packets))
                return
            back = max(2 * back, int(1 / self._stream.time_base), 1)
        self._begin()

    def _decoded(self, packets: Iterator[Any]) -> Iterator[tuple[int, Any | None]]:
        """Yield position and frame; no frame where it is damaged, or depends on damage before it."""
        error = library().error.FFmpegError
        try:
            for packet in packets:
                if packet.is_corrupt:
                    break
                self._send(packet)
                try:
                    frames = packet.decode()
                except error:
                    self._suspect.add(packet.pts)
                    self._is_damaged = True
                    continue
                yield from self._checked(frames)
        except error:
            pass  # the listing says that the rest is lost
        try:
            yield from self._checked(self._stream.codec_context.decode(None))
        except error:
            return

    def _send(self, packet: Any) -> None:
        """Note which frames are made from a damaged one: those shown before the next key frame."""
        if not packet.size:
            return
        if self._is_damaged and packet.is_keyframe:
            self._is_damaged, self._whole_from = False, packet.pts
        self._sent.append((packet.pts, packet.is_keyframe))
        if self._is_damaged or (self._whole_from is not None and packet.pts < self._whole_from):
            self._suspect.add(packet.pts)

    def _checked(self, frames: list[Any]) -> Iterator[tuple[int, Any | None]]:
        for frame in frames:
            if frame.is_corrupt:
                self._suspect_behind(frame.pts)
            position, self._count = self._count if self._is_counted else frame.pts, self._count + 1
            # Behind a lost frame the count is wrong.
            is_whole = not self._suspect if self._is_counted else frame.pts not in self._suspect
            if position is not None:
                yield position, frame if is_whole else None

    def _suspect_behind(self, stamp: int | None) -> None:
        """Suspect a frame and all that were sent behind it, until a key frame."""
        is_behind = False
        for sent, is_key in self._sent:
            is_behind = is_behind and not is_key
            if sent == stamp:
                is_behind = True
            if is_behind:
                self._suspect.add(sent)
        self._suspect.add(stamp)
        self._is_damaged = self._is_damaged or is_behind


def _with_first(first: Any, packets: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from packets
