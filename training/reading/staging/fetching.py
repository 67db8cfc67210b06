"""Fetch one shard from an object store and check it against the manifest, with retries.

It retries errors that ``shardmill.infra.storage.objects.retries`` calls retryable, and bytes that differ from
the manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Protocol

from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import CorruptDataError, NotFoundError, ShardmillError, StorageError
from shardmill.infra.format.contract import Shard
from shardmill.infra.storage.locations import without_secrets
from shardmill.infra.storage.objects.retries import is_retryable
from shardmill.training.reading.records.split_records import restore

_CHUNK_BYTES = 4 << 20
# Pauses before the second, third and fourth attempt (seconds). Each attempt opens the object anew, and
# shardmill.infra.storage repeats its requests.
RETRY_SECONDS = (0.5, 2.0, 8.0)


class Sink(Protocol):
    """Takes the bytes of a shard."""

    def write(self, data: memoryview, offset: int) -> None:
        """Write ``data`` at ``offset``."""


class _RetryableError(Exception):
    """An attempt failed, and another one may succeed."""

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
    """Copy a shard, and check its size and SHA-256. Return False if it was given up.

    Args:
        version: the dataset version.
        shard: the shard, from the manifest.
        sink: takes the bytes.
        given_up: waits for a number of seconds, and returns whether the shard is no longer needed.
        notice: called with a message for each failed attempt that will be repeated.

    Raises:
        CorruptDataError: the object is missing or damaged.
        StorageError: the store refused the request, or the object could not be read in any attempt.
    """
    for pause in RETRY_SECONDS:
        try:
            return _copy(version, shard, sink, given_up)
        except _RetryableError as failed:
            notice(f"{failed.error.message}; trying again in {pause:g} seconds")
        if given_up(pause):
            return False
    try:
        return _copy(version, shard, sink, given_up)
    except _RetryableError as failed:
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
        # Damaged in the store or during the transfer: another attempt finds out which.
        where = f"{version.storage.uri}/{shard.path}"
        message = f"{where} is damaged: its SHA-256 differs from the manifest's"
        raise _RetryableError(CorruptDataError(message, restore(version.ref)))
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
        cause = error.__cause__ if isinstance(error, StorageError) else error
        if isinstance(cause, OSError) and is_retryable(cause):
            raise _RetryableError(failed) from None
        raise failed from None
