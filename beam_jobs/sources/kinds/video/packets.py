"""What a video file says of its frames before any is decoded: their time stamps, and where it ends early."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from shardmill.beam_jobs.reasons import BROKEN_CONTAINER, NO_IMAGE
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.extras import lacking

_BUFFER_BYTES = 1 << 20
# Formats without references to other files, and no protocols that would follow one.
_FORMATS = "mov,matroska,avi,mpegts,mpeg,flv,asf,ogg,mxf"
_ATTACHED_PICTURE = 0x400  # AV_DISPOSITION_ATTACHED_PIC
_DEFAULT = 0x1
_COUNTED_CODECS = ("h264", "hevc")  # in AVI their time stamps follow the order of decoding


def library() -> Any:
    """Return PyAV.

    Raises:
        EnvironmentFault: it is not installed.
    """
    try:
        import av
    except ModuleNotFoundError as error:
        raise lacking("the source kind video", "av (PyAV)", "video") from error
    av.logging.set_level(None)
    return av


@contextmanager
def opened(file: io.RawIOBase) -> Iterator[tuple[Any, Any]]:
    """Open a video: its container and its stream of frames, of PyAV.

    Raises:
        SourceFault: it is damaged, or holds no video.
    """
    av = library()
    if not file.seek(0, io.SEEK_END):
        raise SourceFault("empty", "the file has no content")
    file.seek(0)
    options = {"format_whitelist": _FORMATS, "protocol_whitelist": ""}
    try:
        container = av.open(
            file, container_options=options, buffer_size=_BUFFER_BYTES, metadata_errors="replace"
        )
    except (av.error.FFmpegError, OSError) as error:
        why = f"it is damaged, or of another format than {_FORMATS.replace(',', ', ')}: {_words(error)}"
        raise SourceFault(BROKEN_CONTAINER, why) from error
    with container:
        streams = _videos(container)
        if not streams:
            others = sorted({one.type for one in container.streams} - {"video"})
            raise SourceFault(NO_IMAGE, f"it holds no video, only {', '.join(others) or 'a cover'}")
        stream = next((one for one in streams if int(one.disposition) & _DEFAULT), streams[0])
        if stream.codec_context is None:
            raise SourceFault("unsupported", "no decoder is known for its video")
        yield container, stream


def _videos(container: Any) -> list[Any]:
    """Return the streams of videos, without covers."""
    return [one for one in container.streams.video if not int(one.disposition) & _ATTACHED_PICTURE]


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


# Added to the time stamps of a damaged video: seeking in it is not reliable.
FROM_BEGINNING = -(1 << 62)


def is_counted(container: Any, stream: Any) -> bool:
    """Tell whether frames are found by counting from the first one, since their time stamps say no order."""
    return container.format.name == "avi" and stream.codec_context.name in _COUNTED_CODECS


@dataclass(frozen=True)
class Packets:
    """The frames of a video, in the order in which they are shown.

    Attributes:
        stamps: time stamp of each, in units of ``unit``; increasing.
        positions: by which the reader finds each: its time stamp, with FROM_BEGINNING if all frames before it
            must be decoded, or its number.
        unit: seconds of a unit of time.
        height, width: of the video (pixels), as its header says.
        num_streams: number of videos in the file; the default one, or the first, is read.
        damage: why the rest of the video is lost; None if it is whole.
    """

    stamps: list[int]
    positions: list[int]
    unit: Fraction
    height: int
    width: int
    num_streams: int
    damage: str | None

    def seconds(self, number: int) -> Fraction:
        """Return the time of a frame (seconds from the first one)."""
        return (self.stamps[number] - self.stamps[0]) * self.unit


def read_packets(file: io.RawIOBase) -> Packets:
    """Read the time stamps of all frames of a video.

    Raises:
        SourceFault: it is damaged from the beginning, holds no video, or has no time stamps.
    """
    av = library()
    with opened(file) as (container, stream):
        stamps, count, damage, without = set[int](), 0, None, 0
        ends = dict.fromkeys(container.streams, 0)
        until: int | None = None  # no frame with an earlier time stamp comes behind
        try:
            for packet in container.demux():
                stamp = packet.pts if packet.pts is not None else packet.dts
                if stamp is None and not packet.size:
                    continue  # flushes the decoder
                if packet.is_corrupt and packet.stream is stream:
                    damage, until = "it ends within a frame", packet.dts
                    break
                if stamp is not None:
                    ends[packet.stream] = max(ends[packet.stream], stamp + (packet.duration or 0))
                if packet.stream is not stream:
                    continue
                if until is not None and packet.dts is not None and packet.dts < until:
                    damage = "its time stamps go back"
                    break
                count, until = count + 1, packet.dts
                if stamp is None:
                    without += 1
                elif packet.size and not packet.is_discard and _is_shown(stream, packet):
                    stamps.add(stamp)
        except av.error.FFmpegError as error:
            damage = f"it is damaged: {_words(error)}"
        if without:
            raise SourceFault(
                "unsupported",
                f"{without:,} of its frames have no time stamps; put it into an MP4 or MKV file",
            )
        ordered = sorted(stamps)
        if not ordered:
            raise SourceFault(NO_IMAGE, f"its video has no frame{'; ' + damage if damage else ''}")
        lost, is_short = _lost(container, stream, ordered, count, _latest(ends))
        if damage is None and is_short:
            damage = "it ends before the time that its header says"
        if damage is not None:
            # One before a later frame may be among the lost ones, so the number of that frame is not known.
            kept = ordered if until is None else [stamp for stamp in ordered if stamp <= until] or ordered[:1]
            lost += len(ordered) - len(kept) if lost else 0
            ordered = kept
            further = f"{lost - 1:,} further" if lost > 1 else "all further"
            damage = f"{damage}: this and {further} frames are lost"
        positions = ordered
        if is_counted(container, stream):
            positions = list(range(len(ordered)))
        elif damage is not None or (container.format.name == "avi" and stream.frames != count):
            positions = [FROM_BEGINNING + stamp for stamp in ordered]
        return Packets(
            ordered,
            positions,
            stream.time_base,
            stream.codec_context.height,
            stream.codec_context.width,
            len(_videos(container)),
            damage,
        )


def _latest(ends: dict[Any, int]) -> Fraction:
    """Return the time at which the longest stream ends (seconds)."""
    return max(Fraction(end) * (stream.time_base or 0) for stream, end in ends.items())


def _is_shown(stream: Any, packet: Any) -> bool:
    """Tell whether a packet is a frame that is shown: VP8 has hidden ones, and says so in its first byte."""
    return stream.codec_context.name != "vp8" or bool(bytes(packet)[0] & 0x10)


def _lost(container: Any, stream: Any, stamps: list[int], count: int, ends: Fraction) -> tuple[int, bool]:
    """Return how many frames the header promises beyond those that are there, and whether time is missing."""
    rate = Fraction(stream.average_rate or stream.guessed_rate or 25)
    # The last frame may be shown as long as any other.
    longest = max((after - before for before, after in pairwise(stamps)), default=0) * stream.time_base
    promised = max(stream.frames - count, 0)
    missing = Fraction(0)
    if stream.duration is not None and promised:
        missing = (stamps[0] + stream.duration - stamps[-1]) * stream.time_base - 1 / rate
    elif stream.duration is None and container.duration is not None:
        missing = Fraction(container.duration, 1_000_000) - max(ends, stamps[-1] * stream.time_base)
    is_short = missing > Fraction(3, 2) * max(1 / rate, longest)
    return (promised or round(missing * rate), True) if is_short else (0, False)
