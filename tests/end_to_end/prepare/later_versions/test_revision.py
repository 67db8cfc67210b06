"""On top of a version that an earlier release wrote: without looks, under revision 3 of the codecs."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image

from shardmill.beam_jobs.maintain.compaction import compact
from shardmill.beam_jobs.maintain.purge import purge
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.layout import croissant_file, decode_manifest, encode_manifest, manifest_file
from tests.samples.images.photos import make_photos, picture, write
from tests.samples.preparing.prepared import rows, run
from tests.samples.preparing.runs import problems

# Keys of the configuration that revision 3 did not have.
NEWER = {
    "groups": ("max_difference", "symmetries", "crops", "embeddings"),
    "image": ("metadata",),
    "filter": ("ai_made",),
}
CONFIG: dict[str, Any] = {"image": {"size": 32}, "shards": {"num_shards": 2}}


def age(root: Path, version: int = 1) -> None:
    """Rewrite a version as revision 3 wrote it: no looks in its indexes, and none of the newer settings."""
    (root / "d" / croissant_file(version)).unlink()
    place = root / "d" / manifest_file(version)
    manifest = decode_manifest(place.read_bytes())
    shards = []
    for shard in manifest.shards:
        path, sink = root / "d" / shard.index_path, io.BytesIO()
        index = pq.read_table(path)
        pq.write_table(index.select([name for name in index.column_names if name != "look"]), sink)
        path.write_bytes(sink.getvalue())
        digest = hashlib.sha256(sink.getvalue()).hexdigest()
        shards.append(shard.model_copy(update={"index_bytes": len(sink.getvalue()), "index_sha256": digest}))
    config = {
        name: {key: one for key, one in value.items() if key not in NEWER.get(name, ())}
        if isinstance(value, dict)
        else value
        for name, value in manifest.config.items()
    }
    changed = {"shards": shards, "config": config, "codecs": manifest.codecs | {"shardmill": "3"}}
    changed |= {"source_digest": "3" * 32, "run_digest": "3" * 24}
    place.write_bytes(encode_manifest(manifest.model_copy(update=changed)))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A source, and a root whose only version is that of revision 3."""
    source = make_photos(tmp_path / "source", {"cat": 14, "dog": 10})
    run(source, tmp_path / "root", **CONFIG)
    age(tmp_path / "root")
    assert problems(tmp_path / "root") == []
    return tmp_path


def opened(place: Path, version: int | None = None) -> DatasetVersion:
    return Catalog(place / "root").open("d" if version is None else f"d@{version}")


def placed(version: DatasetVersion) -> dict[str, tuple[str, str]]:
    """URI of each record -> its split and label."""
    return {
        uri: (row["split"], row["label"]) for uri, row in rows(version).items() if row["outcome"] == "record"
    }


def test_a_later_version_keeps_splits_and_reads_the_images_again(old: Path) -> None:
    before = placed(opened(old))
    sink = io.BytesIO()
    Image.fromarray(picture(3)[:, ::-1]).save(sink, "PNG")  # the mirrored picture of cat/00002
    write(old / "source", {"ant/new.png": sink.getvalue()})
    outcome = run(old / "source", old / "root", **CONFIG)
    assert (outcome["version"], outcome["num_encoded"]) == (2, 25)
    after = placed(opened(old))
    new = after.pop("ant/new.png")
    assert after == before
    assert opened(old).manifest.classes == ["cat", "dog", "ant"]
    original = next(uri for uri in before if uri.startswith("cat/00002"))
    assert new[0] == before[original][0], "its look was compared with that of the image read again"
    assert problems(old / "root") == []
    assert (
        None
        not in pq.read_table(old / "root" / "d" / opened(old).manifest.shards[0].index_path)[
            "look"
        ].to_pylist()
    )

    fresh = old / "fresh"
    run(old / "source", fresh, **CONFIG)
    of_fresh = Catalog(fresh).open("d").manifest.features
    assert opened(old).manifest.features == of_fresh
    write(old / "source", {"dog/newer.png": Path(old / "source" / original).read_bytes()})
    assert run(old / "source", old / "root", **CONFIG)["num_encoded"] == 0


def test_a_content_is_purged_from_it(old: Path) -> None:
    removed, *others = sorted(placed(opened(old)))
    (old / "source" / removed).unlink()
    purge(Catalog(old / "root"), "d", [removed])
    assert sorted(placed(opened(old, 1))) == others
    assert problems(old / "root") == []
    run(old / "source", old / "root", **CONFIG)
    assert sorted(placed(opened(old))) == others


def test_a_version_without_looks_is_compacted(tmp_path: Path) -> None:
    source = make_photos(tmp_path / "source", {"cat": 8})
    run(source, tmp_path / "root", image={"size": 32}, shards={"num_shards": 1})
    make_photos(source, {"dog": 7}, seed=50)
    run(source, tmp_path / "root", image={"size": 32}, shards={"num_shards": 1})
    for version in (1, 2):
        age(tmp_path / "root", version)
    before = placed(opened(tmp_path))
    compact(Catalog(tmp_path / "root"), "d")
    assert opened(tmp_path).manifest.version == 3
    assert placed(opened(tmp_path)) == before
    assert problems(tmp_path / "root") == []
