"""Near-duplicates by vectors of the user's: groups, splits, the report, and later versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill import open_dataset
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import DataError
from shardmill.infra.progress import subscribe
from tests.samples.images.photos import jpeg, write
from tests.samples.preparing.prepared import run, stored_bytes
from tests.samples.preparing.runs import problems

COUNT = 24


def write_vectors(path: Path, uris: list[str], alike: dict[str, str]) -> None:
    """Vectors of the images; each of ``alike`` is nearly that of another."""
    rng = np.random.default_rng(1)
    by_uri = {uri: rng.normal(size=16) for uri in uris}
    by_uri |= {uri: 2 * by_uri[other] + 0.01 for uri, other in alike.items()}
    pq.write_table(pa.table({"uri": list(by_uri), "embedding": [list(one) for one in by_uri.values()]}), path)


def groups(root: Path) -> dict[str, tuple[str, str]]:
    """URI of each member -> its group and split."""
    version = Catalog(root).open("d")
    assert version.manifest.near_duplicates is not None
    table = version.table(version.manifest.near_duplicates.path).to_pylist()
    return {row["uri"]: (row["group"], row["split"]) for row in table}


def test_vectors_group_images_that_look_different(tmp_path: Path) -> None:
    uris = [f"{'ab'[at % 2]}/{at:02}.jpg" for at in range(COUNT)]
    source = write(tmp_path / "source", {uri: jpeg(at + 1) for at, uri in enumerate(uris)})
    root, given = tmp_path / "root", tmp_path / "vectors.parquet"
    config: dict[str, Any] = {"image": {"size": 16}, "groups": {"embeddings": {"file": str(given)}}}
    config["splits"] = {"train": 0.5, "validation": 0.25, "test": 0.25}
    alike = {uris[0]: uris[1], uris[5]: uris[1], uris[20]: uris[8]}
    write_vectors(given, uris, alike)
    run(source, root, **config)
    found = groups(root)
    assert set(found) == {*alike, uris[1], uris[8]}
    assert len({found[uris[at]] for at in (0, 1, 5)}) == len({found[uris[at]] for at in (8, 20)}) == 1
    assert found[uris[8]][0] != found[uris[0]][0]
    assert problems(root) == []
    before = stored_bytes(root)
    assert run(source, root, **config)["unchanged"]

    write(source, {"a/99.jpg": jpeg(99)})  # has no vector
    said: list[str] = []
    stop = subscribe(lambda event: said.append(str(event.get("message"))))
    outcome = run(source, root, **config)
    stop()
    assert (outcome["num_encoded"], outcome["version"]) == (1, 2)
    assert any("1 record without a vector in groups.embeddings.file" in message for message in said)
    assert {path: data for path, data in stored_bytes(root).items() if path in before} == before

    write_vectors(given, uris, alike | {uris[12]: uris[15]})  # the same path, another content
    outcome = run(source, root, **config)
    assert (outcome["num_encoded"], outcome["version"]) == (0, 3)
    assert {uris[12], uris[15]} < set(groups(root))


def test_vectors_by_record_id_of_an_earlier_version(tmp_path: Path) -> None:
    """The way that the documentation shows: vectors of what an earlier version stores."""
    source = write(tmp_path / "source", {f"a/{at}.jpg": jpeg(at + 1) for at in range(6)})
    root = tmp_path / "root"
    run(source, root, image={"size": 16})
    table = open_dataset("d", root).to_arrow(["id", "source_uri"]).to_table().sort_by("source_uri")
    values = np.eye(6)
    values[4] = values[2]
    np.savez(tmp_path / "v.npz", id=np.array(table["id"].to_pylist()), embedding=values)
    outcome = run(source, root, image={"size": 16}, groups={"embeddings": {"file": str(tmp_path / "v.npz")}})
    assert (outcome["num_encoded"], outcome["version"]) == (0, 2)
    assert set(groups(root)) == {"a/2.jpg", "a/4.jpg"}


def test_wrong_vectors_publish_nothing(tmp_path: Path) -> None:
    source = write(tmp_path / "source", {"a/0.jpg": jpeg(1), "a/1.jpg": jpeg(2)})
    np.savez(tmp_path / "v.npz", uri=np.array(["a/0.jpg", "a/1.jpg"]), embedding=[[1, 2], [np.nan, 1]])
    with pytest.raises(DataError, match=r"the vector of 'a/1\.jpg' has a number that is not finite"):
        run(source, tmp_path / "root", groups={"embeddings": {"file": str(tmp_path / "v.npz")}})
    assert Catalog(tmp_path / "root").versions("d") == []
