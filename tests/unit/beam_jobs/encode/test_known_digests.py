"""The lists of contents that workers do not decode."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from shardmill.beam_jobs.encode.blocks import DigestList, KnownContents
from shardmill.infra.storage.filesystem import Storage


@given(st.lists(st.binary(min_size=32, max_size=32), max_size=40), st.binary(min_size=32, max_size=32))
def test_a_digest_list_holds_what_it_was_made_of(digests: list[bytes], other: bytes) -> None:
    found = DigestList.of(digests)
    assert len(found) == len(digests)
    assert all(digest in found for digest in digests)
    assert (other in found) == (other in digests)


def test_contents_go_through_the_spool(tmp_path: Path) -> None:
    spool = Storage.at(tmp_path)
    assert KnownContents.read(spool) == KnownContents()
    one, two = (hashlib.sha256(text).digest() for text in (b"one", b"two"))
    KnownContents(DigestList.of([one]), DigestList.of([two])).write(spool)
    found = KnownContents.read(spool)
    assert (one in found.stored, two in found.stored, two in found.purged) == (True, False, True)
    KnownContents().write(spool)
    assert one not in KnownContents.read(spool).stored
