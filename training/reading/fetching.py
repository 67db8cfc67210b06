"""One shard from an object store, checked against its manifest; tried again where that may help."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Protocol

from infra.catalog import DatasetVersion
from infra.contract import Shard
from infra.errors import CorruptDataError, NotFoundError, ShardmillError, StorageError
from infra.locations import without_secrets
from training.reading.damage import restore

_CHUNK_BYTES = 4 << 20
# Waits before the second, third … attempt (seconds); the store's own client has tried each request thrice.
RETRY_SECONDS = (0.5, 2.0, 8.0)
# What stores say of a request that will never be allowed.
_FINAL = ("ACCESS_DENIED", "ACCESS_KEY", "SIGNATURE_DOES_NOT_MATCH", "NO_SUCH_BUCKET")


class Sink(Protocol):
    """Where the bytes go."""

    def write(self, data: memoryview, offset: int) -> None:
        """Write ``data`` at ``offset``."""


class _MayPass(Exception):
    """An attempt failed, and another may not."""

    def __init__(self, error: ShardmillError) -> None:
        super().__init__(error)
        self.error = error


def fetch_shard(
    version: DatasetVersion,
    shard: Shard,
    sink: Sink,
    given_up: Callable[[float], bool],
    notice: Callable[[str], None],
) -> bool:
    """Copy a shard, and check its size and SHA-256; whether it was wanted to the end.

    Args:
        version: what the shard is of.
        shard: as the manifest names it.
        sink: where it goes.
        given_up: waits for so many seconds; returns whether the shard is no longer wanted.
        notice: told of each attempt that failed and is made again.

    Raises:
        CorruptDataError: the object is missing, or not what was written.
        StorageError: it cannot be read, in any attempt.
    """
    for pause in RETRY_SECONDS:
        try:
            return _copy(version, shard, sink, given_up)
        except _MayPass as failed:
            notice(f"{failed.error.message}; trying again in {pause:g} seconds")
        if given_up(pause):
            return False
    try:
        return _copy(version, shard, sink, given_up)
    except _MayPass as failed:
        raise failed.error from None


def _copy(version: DatasetVersion, shard: Shard, sink: Sink, given_up: Callable[[float], bool]) -> bool:
    digest, offset = hashlib.sha256(), 0
    for chunk in _chunks(version, shard):
        if given_up(0):
            return False
        sink.write(memoryview(chunk), offset)
        digest.update(chunk)
        offset += len(chunk)
    if offset != shard.num_bytes or digest.hexdigest() != shard.sha256:
        # Damaged at rest or on the way: another attempt tells.
        where = f"{version.storage.uri}/{shard.path}"
        message = f"{where} is not what was written: its SHA-256 differs from the manifest's"
        raise _MayPass(CorruptDataError(message, restore(version.ref)))
    return True


def _chunks(version: DatasetVersion, shard: Shard) -> Iterator[bytes]:
    where = f"{version.storage.uri}/{shard.path}"
    try:
        with version.storage.open_input(shard.path) as stream:
            size = stream.size()
            if size != shard.num_bytes:
                raise CorruptDataError(
                    f"{where} has {size} bytes, the manifest of {version.ref} says {shard.num_bytes}",
                    restore(version.ref),
                )
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk
    except NotFoundError as error:
        raise CorruptDataError(
            f"{version.ref} is incomplete: {error.message}", restore(version.ref)
        ) from error
    except (OSError, StorageError) as error:
        text = error.message if isinstance(error, StorageError) else f"cannot read {where}: {error}"
        failed = StorageError(
            without_secrets(text, version.storage.location),
            "check the network, the credentials and the store, then run the same command again",
        )
        if any(word in failed.message for word in _FINAL):
            raise failed from None
        raise _MayPass(failed) from None
