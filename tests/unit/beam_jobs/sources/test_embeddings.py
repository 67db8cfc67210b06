"""Files of vectors: what is read, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.config import EmbeddingsConfig, PrepareConfig
from shardmill.beam_jobs.request import JobRequest
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.embeddings import EmbeddingFiles
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.recognition.recognising import settled
from shardmill.beam_jobs.tables.vectors import Vectors
from shardmill.infra.errors import DataError, NotFoundError


def found(folder: Path, name: str) -> EmbeddingFiles:
    files = EmbeddingFiles.of(SourceFolder(str(folder)), EmbeddingsConfig(file=str(folder / name)))
    assert files is not None
    return files


def read(folder: Path, name: str) -> Vectors:
    return found(folder, name).read()


def write(path: Path, keys: list[str | None], lists: Any, *, key: str = "uri", kind: Any = None) -> None:
    pq.write_table(pa.table({key: pa.array(keys, pa.string()), "embedding": pa.array(lists, kind)}), path)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float64()),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), 2),
        pa.list_(pa.int32()),
    ],
)
def test_parquet_of_each_type(kind: pa.DataType, tmp_path: Path) -> None:
    write(tmp_path / "v.parquet", ["a.jpg", "b.jpg"], [[1, 2], [3, 4]], kind=kind)
    vectors = read(tmp_path, "v.parquet")
    assert (vectors.key, vectors.keys.to_pylist()) == ("uri", ["a.jpg", "b.jpg"])
    assert vectors.values.tolist() == [[1, 2], [3, 4]]


def test_half_precision_and_npz(tmp_path: Path) -> None:
    values = np.array([[0.5, 2]], np.float16)
    write(tmp_path / "v.parquet", ["00ff"], list(values), key="id", kind=pa.list_(pa.float16()))
    np.savez(tmp_path / "v.npz", id=np.array(["00ff"]), embedding=values)
    for name in ("v.parquet", "v.npz"):
        vectors = read(tmp_path, name)
        assert (vectors.key, vectors.keys.to_pylist(), vectors.values.tolist()) == (
            "id",
            ["00ff"],
            [[0.5, 2]],
        )


def test_several_files_are_one_table_and_their_content_is_hashed(tmp_path: Path) -> None:
    write(tmp_path / "v-1.parquet", ["a"], [[1.0, 2]])
    write(tmp_path / "v-2.parquet", ["b"], [[3.0, 4]])
    files = found(tmp_path, "v-*.parquet")
    assert files.read().values.tolist() == [[1, 2], [3, 4]]
    assert found(tmp_path, "v-*.parquet").digest == files.digest
    write(tmp_path / "v-2.parquet", ["b"], [[3.0, 5]])
    assert found(tmp_path, "v-*.parquet").digest != files.digest


def test_no_file_is_asked_for_or_there(tmp_path: Path) -> None:
    assert EmbeddingFiles.of(SourceFolder(str(tmp_path)), EmbeddingsConfig()) is None
    with pytest.raises(NotFoundError, match=r"v\.parquet"):
        found(tmp_path, "v.parquet")


@pytest.mark.parametrize(
    ("keys", "lists", "kind", "words"),
    [
        (["a", "b"], [[1.0, 2], [1.0, 2, 3]], None, r"vector of 'b' has 3 numbers, the first has 2"),
        (["a", "b"], [[1.0, 2], [np.nan, 2]], None, r"vector of 'b' has a number that is not finite"),
        (["a", "b", "c"], [[1.0, 2], [np.inf, 2], [1, -np.inf]], None, "finite, and so have 1 others"),
        (["a", "b"], [[1.0, 2], [1e39, 2]], None, "'b' has a number that is not finite"),
        (["a", "b"], [[1.0, 2], [0.0, 0.0]], None, "vector of 'b' has only zeros"),
        (["a", "a"], [[1.0, 2], [1.0, 2]], None, "gives the uri 'a' 2 vectors"),
        (["a", "b"], [[1.0, 2], None], None, "a row lacks its uri, its vector or a number of it"),
        (["a", None], [[1.0, 2], [1.0, 2]], None, "a row lacks its uri"),
        (["a"], [[1.0, None]], None, "a number of it"),
        (["a"], [[1.0]], None, "vectors of 1 numbers"),
        (["a"], [["x", "y"]], None, "the column embedding holds list<"),
        (["a"], [1.0], None, "the column embedding holds double"),
        ([], [], pa.list_(pa.float32()), "has no vectors"),
    ],
)
def test_vectors_that_cannot_be_used(
    keys: list[str | None], lists: list[Any], kind: Any, words: str, tmp_path: Path
) -> None:
    write(tmp_path / "v.parquet", keys, lists, kind=kind)
    with pytest.raises(DataError, match=words) as caught:
        read(tmp_path, "v.parquet")
    assert caught.value.remedy


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["a"], "embedding": [[1.0, 2]]}), tmp_path / "names.parquet")
    pq.write_table(pa.table({"uri": [1], "embedding": [[1.0, 2]]}), tmp_path / "numbers.parquet")
    (tmp_path / "noise.parquet").write_bytes(b"PAR1 no")
    (tmp_path / "noise.npz").write_bytes(b"PK no")
    np.savez(tmp_path / "flat.npz", uri=np.array(["a"]), embedding=np.ones(3))
    np.savez(tmp_path / "fewer.npz", uri=np.array(["a"]), embedding=np.ones((2, 3)))
    np.savez(tmp_path / "pickled.npz", uri=np.array(["a", None], object), embedding=np.ones((2, 3)))
    for name, words in {
        "names.parquet": "has 'name', 'embedding'",
        "numbers.parquet": "the column uri holds int64",
        "noise.parquet": "cannot be read as Parquet",
        "noise.npz": "cannot be read as npz",
        "flat.npz": r"embedding is float64 \[3\]",
        "fewer.npz": "1 keys and 2 vectors",
        "pickled.npz": "cannot be read as npz",
    }.items():
        with pytest.raises(DataError, match=words):
            read(tmp_path, name)
    write(tmp_path / "w-1.parquet", ["a"], [[1.0, 2]])
    write(tmp_path / "w-2.parquet", ["b"], [[1.0, 2, 3]])
    with pytest.raises(
        DataError, match=r"w-2\.parquet has vectors of 3 numbers by uri, and .*w-1\.parquet of 2"
    ):
        read(tmp_path, "w-*.parquet")


@pytest.mark.parametrize("file", ["v[1].parquet", "v*.parquet", "{}/v[1].parquet"])
def test_vectors_in_the_source_are_no_inputs(file: str, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    rows = pa.table({"image": [b"x", b"y"], "label": ["cat", "dog"]})
    pq.write_table(rows, tmp_path / "images.parquet")
    pq.write_table(rows, tmp_path / "more" / "v[1].parquet")
    write(tmp_path / "v[1].parquet", ["a"], [[1.0, 2.0]])
    source = SourceFolder(str(tmp_path))
    config = PrepareConfig.model_validate(
        {"source": {"kind": "parquet"}, "groups": {"embeddings": {"file": file.format(tmp_path)}}}
    )
    table = list_inputs(source, config).table
    left_out = table.filter(pc.equal(table["reason"], "ignored")).select(["uri", "reason", "message"])
    assert left_out.to_pylist() == [
        {"uri": "v[1].parquet", "reason": "ignored", "message": "groups.embeddings.file names it"}
    ]
    assert table.num_rows == 3 + 2 + 2
    assert "v[1].parquet" not in config.filter.ignore


def test_vectors_do_not_change_what_a_source_is_recognised_as(tmp_path: Path) -> None:
    for name in ("cat/1.jpg", "dog/2.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x")
    np.savez(tmp_path / "v.npz", id=np.array(["00ff"]), embedding=np.ones((1, 2)))
    config = {"source": {"kind": "auto"}, "groups": {"embeddings": {"file": "v.npz"}}}
    request = JobRequest(
        source=str(tmp_path), dataset="d", root="/nowhere/root", config=PrepareConfig.model_validate(config)
    )
    assert settled(request).config.source.kind == "image_folder"
