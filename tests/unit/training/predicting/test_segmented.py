"""Predicted masks in the size of their images, their files, and the table that names them."""

from __future__ import annotations

import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill.infra.codecs.masks import class_colors, decode_stored_mask, lay_over
from shardmill.infra.preparation import Preparation
from shardmill.training.export.model_input import ModelInput
from shardmill.training.predicting.inputs import read_input
from shardmill.training.predicting.outputs import FORMATS, Format, open_output
from shardmill.training.predicting.segmented import MaskFiles, MaskNames, mask_decisions

SIDE = 8
HALVES = np.repeat(np.array([[0] * 4 + [1] * 4], np.uint8), SIDE, axis=0)  # left 0, right 1
NAMES = ["sky", "caf\udce9"]


def test_names_are_those_of_the_images_and_never_twice() -> None:
    names = MaskNames([Path("new"), Path("/abs")])
    given = ["new/a.jpg", "new/b/a.jpg", "new/a.png", "/abs/a.jpg", "../x/c.jpg", "new/..a", "new/a-2.jpg"]
    found = [names.name_of(Path(name)) for name in given]
    assert found == ["a", "b/a", "a-2", "a-3", "c", "..a", "a-2-2"]
    long = names.name_of(Path("new") / ("é" * 120 + ".jpg"))
    assert len(os.fsencode(long + "-2.png")) < 255


def written(folder: Path, kind: Format, overlays: bool) -> tuple[bytes, Path]:
    pixels = np.full((20, 30, 3), 200, np.uint8)
    good = folder / "in" / os.fsdecode(b"caf\xe9.png")
    good.parent.mkdir(exist_ok=True)
    good.write_bytes(bytes(cv2.imencode(".png", pixels)[1]))
    paths = [folder / "in" / "missing.jpg", good]
    given = ModelInput(preparation=Preparation(), image_size=SIDE, fit="stretch")
    inputs = [read_input(path, given, 15 if overlays else 0) for path in paths]
    files = MaskFiles(folder / f"out.{kind}", MaskNames([folder / "in"]), 2, overlays)
    stream = io.BytesIO()
    output = open_output(stream, kind, mask_decisions(overlays=overlays), NAMES)
    with ThreadPoolExecutor(2) as threads:
        pairs = list(zip(paths, inputs, strict=True))
        output.add(list(files.predictions(pairs, HALVES[np.newaxis], threads.map)))
        output.add(list(files.predictions(pairs[:1], None, threads.map)))
    output.close()
    return stream.getvalue(), folder


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("overlays", [False, True])
def test_the_table_names_the_masks(tmp_path: Path, kind: Format, overlays: bool) -> None:
    data, folder = written(tmp_path, kind, overlays)
    (mask_file,) = (folder / "out-masks").iterdir()
    assert os.fsencode(mask_file.name) == b"caf\xe9.png"
    mask = decode_stored_mask(mask_file.read_bytes())
    assert mask.shape == (20, 30)
    assert np.bincount(mask.ravel()).tolist() == [300, 300]
    named = {"mask": r"out-masks/caf\xe9.png", "overlay": r"out-overlays/caf\xe9.jpg"}
    if overlays:
        (overlay,) = (folder / "out-overlays").iterdir()
        assert cv2.imdecode(np.frombuffer(overlay.read_bytes(), np.uint8), cv2.IMREAD_COLOR).shape == (
            10,
            15,
            3,
        )
    else:
        assert not (folder / "out-overlays").exists()
        del named["overlay"]
    if kind == "csv":
        lines = data.decode("utf-8").splitlines()
        columns = ",".join(named)
        assert lines[0] == rf"path,height,width,{columns},reason,message,sky,caf\xe9"
        assert lines[2].endswith(rf"caf\xe9.png,20,30,{','.join(named.values())},,,0.500000,0.500000")
        assert lines[3] == lines[1]
        assert "unreadable" in lines[1]
        return
    if kind == "json":
        rows = [json.loads(line) for line in data.splitlines()]
        assert rows[1]["shares"] == {"sky": 0.5, r"caf\xe9": 0.5}
    else:
        table = pq.read_table(io.BytesIO(data))
        rows = table.to_pylist()
        assert rows[1]["shares"] == [0.5, 0.5]
    assert [row["reason"] for row in rows] == ["unreadable", None, "unreadable"]
    assert {name: rows[1][name] for name in named} == named
    assert (rows[1]["height"], rows[1]["width"], rows[0]["mask"]) == (20, 30, None)


def test_colors_of_neighbouring_classes_differ_and_pixels_of_no_class_keep_theirs() -> None:
    colors = class_colors(255).astype(int)
    assert len({tuple(color) for color in colors.tolist()}) == 255
    assert (np.abs(np.diff(colors, axis=0)).sum(1) >= 64).all()
    pixels = np.full((1, 3, 1), 100, np.uint8)
    found = lay_over(pixels, np.array([[0, 1, 255]], np.uint8), 2)
    assert found[0, 2].tolist() == [100, 100, 100]
    assert found[0, 0].tolist() != found[0, 1].tolist()
    enlarged = lay_over(pixels[:, [0, 0, 1, 1, 2, 2]], np.array([[0, 1, 255]], np.uint8), 2)
    assert enlarged.tolist() == found[:, [0, 0, 1, 1, 2, 2]].tolist()
