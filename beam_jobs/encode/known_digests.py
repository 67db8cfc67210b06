"""Digests of files that are not decoded: the previous version stores them, or they were purged.

Both lists are files in the spool that every worker reads: sorted SHA-256 digests of 32 bytes each.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass

from shardmill.infra.errors import NotFoundError
from shardmill.infra.storage.filesystem import Storage

_STORED_FILE, _PURGED_FILE = "contents/stored.sha256", "contents/purged.sha256"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class DigestList:
    """A sorted list of digests of 32 bytes each, searched in place."""

    data: bytes | mmap.mmap = b""

    @classmethod
    def of(cls, digests: Iterable[bytes]) -> DigestList:
        """Sort digests into a list."""
        return cls(b"".join(sorted(digests)))

    def __len__(self) -> int:
        return len(self.data) // _DIGEST_BYTES

    def hexadecimal(self) -> list[str]:
        """Return the digests as hexadecimal text."""
        return [self.data[at : at + _DIGEST_BYTES].hex() for at in range(0, len(self.data), _DIGEST_BYTES)]

    def __contains__(self, digest: bytes) -> bool:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            found = self.data[middle * _DIGEST_BYTES : (middle + 1) * _DIGEST_BYTES]
            if found == digest:
                return True
            low, high = (middle + 1, high) if found < digest else (low, middle)
        return False


@dataclass(frozen=True)
class KnownContents:
    """Files that a worker does not decode.

    Attributes:
        stored: digests of files whose stored image the previous version holds.
        purged: digests of files that must not come back.
    """

    stored: DigestList = DigestList()
    purged: DigestList = DigestList()

    def write(self, spool: Storage) -> None:
        """Write both lists to the spool."""
        for path, digests in ((_STORED_FILE, self.stored), (_PURGED_FILE, self.purged)):
            spool.write_atomic(path, bytes(digests.data))

    @classmethod
    def read(cls, spool: Storage) -> KnownContents:
        """Read the lists from the spool; a list that is not there is empty."""
        return cls(_read(spool, _STORED_FILE), _read(spool, _PURGED_FILE))


def _read(spool: Storage, path: str) -> DigestList:
    local = spool.local_path(path)
    try:
        if local is None:
            return DigestList(spool.read_bytes(path))
        with local.open("rb") as stream:  # one copy in memory for all threads and processes
            return DigestList(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (NotFoundError, FileNotFoundError, ValueError):  # mmap refuses an empty file
        return DigestList()


NOTHING_KNOWN = KnownContents()
