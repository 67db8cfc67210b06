"""Files that are predicted, and the forms in which predictions are written."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
import tifffile

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.schemas import file_refs
from shardmill.beam_jobs.sources import list_inputs, open_reader
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.infra.preparation import Preparation
from shardmill.training.export.model_input import ModelInput
from shardmill.training.predicting.inputs import list_files, list_pictures, read_input
from shardmill.training.predicting.outputs import FORMATS, Format, Prediction, open_output
from shardmill.training.tasks.kind import Decisions
from shardmill.training.tasks.registry import KINDS
from tests.samples.images.dicoms import dicom, slice_of

GIVEN = ModelInput(preparation=Preparation(encoding="png"), image_size=16)
PIXELS = np.random.default_rng(3).integers(0, 256, (16, 24, 3)).astype(np.uint8)


def png(pixels: np.ndarray) -> bytes:
    return bytes(cv2.imencode(".png", pixels[:, :, ::-1])[1])


def test_files_come_as_given_and_folders_sorted(tmp_path: Path) -> None:
    for name in ("b/2.jpg", "b/10.jpg", "b/.hidden", "b/a/1.jpg", ".git/x.jpg", "a.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    given = [tmp_path / "missing.jpg", tmp_path / "b", tmp_path / "a.jpg"]
    found = [path.relative_to(tmp_path).as_posix() for path in list_files(given)]
    assert found == ["missing.jpg", "b/10.jpg", "b/2.jpg", "b/a/1.jpg", "a.jpg"]


def test_a_folder_that_cannot_be_listed_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a/1.jpg", "b/2.jpg", "c/3.jpg"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    listed = Path.iterdir

    def refuse(path: Path) -> Iterator[Path]:
        if path.name == "b":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    found = list(list_files([tmp_path]))
    assert found == [tmp_path / "a/1.jpg", tmp_path / "b", tmp_path / "c/3.jpg"]
    refused = read_input(found[1], GIVEN)
    assert (refused.reason, refused.message) == ("unreadable", "the folder cannot be listed")


def test_links_in_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.jpg").touch()
    (tmp_path / "a/above").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to("itself")
    assert list(list_files([tmp_path])) == [tmp_path / "a/1.jpg", tmp_path / "itself"]
    refused = read_input(tmp_path / "itself", GIVEN)
    assert (refused.reason, refused.message) == ("unreadable", "Too many levels of symbolic links")


def test_the_central_square_is_taken(tmp_path: Path) -> None:
    (tmp_path / "wide.png").write_bytes(png(PIXELS))
    found = read_input(tmp_path / "wide.png", GIVEN)
    assert found.seen is not None
    assert np.array_equal(found.seen.pixels, PIXELS[:, 4:20])


def test_pages_are_rows_as_prepare_names_and_reads_them(tmp_path: Path) -> None:
    how = Preparation(pages="images", depth="keep", channels="keep", bands=(2,), encoding="png")
    stack = np.random.default_rng(1).integers(0, 60_000, (3, 16, 16, 3)).astype(np.uint16)
    (tmp_path / "a").mkdir()
    tifffile.imwrite(tmp_path / "a/scan.tif", stack, photometric="rgb")
    tifffile.imwrite(tmp_path / "a/one.tif", stack[0], photometric="rgb")
    (tmp_path / "a/frames").write_bytes(dicom(np.stack([slice_of(0, 0)] * 2)))
    (tmp_path / "a/cut.tif").write_bytes((tmp_path / "a/scan.tif").read_bytes()[:-9_000])
    given = ModelInput(preparation=how, image_size=16, image_channels=1, dtype="uint16")
    found = [
        read_input(path, given, 0, page)
        for path, page in list_pictures([tmp_path / "a"], given.preparation.pages)
    ]
    folder, config = SourceFolder(str(tmp_path)), PrepareConfig.model_validate({"image": {"pages": "images"}})
    listing = list_inputs(folder, config)
    rows = {
        f"{tmp_path}/{row['uri']}": row for row in listing.table.to_pylist() if row["reason"] != "row_file"
    }
    assert [one.path for one in found] == list(rows)
    assert len(found) == 7
    reader = open_reader(folder, config)
    read = {f"{tmp_path}/{one.uri}": reader.read(one) for one in file_refs(listing.to_read())}
    for one in found:
        if rows[one.path]["reason"] is not None:
            assert (one.reason, one.message) == (rows[one.path]["reason"], rows[one.path]["message"])
        elif one.seen is not None:
            assert np.array_equal(one.seen.pixels, given.see(read[one.path]).pixels)
    assert not any(one.has_further for one in found)
    first = ModelInput(
        preparation=how.model_copy(update={"pages": "first"}), image_size=16, image_channels=1, dtype="uint16"
    )
    further = {name: read_input(tmp_path / "a" / name, first).has_further for name in ("scan.tif", "one.tif")}
    assert further == {"scan.tif": True, "one.tif": False}
    scan = [one.seen.pixels for one in found if one.seen is not None and "scan" in one.path]
    assert np.array_equal(np.stack(scan), stack[..., 1:2])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"hello", "unknown_format"),
        (png(PIXELS)[:-200], "truncated"),
        (None, "unreadable"),
    ],
)
def test_a_refused_file_has_a_reason(tmp_path: Path, data: bytes | None, reason: str) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    if data is not None:
        path.write_bytes(data)
    found = read_input(path, GIVEN)
    assert (found.seen, found.reason) == (None, reason)
    assert found.message
    assert found.path.endswith(r"caf\xe9.png")


ROWS = [
    Prediction("a.jpg", [0.25, 0.75]),
    Prediction('odd ",\n name.jpg', (), "truncated", "ends early"),
    Prediction("b.jpg", [1.0, 0.0]),
]
CLASSES = ["cat", "caf\udce9"]
NAMES = ["cat", r"caf\xe9"]


def decisions(task: str) -> Decisions:
    found = KINDS[task].decisions
    assert found is not None
    return found


def written(kind: Format) -> bytes:
    stream = io.BytesIO()
    output = open_output(stream, kind, decisions("single-label"), CLASSES)
    output.add(ROWS[:2])
    output.add(ROWS[2:])
    output.close()
    return stream.getvalue()


def read(kind: Format, data: bytes) -> list[dict[str, object]]:
    """Return the rows of a format as those of JSON."""
    if kind == "json":
        return [json.loads(line) for line in data.splitlines()]
    if kind == "parquet":
        rows = pq.read_table(io.BytesIO(data)).to_pylist()
        return [
            {**row, "probabilities": dict(zip(NAMES, row["probabilities"] or (), strict=False))}
            for row in rows
        ]
    rows = []
    for row in csv.DictReader(io.StringIO(data.decode("utf-8"), newline="")):
        shares = {name: float(row.pop(name)) if row["predicted"] else row.pop(name) for name in NAMES}
        probability = float(row["probability"]) if row["probability"] else None
        plain = {name: row[name] or None for name in ("path", "predicted", "reason", "message")}
        shown = shares if plain["predicted"] else {}
        rows.append({**plain, "probability": probability, "probabilities": shown})
    return rows


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_has_the_same_rows_in_order(kind: Format) -> None:
    assert read(kind, written(kind)) == [
        {
            "path": one.path,
            "predicted": NAMES[int(np.argmax(one.values))] if one.values else None,
            "probability": max(one.values, default=None),
            "reason": one.reason,
            "message": one.message,
            "probabilities": dict(zip(NAMES, one.values, strict=False)),
        }
        for one in ROWS
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_no_files_make_an_empty_file(kind: Format) -> None:
    stream = io.BytesIO()
    open_output(stream, kind, decisions("single-label"), CLASSES).close()
    assert read(kind, stream.getvalue()) == []


def output_of(task: str, kind: Format, rows: list[Prediction]) -> bytes:
    stream = io.BytesIO()
    output = open_output(stream, kind, decisions(task), ["cat", "dog"])
    output.add(rows)
    output.close()
    return stream.getvalue()


REFUSED = Prediction("b.jpg", (), "empty", "no bytes")


def test_several_labels_are_lists() -> None:
    rows = [Prediction("a.jpg", [0.9, 0.75]), Prediction("none.jpg", [0.25, 0.5]), REFUSED]
    lines = output_of("multi-label", "csv", rows).decode().splitlines()
    assert lines == [
        "path,predicted,reason,message,cat,dog",
        "a.jpg,cat; dog,,,0.900000,0.750000",
        "none.jpg,,,,0.250000,0.500000",
        "b.jpg,,empty,no bytes,,",
    ]
    objects = list(map(json.loads, output_of("multi-label", "json", rows).splitlines()))
    assert [one["predicted"] for one in objects] == [["cat", "dog"], [], None]
    assert objects[0]["probabilities"] == {"cat": 0.9, "dog": 0.75}
    table = pq.read_table(io.BytesIO(output_of("multi-label", "parquet", rows)))
    assert table["predicted"].to_pylist() == [["cat", "dog"], [], None]
    assert table["probabilities"].to_pylist()[1] == [0.25, 0.5]


def test_numbers_are_columns_of_their_own() -> None:
    rows = [Prediction("a.jpg", [1234.5, -0.25]), REFUSED]
    lines = output_of("regression", "csv", rows).decode().splitlines()
    assert lines == ["path,reason,message,cat,dog", "a.jpg,,,1234.5,-0.25", "b.jpg,empty,no bytes,,"]
    objects = list(map(json.loads, output_of("regression", "json", rows).splitlines()))
    assert [one["predicted"] for one in objects] == [{"cat": 1234.5, "dog": -0.25}, {}]
    table = pq.read_table(io.BytesIO(output_of("regression", "parquet", rows)))
    assert table["predicted"].to_pylist() == [[1234.5, -0.25], None]


def test_files_of_many_channels_are_shown_in_grey(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 4096, (16, 24, 5)).astype(np.uint16)
    np.save(tmp_path / "a.npy", values)
    how = Preparation(depth="keep", channels="keep", resize="none")
    given = ModelInput(preparation=how, image_size=16, image_channels=5, dtype="uint16")
    found = read_input(tmp_path / "a.npy", given, 12)
    assert found.seen is not None, found.message
    assert found.shown is not None
    np.testing.assert_array_equal(found.seen.pixels, values[:, 4:20])
    assert found.shown.shape == (8, 12, 3)
