"""Contents that need no decoding, by their SHA-256: what the parent version stores, and what was purged.

Both lists lie in the spool, where every worker finds them: digests of 32 bytes, rising, one after the other.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from dataclasses import dataclass

from infra.errors import NotFoundError
from infra.storage import Storage

_STORED_FILE, _PURGED_FILE = "contents/stored.sha256", "contents/purged.sha256"
_DIGEST_BYTES = 32

PURGED = "purged"  # the reason for which such a file is filtered


@dataclass(frozen=True)
class DigestList:
    """Digests of 32 bytes, rising, one after the other; searched where they lie."""

    data: bytes | mmap.mmap = b""

    @classmethod
    def of(cls, digests: Iterable[bytes]) -> DigestList:
        """The list of these digests."""
        return cls(b"".join(sorted(digests)))

    def __len__(self) -> int:
        return len(self.data) // _DIGEST_BYTES

    def hexadecimal(self) -> list[str]:
        """The digests as text."""
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
    """What a worker asks before it decodes a file.

    Attributes:
        stored: contents whose stored form the parent version holds.
        purged: contents that must not come back.
    """

    stored: DigestList = DigestList()
    purged: DigestList = DigestList()

    def write(self, spool: Storage) -> None:
        """Lay both lists into the spool."""
        for path, digests in ((_STORED_FILE, self.stored), (_PURGED_FILE, self.purged)):
            spool.write_atomic(path, bytes(digests.data))

    @classmethod
    def read(cls, spool: Storage) -> KnownContents:
        """The lists in the spool; a list that is not there is empty."""
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
