"""Listings of a user's own kind of source that break the rules."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import LISTING_SCHEMA, Status
from shardmill.beam_jobs.sources.listing import Listing, check_listing
from shardmill.infra.errors import ConfigError

SETTINGS = {"kind": "my_package.lines"}


def row(uri: str | None, **values: Any) -> dict[str, Any]:
    usual = {"size_bytes": 1, "mtime_ns": 0, "label": "cat", "status": Status.TO_READ}
    return {"uri": uri, **usual, **values}


def listing(*rows: dict[str, Any]) -> Listing:
    return Listing(pa.Table.from_pylist(list(rows), LISTING_SCHEMA))


def config(**settings: Any) -> PrepareConfig:
    return PrepareConfig.model_validate({"source": SETTINGS | settings})


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([row("b"), row("a")], r"row 1 of its listing \(uri 'a'\) does not come after"),
        ([row("a"), row("b"), row("b")], r"row 2 of its listing \(uri 'b'\) does not come after"),
        ([row(None)], "row 0 .* has no uri"),
        ([row("a", mtime_ns=None)], "row 0 .* has no mtime_ns"),
        ([row("a", status=None)], "row 0 .* has no status"),
        ([row("a", status=Status.STORED)], "row 0 .* has an unknown status"),
        ([row("a"), row("b", status=Status.QUARANTINED)], "row 1 .* has no reason"),
        ([row("a", split="train"), row("b", split="tst")], "row 1 .* has the split 'tst'"),
        ([row("a"), row("b", label=None)], "row 1 .* is to be read, and has no label"),
    ],
)
def test_wrong_rows_are_refused(rows: list[dict[str, Any]], fault: str) -> None:
    with pytest.raises(ConfigError, match=rf"source\.kind = 'my_package\.lines': {fault}"):
        check_listing(listing(*rows), config())
    table = listing(*rows).table
    chunked = pa.concat_tables([table.slice(at, 1) for at in range(table.num_rows)])
    with pytest.raises(ConfigError, match=fault):
        check_listing(Listing(chunked), config())


def test_right_rows_are_taken() -> None:
    left_out = row("c", label=None, status=Status.QUARANTINED, reason="no_class", message="it has none")
    right = listing(row("a", split="test"), row("b"), left_out)
    assert check_listing(right, config()) is right
    coded = right.table.set_column(3, "label", right.table["label"].dictionary_encode())
    check_listing(Listing(coded), config())
    check_listing(listing(), config())
    check_listing(listing(row("a", label=None)), config(labels="none"))


def test_other_tables_are_refused() -> None:
    table = listing(row("a")).table
    with pytest.raises(ConfigError, match="returned a Table"):
        check_listing(table, config())
    with pytest.raises(ConfigError, match="no column 'group'"):
        check_listing(Listing(table.drop_columns(["group"])), config())
    with pytest.raises(ConfigError, match="'status' is of type int64, not int8"):
        check_listing(Listing(table.set_column(6, "status", table["status"].cast(pa.int64()))), config())
