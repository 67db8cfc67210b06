"""Small videos, written by PyAV. Each picture shows its number as bits."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import av
import numpy as np
import numpy.typing as npt

_BITS = 8
WIDTH, HEIGHT = 64, 48


def picture(number: int, height: int = HEIGHT, width: int = WIDTH) -> npt.NDArray[np.uint8]:
    """Return a picture of a number below 256: uint8 [H, W, 3], a bar for each bit, light if it is set."""
    bits = (number >> np.arange(_BITS)) & 1
    bars = np.repeat(60 + 140 * bits, width // _BITS)
    bars = np.pad(bars, (0, width - len(bars)), "edge").astype(np.uint8)
    return np.broadcast_to(bars[None, :, None], (height, width, 3)).copy()


def number_of(pixels: npt.NDArray[np.uint8]) -> int:
    """Return the number that a picture shows, of the height and width that it was drawn with."""
    step = pixels.shape[1] // _BITS
    bars = pixels[pixels.shape[0] // 2, step // 2 :: step, 1][:_BITS]
    return int(((bars > 130) << np.arange(_BITS)).sum())


def video(  # noqa: PLR0913
    numbers: Sequence[int] = range(12),
    codec: str = "mpeg4",
    form: str = "mp4",
    *,
    rate: int = 10,
    stamps: Sequence[int] | None = None,
    size: tuple[int, int] = (HEIGHT, WIDTH),
    pixels: str = "yuv420p",
    options: dict[str, str] | None = None,
    rotation: int = 0,
    sound: bool = False,
    planes: Sequence[npt.NDArray[Any]] = (),
    tags: dict[str, int] | None = None,
) -> bytes:
    """Return a video.

    Args:
        numbers: of its pictures.
        codec, form: of FFmpeg.
        rate: frames a second.
        stamps: time stamp of each picture in units of 1 / rate; unset: 0, 1, 2, ...
        size: height and width.
        pixels: format of the samples.
        options: of the encoder.
        rotation: of the display matrix (degrees).
        sound: whether there is a second of silence.
        planes: samples of each frame in place of its picture.
        tags: attributes of the encoder: colorspace, color_range, color_trc.
    """
    options_of_form = {"movflags": "faststart"} if form == "mp4" else {}  # it needs the name of a file
    with (
        NamedTemporaryFile() as file,
        av.open(file.name, "w", format=form, options=options_of_form) as out,
    ):
        stream: Any = out.add_stream(codec, rate=rate)
        stream.height, stream.width, stream.pix_fmt = *size, pixels
        stream.codec_context.time_base = Fraction(1, rate)
        stream.codec_context.options = {"g": "5", **(options or {})}
        for name, value in (tags or {}).items():
            setattr(stream.codec_context, name, value)
        if rotation:
            stream.set_display_rotation(rotation)
        track: Any = out.add_stream("aac" if form != "webm" else "libopus", rate=48_000) if sound else None
        for at, number in enumerate(numbers):
            frame = _frame(picture(number, *size), pixels, planes)
            frame.pts, frame.time_base = at if stamps is None else stamps[at], Fraction(1, rate)
            for name, value in (tags or {}).items():
                setattr(frame, name, value)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
        if track is not None:
            _add_sound(out, track)
        out.close()
        return Path(file.name).read_bytes()


def sound() -> bytes:
    """Return an MP4 file with a second of silence and no video."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        _add_sound(out, out.add_stream("aac", rate=48_000))
    return file.getvalue()


def _frame(shown: npt.NDArray[np.uint8], pixels: str, planes: Sequence[npt.NDArray[Any]]) -> Any:
    if not planes:
        return av.VideoFrame.from_ndarray(shown, "rgb24").reformat(format=pixels)
    height, width = shown.shape[:2]
    frame = av.VideoFrame(width, height, pixels)
    for plane, samples in zip(frame.planes, planes, strict=True):
        lines = np.zeros((plane.height, plane.line_size // samples.itemsize), samples.dtype)
        lines[:, : samples.shape[1]] = samples
        plane.update(lines.tobytes())
    return frame


def _add_sound(out: Any, track: Any) -> None:
    frame = av.AudioFrame.from_ndarray(np.zeros((2, 48_000), np.float32), "fltp", "stereo")
    frame.sample_rate = 48_000
    out.mux(track.encode(frame))
    out.mux(track.encode(None))
