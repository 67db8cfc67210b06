"""Contents of inputs: inputs with equal contents become one record.

The content of an image is the SHA-256 of its bytes. Where images have masks it is the SHA-256 of both
digests, so an image whose mask was changed is decoded again.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa

from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.format.known_features import MASK_SHA256

_COLUMN = PREFIX + MASK_SHA256


def content_of(sha256: bytes, mask_sha256: bytes | None = None) -> bytes:
    """Return the content of an image: 32 bytes.

    Args:
        sha256: SHA-256 of the image.
        mask_sha256: SHA-256 of its mask; None if it has none.
    """
    return sha256 if mask_sha256 is None else hashlib.sha256(sha256 + mask_sha256).digest()


def contents_of(table: pa.Table) -> list[bytes]:
    """Return the contents of the rows of facts or of records that have a digest."""
    digests = table["sha256"].to_pylist()
    if _COLUMN not in table.schema.names:
        return [sha256 for sha256 in digests if sha256 is not None]
    masks = table[_COLUMN].to_pylist()
    return [
        content_of(sha256, None if mask is None else bytes.fromhex(mask))
        for sha256, mask in zip(digests, masks, strict=True)
        if sha256 is not None
    ]
