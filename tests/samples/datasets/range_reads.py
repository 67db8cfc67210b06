"""Notes of the ranges that are read from shards."""

from __future__ import annotations

import pytest

from shardmill.infra.storage.range_reader import RangeReader


def note_reads(patch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """All range reads from now on, (path, offset, length) each; the list grows.

    Single records of uncompressed shards are read by compiled code in another way, and are not among them.
    """
    found: list[tuple[str, int, int]] = []
    plain = RangeReader.read

    def read(self: RangeReader, path: str, offset: int, length: int) -> bytes:
        found.append((path, offset, length))
        return plain(self, path, offset, length)

    patch.setattr(RangeReader, "read", read)
    return found
