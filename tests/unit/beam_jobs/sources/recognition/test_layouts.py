"""Public layouts are read right without any setting: kind, classes, splits and number of images."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from shardmill.beam_jobs.schemas import FileRef, Status
from shardmill.beam_jobs.sources import list_inputs, open_reader, open_source
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.infra.codecs.formats import sniff
from shardmill.infra.errors import UsageError
from tests.samples.images.photos import write
from tests.samples.sources.layouts import LAYOUTS, Layout
from tests.samples.sources.requests import asked


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_public_layout_is_right_without_any_setting(layout: Layout, tmp_path: Path) -> None:
    write(tmp_path, layout.build())
    for path in tmp_path.glob("snapshots/**/*"):  # links in the cache of a hub
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
