"""Quality flags of a version: counted, left out by choice, the same whether files are known or read."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from shardmill.beam_jobs.maintain.purge import purge
from shardmill.infra.codecs import encode_jpeg
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.format.quality import flagged
from tests.samples.images.photos import make_photos, picture, write
from tests.samples.preparing.prepared import rows, run, stored_bytes
from tests.samples.preparing.runs import problems


def _dark(seed: int) -> bytes:
    return encode_jpeg(picture(seed) // 5, 90)


def _blank() -> bytes:
    sink = io.BytesIO()
    Image.new("RGB", (64, 48), (90, 140, 90)).save(sink, "PNG")
    return sink.getvalue()


BAD = {"cat/dark.jpg": _dark(900), "dog/dark.jpg": _dark(901), "dog/blank.png": _blank()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(make_photos(tmp_path / "source", {"cat": 14, "dog": 10}), BAD)


def test_flags_are_counted_and_nothing_is_left_out_unless_asked_for(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    run(source, root)
    version = Catalog(root).open("d")
    limits = version.manifest.quality
    assert version.manifest.accounting.num_records == 27
    assert (limits["dark"].num_records, limits["uniform"].num_records) == (2, 1)
    table = version.scan().to_table()
    for name, bad in flagged(table, limits).items():
        assert bad.sum() == limits[name].num_records
    names = table["source_uri"].filter(flagged(table, limits)["dark"]).to_pylist()
    assert sorted(names) == ["cat/dark.jpg", "dog/dark.jpg"]
    page = version.storage.read_bytes(version.manifest.report or "").decode()
    section = page.partition('<section id="quality">')[2].partition("</section>")[0]
    assert "dark</b> · 2 records" in section
    assert section.count("cat/dark.jpg</code>") == section.count("dog/blank.png</code>") - 1 == 1
    assert "Nothing is left out" in section
    view = Catalog(root).open_view(f"d?luma_p99 < {limits['dark'].below:g}")
    assert sum(map(view.num_examples, view.manifest.splits)) == 2


def test_files_are_left_out_by_flags_with_reasons_and_come_back(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    run(source, root)
    outcome = run(source, root, filter={"quality": ["uniform", "dark"]})
    assert outcome["num_filtered"] == 3
    version = Catalog(root).open("d")
    left = {uri: row for uri, row in rows(version).items() if row["outcome"] == "filtered"}
    assert {uri: row["reason"] for uri, row in left.items()} == {
        "cat/dark.jpg": "dark", "dog/dark.jpg": "dark", "dog/blank.png": "uniform"
    }  # fmt: skip
    assert "luma_p99 is" in left["cat/dark.jpg"]["message"]
    assert left["dog/blank.png"]["stage"] == "plan"
    assert version.manifest.quality["dark"].num_records == 0
    assert version.manifest.quality["dark"].below == Catalog(root).open("d@1").manifest.quality["dark"].below
    run(source, root, filter={"quality": "dark"})
    assert Catalog(root).open("d").manifest.accounting.num_filtered == 2
    assert problems(root) == []


def test_a_version_on_top_of_another_has_the_flags_of_one_made_anew(source: Path, tmp_path: Path) -> None:
    settings = {"filter": {"quality": "all"}, "shards": {"num_shards": 1}}
    run(source, tmp_path / "root", **settings)
    # Darker pictures move the limits: dark.jpg of the second run is judged with those of the first.
    write(source, {f"cat/night{seed}.jpg": encode_jpeg(picture(seed) // 3, 90) for seed in range(950, 975)})
    run(source, tmp_path / "root", **settings)
    grown = Catalog(tmp_path / "root").open("d@2")
    run(source, tmp_path / "new", **settings)
    anew = Catalog(tmp_path / "new").open("d@1")
    assert grown.manifest.quality == anew.manifest.quality
    told = [
        {uri: (row["outcome"], row["reason"], row["message"]) for uri, row in rows(version).items()}
        for version in (grown, anew)
    ]
    assert told[0] == told[1]
    again = stored_bytes(tmp_path / "new")
    run(source, tmp_path / "other", **settings, runner={"processes": 1, "block_images": 5})
    assert stored_bytes(tmp_path / "other") == again


def test_a_purge_counts_the_flags_of_what_is_left(source: Path, tmp_path: Path) -> None:
    run(source, tmp_path / "root")
    before = Catalog(tmp_path / "root").open("d").manifest.quality
    purge(Catalog(tmp_path / "root"), "d", ["cat/dark.jpg"])
    after = Catalog(tmp_path / "root").open("d").manifest.quality
    assert (before["dark"].num_records, after["dark"].num_records) == (2, 1)
    assert after["dark"].below == before["dark"].below
