"""A version counts as unchanged only while its files that could not be read still cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from shardmill.beam_jobs.config import RunnerConfig
from shardmill.beam_jobs.publish.digests import Digests, unchanged_version
from shardmill.beam_jobs.reasons import UNREADABLE, VANISHED
from shardmill.beam_jobs.schemas import LISTING_SCHEMA, MASK_COLUMNS, READ, FileRef, Status
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.infra.format.contract import INPUTS_SCHEMA
from tests.samples.datasets.manifests import empty_manifest

DIGESTS = Digests("r", "s", {})
IMAGE = {"uri": "image.png", "size_bytes": 3, "mtime_ns": 1, "status": Status.TO_READ}
MASK = {"mask_uri": "mask.png", "mask_size_bytes": 4, "mask_mtime_ns": 2}


class FaultyReader:
    """Reads files, apart from those with a fault: URI -> reason."""

    def __init__(self, faults: dict[str, str]) -> None:
        self._faults = faults

    def read(self, file: FileRef) -> bytes:
        if file.uri in self._faults:
            raise SourceFault(self._faults[file.uri], "it cannot be read")
        return b""


def version_that_lost(files: dict[str, str]) -> Any:
    """A version whose files could not be read: URI -> reason."""
    rows = [
        dict.fromkeys(INPUTS_SCHEMA.names) | {"uri": uri, "stage": READ, "reason": reason}
        for uri, reason in files.items()
    ]
    return SimpleNamespace(
        manifest=empty_manifest().model_copy(update={"quarantine": {UNREADABLE: len(files)}}),
        missing_files=list,
        inputs=lambda: pa.Table.from_pylist(rows, INPUTS_SCHEMA),
    )


def test_the_listing_may_be_in_chunks() -> None:
    """URIs of more than 2 GiB are."""
    uris = [f"{number}.png" for number in range(6)]
    rows = [dict.fromkeys(LISTING_SCHEMA.names) | IMAGE | {"uri": uri} for uri in uris]
    table = pa.Table.from_pylist(rows, LISTING_SCHEMA)
    listing = Listing(pa.concat_tables([table.slice(0, 2), table.slice(2)]))
    faults = {"1.png": UNREADABLE, "4.png": VANISHED}
    version = version_that_lost(faults)
    assert unchanged_version(version, DIGESTS, listing, FaultyReader(faults), RunnerConfig()) is version
    other = FaultyReader(faults | {"4.png": UNREADABLE})
    assert unchanged_version(version, DIGESTS, listing, other, RunnerConfig()) is None


@pytest.mark.parametrize(
    ("has_mask", "faults", "is_unchanged"),
    [
        (False, {"image.png": UNREADABLE}, True),
        (False, {"image.png": VANISHED}, False),
        (False, {}, False),
        (True, {"image.png": UNREADABLE}, True),
        (True, {"mask.png": UNREADABLE}, True),
        (True, {"mask.png": VANISHED}, False),
        (True, {}, False),
    ],
)
def test_a_version_is_unchanged_while_the_same_files_cannot_be_read(
    has_mask: bool, faults: dict[str, str], is_unchanged: bool
) -> None:
    schema = pa.schema([*LISTING_SCHEMA, *(MASK_COLUMNS if has_mask else ())])
    row = dict.fromkeys(schema.names) | IMAGE | (MASK if has_mask else {})
    listing = Listing(pa.Table.from_pylist([row], schema))
    newest = version_that_lost({"image.png": UNREADABLE})
    found = unchanged_version(newest, DIGESTS, listing, FaultyReader(faults), RunnerConfig())
    assert (found is newest) is is_unchanged
