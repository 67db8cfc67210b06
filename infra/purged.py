"""The contents that were purged from a dataset and must not come back, by their SHA-256 alone."""

from __future__ import annotations

import json
from collections.abc import Iterable

from infra.errors import CorruptDataError, NotFoundError
from infra.storage import Storage

PURGED_FILE = "purged.json"


def purged_contents(dataset: Storage) -> frozenset[bytes]:
    """SHA-256 of every content that was purged from a dataset.

    Raises:
        CorruptDataError: the list is not readable.
    """
    try:
        listed = json.loads(dataset.read_bytes(PURGED_FILE))["sha256"]
        return frozenset(bytes.fromhex(text) for text in listed)
    except NotFoundError:
        return frozenset()
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(
            f"{dataset.uri}/{PURGED_FILE} is not readable: {error}",
            "restore it from a copy: without it, what was purged would come back",
        ) from error


def add_purged_contents(dataset: Storage, digests: Iterable[bytes]) -> None:
    """Let these contents never come back into a dataset."""
    listed = sorted(digest.hex() for digest in purged_contents(dataset) | frozenset(digests))
    dataset.write_atomic(PURGED_FILE, json.dumps({"sha256": listed}, indent=0).encode())
