"""Values that no honest program writes cost their own row, or the file that they make unreadable."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardmill.beam_jobs.config import EmbeddingsConfig, PrepareConfig
from shardmill.beam_jobs.schemas import FileRef
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.embeddings import EmbeddingFiles
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.beam_jobs.sources.rows.reading import RowReader
from shardmill.infra.errors import ConfigError, DataError, NotFoundError, StorageError
from shardmill.infra.format.records import frame
from tests.samples.sources.columns import with_columns
from tests.samples.sources.hostile import HALF, HUGE, alter_zip, claiming_utf8, damaged_npy, npy, outcomes
from tests.samples.sources.mutants import mutate, outcome
from tests.samples.sources.rows import example, idx_bytes

JPEG = b"\xff\xd8\xff\xe0" + b"x" * 20


def written(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
    return folder


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


LATIN = claiming_utf8([b"cat", b"caf\xe9"])
LISTS = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), LATIN)


@pytest.mark.parametrize(
    ("columns", "settings"),
    [
        ({"label": LATIN}, {}),
        ({"label": LATIN.dictionary_encode()}, {}),
        ({"label": ["x", "y"], "note": LATIN}, {"features": ["note"]}),
        ({"label": ["x", "y"], "group": LATIN}, {"group": "group"}),
        ({"label": LATIN}, {"label_separator": " "}),
        ({"label": LISTS}, {"label_separator": " "}),
    ],
    ids=["label", "coded", "feature", "group", "several", "lists"],
)
def test_texts_of_parquet_tables_that_are_not_utf8(
    columns: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    table = parquet(path=["a.jpg", "b.jpg"], **columns)
    folder = written(tmp_path, {"a.jpg": JPEG, "b.jpg": JPEG, "t.parquet": table})
    assert outcomes(folder, "table", **with_columns("table", {"file": "t.parquet", **settings})) == {
        "a.jpg": None,
        "b.jpg": "not_in_table",
        "t.parquet": "table",
        "t.parquet#row=2": "broken_row",
    }


@pytest.mark.parametrize(
    ("label", "settings", "labels"),
    [
        (LATIN, {}, "class"),
        (LATIN, {}, "multi"),
        (LISTS, {}, "multi"),
        (LATIN, {"features": {"words": "label"}}, "none"),
        (LATIN, {"group": "label"}, "none"),
    ],
)
def test_texts_of_rows_of_parquet_that_are_not_utf8(
    label: pa.Array, settings: dict[str, Any], labels: str, tmp_path: Path
) -> None:
    folder = written(tmp_path, {"a.parquet": parquet(image=[JPEG, JPEG], label=label)})
    found = outcomes(folder, "parquet", columns=settings, labels=labels)
    assert [found[f"a.parquet#row=000000{row}"] for row in (0, 1)] == [None, "broken_row"]


def test_paths_and_boxes_of_parquet_tables_that_are_not_utf8(tmp_path: Path) -> None:
    table = parquet(path=claiming_utf8([b"a.jpg", b"caf\xe9.jpg"]), label=LATIN, box=[[1, 2, 3, 4]] * 2)
    folder = written(tmp_path, {"a.jpg": JPEG, "t.parquet": table})
    objects = {"annotations": "t.parquet", "table": {"box_columns": "box"}}
    found = outcomes(folder, "box_table", objects=objects)
    assert found == {"a.jpg": None, "t.parquet": "table", "t.parquet#row=2": "broken_row"}


class _Failing:
    """Rows that raise an error when one is read."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, file: FileRef, position: int) -> bytes:
        raise self.error

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (
            pa.ArrowMemoryError("malloc of size 2147483647 failed"),
            SourceFault,
        ),  # a page lies about its length
        (MemoryError(), StorageError),
    ],
)
def test_memory_that_a_row_asks_for(error: Exception, becomes: type[Exception], tmp_path: Path) -> None:
    folder = SourceFolder(str(written(tmp_path, {"a.parquet": b"x"})))
    reader = RowReader(folder, lambda _: _Failing(error))
    with pytest.raises(becomes):
        reader.read(FileRef("a.parquet#row=0000000", 0, 0, "a.parquet", 0))


NPZ = io.BytesIO()
np.savez(NPZ, x=np.zeros((2, 4, 4), np.uint8), y=np.array([0, 1]))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("z.npy", damaged_npy("{'descr': '|u1', 'fortran_order': False, 'shape': (3, ")),
        ("z.npy", damaged_npy("'" + "'" * 2)),
        ("z.npy", damaged_npy("(" * 3000)),
        ("z.npy", damaged_npy("{'descr': [], 'fortran_order': False, 'shape': (3,)}")),
        ("z.npy", npy("(-3, 28, 28)")),
        ("z.npy", npy("(3,)", "'|S0'")),
        ("z.npz", alter_zip(NPZ.getvalue(), method=99)),
        ("z.npz", alter_zip(NPZ.getvalue(), method=12)),
        ("z.npz", alter_zip(NPZ.getvalue(), flags=1)),
    ],
    ids=["brace", "quote", "deep", "no type", "negative", "no size", "unknown", "bzip2", "encrypted"],
)
def test_headers_of_arrays_that_lie(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(NPZ.getvalue())
    found = outcomes(written(tmp_path, {name: data}), "arrays")
    assert found["a.npz#x=0000001"] is None
    assert found[name] == "broken_container"


@pytest.mark.parametrize(
    "data",
    [npy("(1000000000000, 4, 4)", values=b"x" * 40), idx_bytes(np.zeros((2, 4, 4), np.uint8))],
    ids=["npy", "idx"],
)
def test_one_row_stands_for_the_rows_that_a_header_invents(data: bytes, tmp_path: Path) -> None:
    if data.startswith(b"\0\0"):
        data = data[:4] + b"\xff" * 4 + data[8:]
    found = outcomes(written(tmp_path, {"images.npy": data}), "arrays", labels="none")
    rows = {f"images.npy#row=000000{row}": None for row in (0, 1)}
    assert found == {"images.npy": "row_file", **rows, "images.npy#row=0000002": "broken_container"}


def test_labels_that_a_header_invents_need_no_memory(tmp_path: Path) -> None:
    shape = "(1000000000000, 4, 4)"
    files = {"images.npy": npy(shape, values=b"x" * 40), "labels.npy": npy("(1000000000000,)")}
    with pytest.raises(NotFoundError, match="'labels' ends before its"):
        outcomes(written(tmp_path, files), "arrays")
    (tmp_path / "labels.npy").unlink()
    huge = npy("(4294967295, 1048576, 1048576)", values=b"x" * 40)
    found = outcomes(written(tmp_path, {"images.npy": huge}), "arrays", labels="none")
    assert found == {"images.npy": "row_file", "images.npy#row=0000000": "broken_container"}


COCO: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "a.jpg", "height": 4, "width": 4}],
    "annotations": [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 1, 1]}],
    "categories": [{"id": 1, "name": "cat"}],
}


@pytest.mark.parametrize(
    ("part", "entry", "broken"),
    [
        ("images", {"id": 2, "file_name": f"{HALF}.jpg"}, {"i.json#image=2": "broken_row"}),
        ("images", {"id": HALF, "file_name": "b.jpg"}, {"i.json#image=2": "missing_file"}),
        (
            "images",
            {"id": 2, "file_name": "b.jpg", "height": True, "width": 1},
            {"i.json#image=2": "missing_file"},
        ),
        ("annotations", {"image_id": 1, "category_id": 1, "bbox": [int(HUGE), 0, 1, 1]}, {}),
        ("annotations", {"image_id": 1, "category_id": 2, "bbox": [0, 0, 1, 1]}, {}),
    ],
    ids=["name", "id", "size", "number", "class"],
)
def test_values_of_coco_that_lie(part: str, entry: Any, broken: dict[str, str], tmp_path: Path) -> None:
    document = {**COCO, part: [*COCO[part], entry]}
    document["categories"] = [*COCO["categories"], {"id": 2, "name": HALF}]
    folder = written(tmp_path, {"a.jpg": JPEG, "i.json": json.dumps(document)})
    found = outcomes(folder, "coco", objects={"annotations": "i.json"})
    assert found == {"a.jpg": None, "i.json": "table", **broken}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", f'path,label,box\na.jpg,cat,"[{HUGE},1,2,3]"\na.jpg,cat,"[1,1,2,3]"\n'),
        ("t.csv", 'path,label,box\na.jpg,"[""\\ud800""]","[[1,1,2,3]]"\n'),
        ("t.jsonl", f'{{"path": "a.jpg", "label": {HUGE}, "box": [1, 1, 2, {HUGE}]}}\n'),
        ("t.jsonl", f'{{"path": "a.jpg", "label": {HUGE}, "box": [1, 1, 2, 5]}}\n'),
    ],
)
def test_numbers_of_box_tables_that_are_too_large(name: str, text: str, tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.jpg": JPEG, name: text})
    objects = {"annotations": name, "table": {"box_columns": "box"}}
    assert outcomes(folder, "box_table", objects=objects)["a.jpg"] is None


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e30])
def test_labels_of_records_that_are_no_numbers_of_classes(value: float, tmp_path: Path) -> None:
    records = [example(image=[JPEG], label=[1.0]), example(image=[JPEG], label=[value])]
    folder = written(tmp_path, {"a.tfrecord": b"".join(map(frame, records))})
    found = outcomes(folder, "tfrecord", columns={"class_names": ["cat", "dog"]})
    assert [found[f"a.tfrecord#row=000000{row}"] for row in (0, 1)] == [None, "no_label"]


def test_the_first_record_of_a_file_may_be_damaged(tmp_path: Path) -> None:
    records = [b"no example", example(image=[JPEG], label=[1]), b"", example(image=[JPEG], label=[0])]
    folder = written(tmp_path, {"a.tfrecord": b"".join(map(frame, records))})
    found = outcomes(folder, "tfrecord")
    assert [found[f"a.tfrecord#row=000000{row}"] for row in range(4)] == [
        "broken_row",
        None,
        "no_label",
        None,
    ]


@pytest.mark.parametrize("label", [HUGE, "9007199254740993", "9" * 5000, f"-{HUGE}"])
def test_numbers_of_classes_that_are_too_large(label: str, tmp_path: Path) -> None:
    names = "".join(f"{number}:class {number}\n" for number in (0, 9007199254740992))
    table = f"path,label\na.jpg,0\nb.jpg,{label}\n"
    folder = written(tmp_path, {"a.jpg": JPEG, "b.jpg": JPEG, "t.csv": table, "names.txt": names})
    columns = {"classes_file": "names.txt"}
    found = outcomes(folder, "table", table={"file": "t.csv"}, columns=columns)
    assert (found["a.jpg"], found["b.jpg"]) == (None, "no_label")


def test_labels_that_are_no_whole_numbers(tmp_path: Path) -> None:
    labels = np.array([0.0, np.inf, 1e300])
    files = {
        "images.npy": npy("(3, 4, 4)", values=bytes(48)),
        "labels.npy": npy("(3,)", "'<f8'", labels.tobytes()),
    }
    found = outcomes(written(tmp_path, files), "arrays", columns={"class_names": ["cat"]})
    assert [found[f"images.npy#row=000000{row}"] for row in range(3)] == [None, "no_label", "no_label"]


def test_an_error_about_labels_names_the_damaged_file(tmp_path: Path) -> None:
    files = {"images.npy": npy("(3, 4, 4)", values=bytes(48)), "labels.npy": damaged_npy("(")}
    with pytest.raises(ConfigError, match=r"labels\.npy cannot be read"):
        outcomes(written(tmp_path, files), "arrays")


@pytest.mark.parametrize("number", ["9223372036854775807", "-9223372036854775808", "+1234567890123456789"])
@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_whole_numbers_of_64_bits_are_values(number: str, name: str, tmp_path: Path) -> None:
    beyond = str(int(number) * 10)
    rows = ((f"{at}.jpg", text) for at, text in enumerate((number, beyond, "0" * 12)))
    if name == "t.csv":
        text = "path,label,n\n" + "".join(f"{path},x,{value}\n" for path, value in rows)
    else:
        text = "".join(f'{{"path": "{path}", "label": "x", "n": {int(value)}}}\n' for path, value in rows)
    folder = written(tmp_path, {"0.jpg": JPEG, "1.jpg": JPEG, "2.jpg": JPEG, name: text})
    features = {"n": {"dtype": "int64"}}
    config = {"source": {"kind": "table", "table": {"file": name}, "columns": {"features": features}}}
    table = list_inputs(SourceFolder(str(folder)), PrepareConfig.model_validate(config)).table
    found = {row["uri"]: (row["reason"], row["feature:n"]) for row in table.to_pylist()}
    assert found["0.jpg"] == (None, int(number))
    assert found[f"{name}#row=2"] == ("broken_row", None)
    assert found["2.jpg"] == (None, 0)


@pytest.mark.parametrize("row", ["a.jpg", '"a,b.jpg"', "a,b.jpg", "a;b|c.jpg"])
def test_a_table_with_one_column_needs_no_delimiter(row: str, tmp_path: Path) -> None:
    image = row.strip('"')
    folder = written(tmp_path, {image: JPEG, "t.csv": f"path\n{row}\n"})
    found = outcomes(folder, "table", table={"file": "t.csv"}, labels="none")
    assert found == {image: None, "t.csv": "table"}


@pytest.mark.parametrize("text", ["", "\n"])
def test_an_empty_table(text: str, tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.jpg": JPEG, "t.csv": text})
    with pytest.raises(NotFoundError, match=r"t\.csv has no row"):
        outcomes(folder, "table", table={"file": "t.csv"}, columns={"features": ["n"]})


def test_a_feature_that_is_an_empty_list_in_one_table(tmp_path: Path) -> None:
    tables = {
        f"{number}.jsonl": f'{{"path": "{name}.jpg", "label": "x", "n": {value}}}'
        for number, name, value in ((1, "a", "[null]"), (2, "b", "7"))
    }
    folder = written(tmp_path, {"a.jpg": JPEG, "b.jpg": JPEG, **tables})
    found = outcomes(folder, "table", table={"file": "*.jsonl"}, columns={"features": ["n"]})
    assert (found["a.jpg"], found["b.jpg"]) == (None, None)


def test_a_row_that_is_lost_for_another_reason_may_have_a_strange_split(tmp_path: Path) -> None:
    folder = written(tmp_path, {"a.jpg": JPEG, "t.csv": "path,label,split\na.jpg,x,train\na.jpg,,0\n"})
    found = outcomes(folder, "table", table={"file": "t.csv"}, columns={"split": "split"})
    assert found["t.csv#row=2"] == "no_label"


@pytest.mark.parametrize("form", ["npz", "parquet"])
def test_keys_of_vectors_that_are_not_utf8(form: str, tmp_path: Path) -> None:
    if form == "npz":
        keys = np.array([b"caf\xe9", b"b"])
        np.savez(tmp_path / "v.npz", id=keys, embedding=np.ones((2, 4), np.float32))
    else:
        (tmp_path / "v.parquet").write_bytes(parquet(id=LATIN, embedding=[[1.0, 2.0], [1.0, 3.0]]))
    files = EmbeddingFiles.of(SourceFolder(str(tmp_path)), EmbeddingsConfig(file=f"v.{form}"))
    assert files is not None
    with pytest.raises(DataError, match="id is not UTF-8"):
        files.read()


@pytest.mark.parametrize("data", [alter_zip(NPZ.getvalue(), method=99), alter_zip(NPZ.getvalue(), flags=1)])
def test_vectors_in_a_damaged_file(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "v.npz").write_bytes(data.replace(b"x.npy", b"id.py"))
    files = EmbeddingFiles.of(SourceFolder(str(tmp_path)), EmbeddingsConfig(file="v.npz"))
    assert files is not None
    with pytest.raises(DataError, match=r"v\.npz"):
        files.read()


@pytest.mark.parametrize(("kind", "number"), [("parquet", 1106), ("csv", 42)])
def test_damages_that_once_ended_in_a_traceback(kind: str, number: int, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    assert outcome(mutate(kind, number, folder), folder).startswith(("ok", "refused"))
