"""Objects of records whose classes have no names."""

from __future__ import annotations

import pyarrow as pa

from shardmill.beam_jobs.schemas import Status
from shardmill.beam_jobs.sources.listing import Listing
from shardmill.beam_jobs.sources.rows.objects import with_objects

BOX = [0.25, 0.5, 0.75, 1.0]


def test_a_label_may_be_any_number() -> None:
    nothing = pa.nulls(2, pa.string())
    columns = {
        "label": nothing, "status": pa.array([Status.TO_READ] * 2, pa.int8()), "reason": nothing,
        "message": nothing, "feature:boxes": pa.array([BOX * 3, BOX], pa.list_(pa.float32())),
        "feature:labels": pa.array([[1 << 60, -1, 3], [3]]), "feature:crowds": pa.array([[1, 0, 0], []]),
    }  # fmt: skip
    found = with_objects(Listing(pa.table(columns), []), ("boxes", "labels", "crowds"), [])
    rows = found.table.to_pylist()
    assert [row["feature:objects/label"] for row in rows] == [[str(1 << 60), "3"], ["3"]]
    assert [row["feature:objects/is_crowd"] for row in rows] == [[1, 0], [0]]
    assert rows[0]["label"] == f"{1 << 60}, 3"
