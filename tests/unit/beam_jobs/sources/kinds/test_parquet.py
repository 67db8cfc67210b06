"""Images in the rows of Parquet files: labels, splits, columns, damaged files, and reading in any order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.files.walking import SourceFault
from shardmill.infra.errors import ConfigError, NotFoundError, UsageError
from tests.samples.images.photos import jpeg, write
from tests.samples.sources.rows import (
    IMAGE_STRUCT,
    config_of,
    hugging_face_table,
    images_of,
    listed,
    outcomes,
    write_parquet,
)

NAMES = ("cat", "dog")


def uri(file: str, row: int) -> str:
    return f"{file}#row={row:07}"


def test_a_data_set_of_hugging_face_is_understood_without_settings(tmp_path: Path) -> None:
    train = hugging_face_table([jpeg(number) for number in range(6)], [0, 1, 0, 1, 0, -1], NAMES)
    write_parquet(tmp_path / "data/train-00000-of-00001.parquet", train)
    test = hugging_face_table([jpeg(10), None], [1, 0], NAMES)
    write_parquet(tmp_path / "data/test-00000-of-00001.parquet", test)
    write(tmp_path, {"README.md": b"", "data/cover.jpg": jpeg(20)})
    found = outcomes(listed(tmp_path, "parquet"))
    train_file, test_file = "data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"
    assert found == {
        "README.md": (None, None, "ignored"),
        "data/cover.jpg": (None, None, "other_file"),
        test_file: (None, None, "row_file"),
        uri(test_file, 0): ("dog", "test", None),
        uri(test_file, 1): ("cat", "test", None),
        train_file: (None, None, "row_file"),
        **{uri(train_file, row): (NAMES[row % 2], "train", None) for row in range(5)},
        uri(train_file, 5): (None, "train", "no_label"),
    }
    images = images_of(tmp_path, "parquet")
    assert images[uri(test_file, 0)] == jpeg(10)
    assert images[uri(test_file, 1)] == ("no_image", "its column 'image' is empty")
    assert [images[uri(train_file, row)] for row in range(5)] == [jpeg(row) for row in range(5)]


def test_plain_columns_with_settings(tmp_path: Path) -> None:
    table = pa.table(
        {
            "picture": pa.array([jpeg(number) for number in range(6)], pa.large_binary()),
            "thumb": pa.array([b"x"] * 6, pa.binary()),
            "what": ["Hat", "Shirt", "Skip", None, "Polo", "Hat"],
            "part": ["train", "VAL", None, "test", "holdout", ""],
            "person": [1, 1, 2, 2, 3, None],
        }
    )
    write_parquet(tmp_path / "all.parquet", table)
    settings: dict[str, Any] = {
        "image": "picture", "label": "what", "split": "part", "group": "person", "drop_labels": "Skip",
        "merge_labels": {"Polo": "Shirt"},
    }  # fmt: skip
    listing = listed(tmp_path, "parquet", **settings)
    assert list(outcomes(listing).values()) == [
        (None, None, "row_file"),
        ("Hat", "train", None),
        ("Shirt", "validation", None),
        ("Skip", None, "dropped_label"),
        (None, "test", "no_label"),
        ("Shirt", None, "unknown_split"),
        ("Hat", None, None),
    ]
    assert listing.table["group"].to_pylist() == [None, "1", "1", "2", "2", "3", None]
    images = images_of(tmp_path, "parquet", **settings)
    assert images[uri("all.parquet", 5)] == jpeg(5)


def test_numbers_are_named_by_the_settings_or_by_a_file(tmp_path: Path) -> None:
    write_parquet(
        tmp_path / "a.parquet", pa.table({"image": [jpeg(0), jpeg(1), jpeg(2)], "label": [0, 1, 2]})
    )
    labels = {"class_names": ["zero", "one"]}
    found = [label for label, _, _ in outcomes(listed(tmp_path, "parquet", **labels)).values()]
    assert found == [None, "zero", "one", None]
    write(tmp_path, {"names.txt": b"0:zero\n2:two\n1:one\n"})
    found = [
        label for label, _, _ in outcomes(listed(tmp_path, "parquet", classes_file="names.txt")).values()
    ]
    assert found == [None, "zero", "one", "two", None], "the last row is names.txt"
    with pytest.raises(ConfigError, match="both class_names and classes_file"):
        listed(tmp_path, "parquet", classes_file="names.txt", **labels)
    assert outcomes(listed(tmp_path, "parquet"))[uri("a.parquet", 2)] == ("2", None, None)


def test_names_of_files_give_no_split_if_they_are_not_to(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train/a.parquet", hugging_face_table([jpeg(0)], [0], NAMES))
    assert outcomes(listed(tmp_path, "parquet"))[uri("train/a.parquet", 0)] == ("cat", "train", None)
    found = outcomes(listed(tmp_path, "parquet", splits_from_names=False))
    assert found[uri("train/a.parquet", 0)] == ("cat", None, None)


def test_a_pattern_chooses_the_files(tmp_path: Path) -> None:
    for name in ("data/a.parquet", "data/b.bin", "other/c.parquet"):
        write_parquet(tmp_path / name, hugging_face_table([jpeg(0)], [0], NAMES))
    found = outcomes(listed(tmp_path, "parquet", files="data/*"))
    assert set(found) == {
        "data/a.parquet", uri("data/a.parquet", 0), "data/b.bin", uri("data/b.bin", 0)
    }  # fmt: skip
    assert listed(tmp_path, "parquet", files="other/c.parquet").table.num_rows == 2


@pytest.mark.parametrize(
    ("columns", "settings", "message"),
    [
        ({"path": ["a.jpg"], "label": ["x"]}, {}, "no column that could hold images; it has path"),
        ({"a": [b"x"], "b": [b"x"], "label": ["x"]}, {}, "several columns that could hold images: a, b"),
        ({"image": [b"x"], "kind": ["x"]}, {}, "which column of a.parquet holds the label .* 'kind'"),
        ({"image": [b"x"], "kind": ["x"]}, {"label": "kinds"}, "no column 'kinds' .*did you mean .*=kind"),
        ({"image": [b"x"], "objects/bbox": [[0.5]]}, {}, "rows of a.parquet have objects, whose boxes"),
        ({"image": [b"x"], "label": [["x"]]}, {}, "'label' of the table a.parquet holds list"),
        (
            {"image": ["x"], "label": ["x"]},
            {"image": "image"},
            "'image' of a.parquet holds string, not images",
        ),
    ],
)
def test_what_cannot_be_told_is_asked_for(
    tmp_path: Path, columns: dict[str, Any], settings: dict[str, str], message: str
) -> None:
    write_parquet(tmp_path / "a.parquet", pa.table(columns))
    with pytest.raises((ConfigError, UsageError), match=message):
        listed(tmp_path, "parquet", **settings)


def test_a_file_cut_short_is_one_row_and_the_others_are_kept(tmp_path: Path) -> None:
    table = hugging_face_table([jpeg(number) for number in range(8)], [0, 1] * 4, NAMES)
    for name in ("a.parquet", "b.parquet"):
        write_parquet(tmp_path / name, table)
    whole = (tmp_path / "b.parquet").read_bytes()
    for length in (0, 3, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / "b.parquet").write_bytes(whole[:length])
        found = outcomes(listed(tmp_path, "parquet"))
        assert found["b.parquet"] == (None, None, "broken_container")
        assert len(found) == 2 + 8
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(NotFoundError, match="hold no image: it cannot be read as Parquet"):
        listed(tmp_path, "parquet")


def test_damaged_row_groups_cost_their_own_rows_only(tmp_path: Path) -> None:
    images = [random.Random(number).randbytes(2000) for number in range(40)]
    write_parquet(tmp_path / "a.parquet", hugging_face_table(images, [0, 1] * 20, NAMES), row_group_size=10)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    at = bytes(data).index(images[15][:50])
    data[at - 400 : at + 400] = bytes(800)  # images within the second row group
    (tmp_path / "a.parquet").write_bytes(bytes(data))
    found = list(images_of(tmp_path, "parquet").values())
    assert len(found) == 40
    assert found[:10] == images[:10]
    assert found[20:] == images[20:]
    lost = [image for image, right in zip(found[10:20], images[10:20], strict=True) if image != right]
    assert lost


def test_rows_are_read_in_any_order_and_by_their_uri_alone(tmp_path: Path) -> None:
    images = [jpeg(number, 8, 8) for number in range(50)]
    write_parquet(tmp_path / "a.parquet", hugging_face_table(images, [0] * 50, NAMES), row_group_size=7)
    folder, config = SourceFolder(str(tmp_path)), config_of("parquet")
    refs = list(file_refs(list_inputs(folder, config).to_read()))
    reader = open_reader(folder, config)
    for row in random.Random(0).sample(range(50), 50):
        assert reader.read(refs[row]) == images[row]
    bare = type(refs[3])(refs[3].uri, refs[3].size_bytes, refs[3].mtime_ns)
    assert reader.read(bare) == images[3]
    write_parquet(tmp_path / "a.parquet", hugging_face_table(images, [1] * 50, NAMES))
    fresh = open_reader(folder, config)
    with pytest.raises(SourceFault, match="has changed since it was listed"):
        fresh.read(refs[3])
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(SourceFault) as fault:
        open_reader(folder, config).read(refs[3])
    assert fault.value.reason == "vanished"


def test_an_image_longer_than_allowed_is_not_passed_on(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", hugging_face_table([b"x" * 100, b"y" * 10], [0, 0], NAMES))
    folder, config = SourceFolder(str(tmp_path), max_bytes=50), config_of("parquet")
    refs = list(file_refs(list_inputs(folder, config).to_read()))
    reader = open_reader(folder, config)
    with pytest.raises(SourceFault, match="at most 50"):
        reader.read(refs[0])
    assert reader.read(refs[1]) == b"y" * 10


def test_labels_that_no_row_has_are_named_in_a_warning(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", hugging_face_table([jpeg(0)], [0], NAMES))
    warnings = listed(tmp_path, "parquet", drop_labels=["bird"]).warnings
    assert "source.columns.drop_labels names 'bird', which is the label of no row" in warnings
    (warning,) = [text for text in listed(tmp_path, "parquet", drop_labels=["cta"]).warnings if "cta" in text]
    assert warning.endswith("which is the label of no row; did you mean 'cat'?")


def test_other_classes_are_left_out(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", hugging_face_table([jpeg(0), jpeg(1)], [0, 1], NAMES))
    config = {"source": {"kind": "parquet"}, "filter": {"classes": ["dog"]}}
    listing = list_inputs(SourceFolder(str(tmp_path)), PrepareConfig.model_validate(config))
    assert [row[2] for row in outcomes(listing).values()] == ["row_file", "class", None]


def test_structs_need_bytes(tmp_path: Path) -> None:
    cells = pa.array([{"path": "a.jpg"}], pa.struct([("path", pa.string())]))
    write_parquet(tmp_path / "a.parquet", pa.table({"image": cells, "label": ["x"]}))
    with pytest.raises(ConfigError, match="holds struct<path: string>, not images"):
        listed(tmp_path, "parquet", image="image")
    assert IMAGE_STRUCT.get_field_index("bytes") == 0
