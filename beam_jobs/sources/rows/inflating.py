"""Streams that inflate gzip and zlib data, and give everything in front of a damage."""

from __future__ import annotations

from typing import BinaryIO, Literal

from isal import isal_zlib

from shardmill.beam_jobs.sources.rows.unpacked import PackedDataBroken
from shardmill.infra.format.records import IsalError

_CHUNK_BYTES = 1 << 18
_WINDOW_BITS = {"gzip": 31, "zlib": 15}


class Inflated:
    """The start of inflated data. Members that follow each other are one stream.

    Args:
        stream: the compressed data.
        kind: how it is compressed.
    """

    def __init__(self, stream: BinaryIO, kind: Literal["gzip", "zlib"]) -> None:
        self._stream = stream
        self._bits = _WINDOW_BITS[kind]
        self._inflater = isal_zlib.decompressobj(wbits=self._bits)
        self._has_begun = False  # the current member
        self._input = b""
        self._ready = bytearray()
        self._damage: str | None = None
        self._has_ended = False

    def read(self, length: int = -1) -> bytes:
        """Return ``length`` bytes, or all; fewer only at the end or in front of a damage.

        Raises:
            PackedDataBroken: all in front of the damage was returned before.
        """
        while (length < 0 or len(self._ready) < length) and not self._has_ended and self._damage is None:
            self._fill()
        if self._damage is not None and not self._ready and length:
            raise PackedDataBroken(self._damage)
        taken = len(self._ready) if length < 0 else length
        data = bytes(self._ready[:taken])
        del self._ready[:taken]
        return data

    def _fill(self) -> None:
        """Inflate the next piece."""
        if not self._input:
            self._input = self._stream.read(_CHUNK_BYTES)
            if not self._input:
                self._has_ended = True
                if self._has_begun:
                    self._damage = "the compressed data ends early"
                return
        try:
            self._has_begun = True
            self._ready += self._inflater.decompress(self._input)
        except IsalError as error:
            self._damage = f"the compressed data is damaged: {error}"
            return
        self._input = b""
        if self._inflater.eof:
            # Zeros after a member are padding.
            self._input = self._inflater.unused_data.lstrip(b"\0")
            self._inflater = isal_zlib.decompressobj(wbits=self._bits)
            self._has_begun = False
