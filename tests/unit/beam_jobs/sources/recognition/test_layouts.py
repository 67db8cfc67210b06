"""Public layouts are read right without any setting: kind, classes, splits and number of images."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from shardmill.beam_jobs.schemas import FileRef, Status
from shardmill.beam_jobs.sources import list_inputs, open_reader, open_source
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.codecs.formats import sniff
from shardmill.infra.errors import UsageError
from shardmill.infra.progress import subscribe
from tests.samples.images.photos import write
from tests.samples.sources.annotated_layouts import ANNOTATED
from tests.samples.sources.layouts import LAYOUTS, Layout, pictures
from tests.samples.sources.requests import asked

REPOSITORY = Path(__file__).parents[5]


EVERY = [*LAYOUTS, *ANNOTATED]


@pytest.mark.parametrize("layout", EVERY, ids=lambda layout: layout.name)
def test_a_public_layout_is_right_without_any_setting(layout: Layout, tmp_path: Path) -> None:
    write(tmp_path, layout.build())
    for path in tmp_path.glob("snapshots/abc1/**/*"):  # links in the cache of a hub
        if path.is_file():
            target = path.read_text()
            path.unlink()
            path.symlink_to(target)
    if layout.kind == "asks":
        with pytest.raises(UsageError, match="say which one") as caught:
            settled(asked(tmp_path))
        assert str(caught.value.remedy).count("--source-kind") > 1
        return
    request = settled(asked(tmp_path))
    listing = list_inputs(open_source(request), request.config).table
    reader = open_reader(open_source(request), request.config)
    counts: dict[str | None, Counter[str]] = {}
    for row in listing.to_pylist():
        if row["status"] == Status.TO_READ:
            ref = FileRef(
                *(row.get(name) for name in ("uri", "size_bytes", "mtime_ns", "container", "position"))
            )
            assert sniff(reader.read(ref)) is not None
            label = "" if layout.classes else row["label"]
            counts.setdefault(row["split"], Counter())[label] += 1
    assert counts == layout.right
    assert tuple(request.config.source.masks.classes) == layout.classes
    assert request.config.source.kind == layout.kind
    lost = [row["uri"] for row in listing.to_pylist() if row["status"] == Status.QUARANTINED]
    assert lost == []


def rows_of_layouts() -> list[str]:
    """The table of the documentation: each kind, and the layouts that are of it."""
    of_kind: dict[str, list[str]] = {}
    for layout in EVERY:
        of_kind.setdefault("*asks*" if layout.kind == "asks" else f"`{layout.kind}`", []).append(layout.name)
    rows = [f"| {kind} | {'; '.join(names)} |" for kind, names in sorted(of_kind.items(), reverse=True)]
    return ["| recognised as | public layouts |", "|---|---|", *rows]


def test_the_documentation_lists_the_layouts() -> None:
    assert "\n".join(rows_of_layouts()) in (REPOSITORY / "docs/sources.md").read_text()


def test_files_that_are_not_used_are_counted(tmp_path: Path) -> None:
    write(
        tmp_path,
        pictures("images/cat/1.jpg", "images/dog/2.jpg", "more.jpg") | {"notes.md": b"a", "x.md": b""},
    )
    events: list[dict[str, Any]] = []
    unsubscribe = subscribe(events.append)
    request = settled(asked(tmp_path))
    list_inputs(open_source(request), request.config)
    unsubscribe()
    assert "not used: 3 files (2 .md, 1 .jpg)" in [event["message"] for event in events]
