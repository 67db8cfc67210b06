"""Digests of content: finished work is named by the digest of its inputs, and reused only under that name."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, BinaryIO

_CHUNK_BYTES = 1 << 20


def canonical_json(value: Any) -> bytes:
    """The one UTF-8 JSON text of a JSON-able value: sorted keys, no spaces.

    Lone surrogates (file names that are not UTF-8) are kept as escapes.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def digest_of(value: Any, length: int = 16) -> str:
    """First ``length`` hexadecimal digits of the SHA-256 of a JSON-able value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:length]


def sha256_hex(data: bytes | memoryview) -> str:
    """SHA-256 of ``data`` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def stream_sha256(stream: BinaryIO) -> str:
    """SHA-256 of the rest of ``stream``, read one MiB at a time."""
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def descriptor_sha256(descriptor: int) -> str:
    """SHA-256 of an open file, read one MiB at a time. Its position, which threads share, stays."""
    digest, offset = hashlib.sha256(), 0
    while chunk := os.pread(descriptor, _CHUNK_BYTES, offset):
        digest.update(chunk)
        offset += len(chunk)
    return digest.hexdigest()
