"""The parts in which the rows of inputs are kept."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from shardmill.beam_jobs.publish.outline import cut_inputs, write_inputs
from shardmill.infra.format.contract import INPUTS_SCHEMA
from shardmill.infra.storage.filesystem import Storage


def inputs(uris: list[str]) -> pa.Table:
    return pa.Table.from_pylist([{"uri": uri, "outcome": "record"} for uri in uris], INPUTS_SCHEMA)


def test_a_change_touches_the_parts_it_lies_in() -> None:
    uris = [f"a/{number:05}.jpg" for number in range(3000)]
    before = [part["uri"].to_pylist() for part in cut_inputs(inputs(uris), mean=100)]
    after = [
        part["uri"].to_pylist()
        for part in cut_inputs(inputs([*uris[:1500], "a/01500-new", *uris[1500:]]), mean=100)
    ]
    assert [uri for part in before for uri in part] == uris
    assert len(before) > 20
    assert sum(part not in before for part in after) <= 2


def test_parts_have_the_digest_of_their_rows_as_name(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    one = write_inputs(storage, "data/one", inputs(["a", "b"]))
    two = write_inputs(storage, "data/two", inputs(["a", "b"]))
    other = write_inputs(storage, "data/two", inputs(["a", "c"]))
    names = [part.path.rpartition("/")[2] for (part,) in (one, two, other)]
    assert names[0] == names[1] != names[2]
    (empty,) = write_inputs(storage, "data/none", inputs([]))
    assert empty.num_rows == 0
