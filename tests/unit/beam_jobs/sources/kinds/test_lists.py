"""Lists of images: broken lines cost themselves, and what cannot be told is refused by name."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io  # type: ignore[import-untyped]

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources import list_inputs
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds.lists.matlab import read_matlab, rows_of_matlab
from shardmill.infra.errors import ConfigError, NotFoundError
from tests.samples.images.photos import write


def rows(source: Path, labels: str | None = None, **options: Any) -> dict[str, tuple[Any, Any, Any]]:
    """URI -> label, split and reason."""
    settings = {"kind": "lists", "options": options} | ({"labels": labels} if labels else {})
    config = PrepareConfig.model_validate({"source": settings})
    table = list_inputs(SourceFolder(str(source)), config).table.to_pylist()
    return {row["uri"]: (row["label"], row["split"], row["reason"]) for row in table}


def test_a_broken_line_costs_itself(tmp_path: Path) -> None:
    write(
        tmp_path, dict.fromkeys(("a/1.jpg", "a/my cat.jpg", "a/3.jpg", "a/4.jpg", "a/5.jpg", "a/6.jpg"), b"")
    )
    write(
        tmp_path,
        {
            "l.txt": b"#\n\n1.jpg 0\nmy cat.jpg 1\n3.jpg\ngone.jpg 1\n../x 1\n4.jpg 1\n4.jpg 0\n6.jpg 1\n",
            "train.txt": b"1.jpg\n6.jpg\n",
            "test.txt": b"6.jpg\n",
        },
    )
    lists = [
        {"file": "l.txt", "images": "a", "label": 2},
        {"file": "train.txt", "images": "a", "split": "train"},
        {"file": "test.txt", "images": "a", "split": "test"},
    ]
    found = rows(tmp_path, lists=lists)
    assert found["a/1.jpg"] == ("0", "train", None)
    assert found["a/my cat.jpg"] == ("1", None, None)
    assert found["a/6.jpg"][2] == "contradicting_rows", "it is in two splits"
    assert found["a/3.jpg"][2] == "no_label"
    assert found["a/4.jpg"][2] == "contradicting_rows"
    assert found["a/5.jpg"] == (None, None, "not_in_table")
    assert found["l.txt#row=6"][2] == "missing_file"
    assert found["l.txt#row=7"][2] == "bad_path"


def test_quotes_may_hold_ends_of_lines(tmp_path: Path) -> None:
    text = 'image,note,class\n1.jpg,"a\n\n# b",cat\n\n"2.jpg",x"y"z,dog\n# a comment\n3.jpg,\'"a" b\',cat\n'
    write(tmp_path, {"l.csv": text.encode(), "1.jpg": b"", "2.jpg": b"", "3.jpg": b""})
    lists = [{"file": "l.csv", "separator": ",", "skip": 1, "label": 3}]
    found = rows(tmp_path, lists=lists)
    assert [found[f"{number}.jpg"][0] for number in (1, 2, 3)] == ["cat", "dog", "cat"]
    write(tmp_path, {"l.csv": text.encode() + b'gone.jpg,"a\nb",cat\n'})
    assert rows(tmp_path, lists=lists)["l.csv#row=9"][2] == "missing_file", "numbers are those of lines"
    write(tmp_path, {"l.csv": text.encode() + b'4.jpg,"a,cat\n'})
    with pytest.raises(ConfigError, match="unexpected end of data"):
        rows(tmp_path, lists=lists)


def test_several_classes_of_an_image(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"l.csv": b"image,a,b\n1,1,1\n2,0,0\n3,1,0\n", "x/1.jpg": b"", "y/2.jpg": b"", "y/3.jpg": b""},
    )
    one = {"file": "l.csv", "separator": ",", "skip": 1, "label": "columns", "images": "*"}
    found = rows(tmp_path, "multi", lists=[one])
    assert (found["x/1.jpg"][0], found["y/2.jpg"][0]) == ("a, b", "")
    found = rows(tmp_path, lists=[one])
    assert (found["x/1.jpg"][2], found["y/3.jpg"][0]) == ("no_label", "a"), "the first has two classes"
    write(tmp_path, {"m.txt": b"1 a|b\n2 b\n"})
    found = rows(tmp_path, "multi", lists=[{"file": "m.txt", "label": 2, "images": "*"}])
    assert (found["x/1.jpg"][0], found["y/2.jpg"][0]) == ("a, b", "b")


@pytest.mark.parametrize(
    ("files", "options", "words"),
    [
        (
            {"l.txt": b"1\n2\n"},
            {"lists": [{"file": "l.txt", "image": 0, "label": 1}]},
            "2 lines, .* 1 images",
        ),
        (
            {"l.txt": b"1 7\n", "names.txt": b"1 cat\n"},
            {"lists": [{"file": "l.txt", "label": 2}], "names": "names.txt"},
            "no line for the classes 7",
        ),
        (
            {"l.json": b'{"images": []}'},
            {"lists": [{"file": "l.json", "label": 2}]},
            "no images with categories",
        ),
        (
            {"l.mat": b"MATLAB 7.3"},
            {"lists": [{"file": "l.mat", "label": 1}]},
            "no file of MATLAB of level 5",
        ),
        ({"l.txt": b"1 a\n"}, {"lists": [{"file": "l.txt", "label": 0}]}, "greater than or equal to 1"),
        ({"l.txt": b"1 a\n"}, {"list": []}, "source.options"),
    ],
)
def test_what_cannot_be_read_is_refused(
    files: dict[str, bytes], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    write(tmp_path, {"1.jpg": b"", **files})
    with pytest.raises(ConfigError, match=words):
        rows(tmp_path, **options)


def test_lists_of_other_images_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"1.jpg": b"", "l.txt": b"7.jpg a\n"})
    with pytest.raises(NotFoundError, match="no row of the table names a file"):
        rows(tmp_path, lists=[{"file": "l.txt", "label": 2}])
    with pytest.raises(NotFoundError, match=r"there is no table .*gone\.txt"):
        rows(tmp_path, lists=[{"file": "gone.txt", "label": 2}])


def test_damaged_files_of_matlab_are_refused() -> None:
    structures = np.zeros((1, 2), [("fname", object), ("class", object)])
    structures[0, 0], structures[0, 1] = ("a.jpg", 1), ("b.jpg", 300)
    values = {
        "n": np.arange(6.0).reshape(2, 3), "t": "héllo", "c": np.array(["x", "y"], object), "s": structures,
        "i": np.int64(-7),
    }  # fmt: skip
    for is_packed in (False, True):
        sink = io.BytesIO()
        scipy.io.savemat(sink, values, do_compression=is_packed)
        found = read_matlab(sink.getvalue())
        np.testing.assert_array_equal(found["n"], values["n"])
        assert (found["t"], found["c"], found["i"]) == ("héllo", ["x", "y"], -7)
        assert found["s"] == [{"fname": "a.jpg", "class": 1}, {"fname": "b.jpg", "class": 300}]
        for end in range(0, len(sink.getvalue()), 5):
            try:
                read_matlab(sink.getvalue()[:end])
            except ValueError:
                continue
        rng = np.random.default_rng(3)
        for _ in range(100):
            data = bytearray(sink.getvalue())
            for at in rng.integers(128, len(data), 4):
                data[at] = rng.integers(256)
            try:
                read_matlab(bytes(data))
            except ValueError:
                continue


@pytest.mark.parametrize(
    "values",
    [
        {"one": np.array([1.0, np.inf]), "other": np.array([2.0])},
        {"one": np.array([1.0, 2.5]), "other": np.array([np.nan])},
        {"features": np.zeros((5, 3))},
        {"features": np.zeros((5, 3)), "labels": np.arange(1.0, 6)},
    ],
)
def test_other_numbers_of_matlab_are_no_list(values: dict[str, Any]) -> None:
    sink = io.BytesIO()
    scipy.io.savemat(sink, values)
    with pytest.raises(ValueError, match="nor a division of images"):
        rows_of_matlab(sink.getvalue())
