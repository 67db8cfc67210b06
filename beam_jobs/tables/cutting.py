"""Cut a sorted table of URIs into parts that stay the same when other rows change.

Whether a part ends after a row depends on the hash of the row's URI. A row that is added or removed changes
its own part, and sometimes the next one; all others stay as they are. No part is longer than twice the mean,
and only the last one may be shorter than a quarter of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import pyarrow as pa

_TEXTS_AT_A_TIME = 8192


def part_lengths(uris: pa.ChunkedArray | Iterable[pa.Array], mean: int) -> Iterator[int]:
    """Yield the number of rows of each part.

    Args:
        uris: string, sorted; may be read chunk by chunk.
        mean: number of rows of a part, on average.
    """
    shortest, longest = max(1, mean // 4), mean * 2
    # Past the shortest length each row ends its part with this probability, which gives about the mean.
    one_in = max(1, mean - shortest)
    length = 0
    for uri in _texts(uris.chunks if isinstance(uris, pa.ChunkedArray) else uris):
        length += 1
        at_cut = length >= shortest and _name_hash(uri) % one_in == 0
        if at_cut or length == longest:
            yield length
            length = 0
    if length:
        yield length


def _texts(chunks: Iterable[pa.Array]) -> Iterator[str]:
    """Yield the texts of a column, converting a few thousand at a time to Python values."""
    for chunk in chunks:
        for start in range(0, len(chunk), _TEXTS_AT_A_TIME):
            yield from map(str, chunk.slice(start, _TEXTS_AT_A_TIME).to_pylist())


def _name_hash(uri: str) -> int:
    # The CRC of numbered names has patterns in its remainders; multiplying (Knuth's constant) removes them.
    return (zlib.crc32(uri.encode()) * 2654435761 & 0xFFFFFFFF) >> 12
