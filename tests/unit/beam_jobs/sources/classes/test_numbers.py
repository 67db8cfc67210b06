"""Names of classes whose labels are numbers: the forms of the file, and what has no name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from shardmill.beam_jobs.config import ColumnsConfig
from shardmill.beam_jobs.sources.class_names import class_numbers, name_labels, parse_names
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.errors import ConfigError, NotFoundError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cat\ndog\n", {0: "cat", 1: "dog"}),
        ("0:cat\n2 : dog\n\n1,cow", {0: "cat", 2: "dog", 1: "cow"}),
        ('["cat", "dog"]', {0: "cat", 1: "dog"}),
        ('{"1": "cat", "0": "dog"}', {1: "cat", 0: "dog"}),
        ('{"cat": 1, "dog": 0}', {1: "cat", 0: "dog"}),
        ("2:1 photo\n16:9 photo", {2: "1 photo", 16: "9 photo"}),
        ("10 am\n0:5", {0: "10 am", 1: "0:5"}),
        (
            '# COCO\nitem {\n name: \'cat\'\n id: 3 }\nitem: {id: 1, name: "/m/1", display_name: "dog"}',
            {3: "cat", 1: "dog"},
        ),
        (
            'item { name: "cat" id: 3 keypoints { id: 8 label: "nose" } }\nitem { id: 1 name: "dog" }',
            {3: "cat", 1: "dog"},
        ),
    ],
)
def test_forms(text: str, names: dict[int, str]) -> None:
    assert parse_names(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("cat\n\ndog", "a name is empty"),
        ("cat\ncat", "the name 'cat' stands there twice"),
        ("0:cat\n0:dog", "the number 0 stands there twice"),
        ("{'cat'}", "Expecting property name"),
        ("[1, 2]", "neither a list of names"),
        ('item { name: "cat" }', "an item has no id"),
        ("item { id: 1 }", "a name is empty"),
    ],
)
def test_files_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_names(text)


def test_the_file_lies_in_the_source_or_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    folder = SourceFolder(str(tmp_path / "source"))
    (tmp_path / "source" / "names.txt").write_text("cat\ndog", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("caf\xe9".encode("latin-1"))
    for path in ("names.txt", f"{tmp_path}/source/names.txt"):
        assert class_numbers(ColumnsConfig(classes_file=path), folder) == {0: "cat", 1: "dog"}
    with pytest.raises(NotFoundError, match=r"no\.txt"):
        class_numbers(ColumnsConfig(classes_file="no.txt"), folder)
    with pytest.raises(
        ConfigError, match=r"source\.columns\.classes_file = .*latin\.txt' holds no class names"
    ):
        class_numbers(ColumnsConfig(classes_file=f"{tmp_path}/latin.txt"), folder)


def test_labels_are_named() -> None:
    texts = pa.array(["0", "1.0", "cat", "2", None, "-1", "x"])
    labels, faults = name_labels(texts, {0: "cat", 1: "dog"})
    assert labels.to_pylist() == ["cat", "dog", "cat", None, None, None, None]
    assert [fault is not None for fault in faults.to_pylist()] == [
        False,
        False,
        False,
        True,
        False,
        True,
        True,
    ]
    assert name_labels(texts, {})[0] is texts
