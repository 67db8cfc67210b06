"""Pictures of inputs that are in no shard: a thumbnail if one can be made, else the file's first bytes.

The decoders refused these files or never saw them, so each is decoded in a sandbox (``miniature``). A
file that crashes its sandbox, hangs or takes too much memory is shown as a placeholder.
"""

from __future__ import annotations

import io
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from PIL import Image, ImageFile, ImageOps

from shardmill.beam_jobs.execution.pool.sandbox import call_in_sandbox
from shardmill.beam_jobs.execution.task import Limits
from shardmill.beam_jobs.reasons import BROKEN_LINK, PATH_TOO_LONG, UNLISTED_FOLDER, UNREADABLE, VANISHED
from shardmill.beam_jobs.report.figures.inputs import LostInput, ReasonRow
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.kind_modules import Reader
from shardmill.infra.codecs import sniff
from shardmill.infra.errors import StorageError
from shardmill.infra.html.page import data_uri

SHOWN_AT_MOST = 48
SHOWN_PER_REASON = 12
READ_AT_MOST_BYTES = 24 << 20
SECONDS_AT_MOST = 20.0  # for the whole gallery; the remaining files get no picture
LIMITS = Limits(seconds=6.0, memory_bytes=1 << 30)  # for decoding one image
HEAD_BYTES = 16
# Reasons that mean there is nothing to read.
_NOTHING_THERE = frozenset({"empty", VANISHED, UNREADABLE, BROKEN_LINK, PATH_TOO_LONG, UNLISTED_FOLDER})


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One input of the gallery.

    Attributes:
        found: the input.
        picture: a data URI, or None if nothing can be shown.
        format: format of the content, or "" if it is no known image.
        size: (width, height) as its header says, or None.
        head: its first bytes as hexadecimal digits and as printable text.
        note: why nothing is known of it, or "".
    """

    found: LostInput
    picture: Markup | None = None
    format: str = ""
    size: tuple[int, int] | None = None
    head: tuple[str, str] = ("", "")
    note: str = ""


def exhibit(source: Reader, rows: Sequence[ReasonRow]) -> dict[str, list[Exhibit]]:
    """Show the first inputs of each reason.

    Args:
        source: reads the images of the source that the manifest names.
        rows: the reasons; the pictures are spread over them.

    Returns:
        Reason -> inputs.
    """
    gallery: dict[str, list[Exhibit]] = {}
    until = time.monotonic() + SECONDS_AT_MOST
    for reason, found in _spread(rows):
        gallery.setdefault(reason, []).append(_exhibit(source, until, reason, found))
    return gallery


def exhibit_inputs(source: Reader, inputs: Sequence[LostInput]) -> dict[str, Exhibit]:
    """Show inputs that are whole images but in no shard; returns URI -> input."""
    until = time.monotonic() + SECONDS_AT_MOST
    return {found.uri: _exhibit(source, until, "", found) for found in inputs[:SHOWN_AT_MOST]}


def _spread(rows: Sequence[ReasonRow]) -> Iterator[tuple[str, LostInput]]:
    """Yield one input of each reason, then a second of each, and so on."""
    turns = (
        (row.reason, row.examples[turn])
        for turn in range(SHOWN_PER_REASON)
        for row in rows
        if turn < len(row.examples)
    )
    return (pair for _, pair in zip(range(SHOWN_AT_MOST), turns, strict=False))


def _exhibit(source: Reader, until: float, reason: str, found: LostInput) -> Exhibit:
    if reason in _NOTHING_THERE or not found.size_bytes:  # or the row of a table that has no file
        return Exhibit(found)
    if found.size_bytes > READ_AT_MOST_BYTES:
        return Exhibit(found, note="too large to look into")
    try:
        data = source.read(FileRef(found.uri, found.size_bytes, found.mtime_ns))
    except SourceFault as fault:
        return Exhibit(found, note=f"now: {fault.message}")
    except StorageError as error:
        return Exhibit(found, note=error.message)
    header, jpeg, survived = _draw(data, until)
    size = (int(header["width"]), int(header["height"])) if "width" in header else None
    return Exhibit(
        found,
        picture=data_uri(jpeg) if jpeg else None,
        format=str(header.get("format") or sniff(data) or "").upper(),
        size=size,
        head=_head(data),
        note="" if survived else "the decoder did not survive it",
    )


def _draw(data: bytes, until: float) -> tuple[dict[str, Any], bytes, bool]:
    """Decode an image in a sandbox: (facts of its header, a JPEG or nothing, whether the decoder survived).

    Args:
        data: an image file.
        until: time (time.monotonic) after which nothing is decoded any more.
    """
    if time.monotonic() >= until:
        return {}, b"", True
    result = call_in_sandbox(miniature, data, LIMITS)
    if result.ending != "returned":
        return {}, b"", False
    header, jpeg = result.value
    return header, jpeg, True


def _head(data: bytes) -> tuple[str, str]:
    head = data[:HEAD_BYTES]
    return head.hex(" "), "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in head)


LONG_SIDE = 168  # pixels
QUALITY = 72
MAX_PIXELS = 16_000_000  # after the decoder has scaled down as far as it can


def miniature(data: bytes) -> tuple[dict[str, object], bytes]:
    """A thumbnail of an image that may be broken.

    Returns:
        Format, width and height as far as the header tells; and a JPEG, empty if nothing can be shown.
        The part that a truncated file lacks is grey or black.
    """
    warnings.simplefilter("ignore")
    Image.MAX_IMAGE_PIXELS = None  # judged after the draft
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    found: dict[str, object] = {}
    try:
        with Image.open(io.BytesIO(data)) as image:
            found = {"format": image.format or "", "width": image.width, "height": image.height}
            image.draft("RGB", (LONG_SIDE, LONG_SIDE))  # JPEG can leave out up to 63 of 64 pixels
            if image.width * image.height > MAX_PIXELS:
                return found, b""
            shown = _eight_bit(image)
            shown.thumbnail((LONG_SIDE, LONG_SIDE), Image.Resampling.BOX)
            shown = _opaque(ImageOps.exif_transpose(shown))
            sink = io.BytesIO()
            shown.save(sink, "JPEG", quality=QUALITY)
            return found, sink.getvalue()
    except Exception:  # noqa: BLE001  whatever is wrong with it: it is shown as a placeholder
        return found, b""


def _eight_bit(image: Image.Image) -> Image.Image:
    """RGB, or RGBA where there is something to see through."""
    if image.mode.startswith("I;16"):
        image = image.point(lambda value: value / 256).convert("L")
    return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _opaque(image: Image.Image) -> Image.Image:
    if image.mode != "RGBA":
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
