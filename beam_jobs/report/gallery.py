"""Pictures of what is not in the shards: thumbnails of what can still be shown, else a file's first bytes.

Such files were refused by the decoders or never met them, so this process only carries their bytes: a child
with limits of its own (``miniature.py``) decodes them. A file that kills it, or holds it up, is shown as a
placeholder, and the next child goes on with the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from markupsafe import Markup

from beam_jobs.report.pictures import data_uri
from beam_jobs.report.rows import LostInput, ReasonRow
from beam_jobs.sources.folder import SourceFault, SourceFolder
from infra.codecs import sniff
from infra.errors import StorageError

SHOWN_AT_MOST = 48
SHOWN_PER_REASON = 12
READ_AT_MOST_BYTES = 24 << 20
SECONDS_AT_MOST = 20.0  # for the whole gallery; what is left then stays without pictures
SECONDS_AN_IMAGE = 6.0
HEAD_BYTES = 16
# Reasons that say there is nothing to read.
_NOTHING_THERE = frozenset({"empty", "vanished", "unreadable", "broken_link"})
_ANSWER_AT_MOST_BYTES = 1 << 20
_MINIATURE = Path(__file__).with_name("miniature.py")


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One input of the gallery.

    Attributes:
        picture: a data URI, or None where nothing can be shown.
        format: what the content is, or "" where it is no known image.
        size: (width, height) as its header says, or None.
        head: its first bytes as hexadecimal digits, and as text where a byte is a letter.
        note: why nothing of it is known, or "".
    """

    found: LostInput
    picture: Markup | None = None
    format: str = ""
    size: tuple[int, int] | None = None
    head: tuple[str, str] = ("", "")
    note: str = ""


def exhibit(source: str, rows: Sequence[ReasonRow]) -> dict[str, list[Exhibit]]:
    """Reason -> the first inputs with it, with pictures where there are any.

    Args:
        source: where the inputs lie, as the manifest names it.
        rows: the reasons; what is shown is spread over them.
    """
    gallery: dict[str, list[Exhibit]] = {}
    folder = SourceFolder(source)
    ends = time.monotonic() + SECONDS_AT_MOST
    with Miniatures(ends) as miniatures:
        for reason, found in _spread(rows):
            gallery.setdefault(reason, []).append(_exhibit(folder, miniatures, reason, found))
    return gallery


def exhibit_inputs(source: str, inputs: Sequence[LostInput]) -> dict[str, Exhibit]:
    """URI -> the input as it is shown: of images that are whole, but in no shard."""
    folder = SourceFolder(source)
    with Miniatures(time.monotonic() + SECONDS_AT_MOST) as miniatures:
        return {found.uri: _exhibit(folder, miniatures, "", found) for found in inputs[:SHOWN_AT_MOST]}


def _spread(rows: Sequence[ReasonRow]) -> Iterator[tuple[str, LostInput]]:
    """One of each reason, then a second of each, and so on."""
    turns = (
        (row.reason, row.examples[turn])
        for turn in range(SHOWN_PER_REASON)
        for row in rows
        if turn < len(row.examples)
    )
    return (pair for _, pair in zip(range(SHOWN_AT_MOST), turns, strict=False))


def _exhibit(folder: SourceFolder, miniatures: Miniatures, reason: str, found: LostInput) -> Exhibit:
    if reason in _NOTHING_THERE:
        return Exhibit(found)
    if found.size_bytes > READ_AT_MOST_BYTES:
        return Exhibit(found, note="too large to look into")
    try:
        data = folder.read(found.uri, found.size_bytes, found.mtime_ns)
    except SourceFault as fault:
        return Exhibit(found, note=f"now: {fault.message}")
    except StorageError as error:
        return Exhibit(found, note=error.message)
    header, jpeg = miniatures.of(data)
    size = (int(header["width"]), int(header["height"])) if "width" in header else None
    return Exhibit(
        found,
        picture=data_uri(jpeg) if jpeg else None,
        format=str(header.get("format") or sniff(data) or "").upper(),
        size=size,
        head=_head(data),
        note="" if miniatures.alive else "the decoder did not survive it",
    )


def _head(data: bytes) -> tuple[str, str]:
    head = data[:HEAD_BYTES]
    return head.hex(" "), "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in head)


class Miniatures:
    """The child that makes thumbnails, started when first needed and again after each death.

    Args:
        ends: time (``time.monotonic``) after which it is asked nothing more.
    """

    def __init__(self, ends: float) -> None:
        self._ends = ends
        self._child: subprocess.Popen[bytes] | None = None
        self.alive = True  # whether it survived what it was asked last

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def of(self, data: bytes) -> tuple[dict[str, int | str], bytes]:
        """(format, width and height as far as known, a JPEG or nothing) of an image file."""
        self.alive = True
        until = min(self._ends, time.monotonic() + SECONDS_AN_IMAGE)
        if until <= time.monotonic():
            return {}, b""
        child = self._child = self._child or _start()
        try:
            _send(child, struct.pack("<Q", len(data)) + data, until)
            header: dict[str, int | str] = json.loads(_receive(child, until))
            return header, _receive(child, until)
        except (OSError, EOFError, ValueError):
            self.alive = False
            self._stop()
            return {}, b""

    def _stop(self) -> None:
        if self._child is not None:
            self._child.kill()
            with contextlib.suppress(OSError):  # what it was not sent any more
                self._child.communicate()
            self._child = None


def _start() -> subprocess.Popen[bytes]:
    # -P: the folder of the program holds modules of ours, whose names are no business of the libraries.
    child = subprocess.Popen(
        [sys.executable, "-P", str(_MINIATURE)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
    )
    assert child.stdin is not None
    os.set_blocking(child.stdin.fileno(), False)
    return child


def _send(child: subprocess.Popen[bytes], data: bytes, until: float) -> None:
    """Write all, or raise (OSError) where the child ends or takes too long."""
    assert child.stdin is not None
    rest = memoryview(data)
    while rest:
        _wait(child.stdin.fileno(), select.POLLOUT, until)
        rest = rest[os.write(child.stdin.fileno(), rest) :]


def _receive(child: subprocess.Popen[bytes], until: float) -> bytes:
    """One answer, or raise (OSError, EOFError) where the child ends or takes too long."""
    assert child.stdout is not None
    (length,) = struct.unpack("<Q", _read(child.stdout.fileno(), 8, until))
    if length > _ANSWER_AT_MOST_BYTES:
        raise EOFError  # nothing that our own program says
    return _read(child.stdout.fileno(), length, until)


def _read(descriptor: int, length: int, until: float) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        _wait(descriptor, select.POLLIN, until)
        part = os.read(descriptor, length - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def _wait(descriptor: int, ready: int, until: float) -> None:
    """Return when the descriptor is ready.

    Raises:
        TimeoutError: it is not by then.
    """
    poll = select.poll()
    poll.register(descriptor, ready)
    if not poll.poll(max(0.0, 1000 * (until - time.monotonic()))):
        raise TimeoutError
