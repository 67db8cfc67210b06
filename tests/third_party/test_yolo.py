"""The package ultralytics checks our YOLO exports, and takes and refuses the rows that our kind does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.beam_jobs.sources.files.folder import SourceFolder
from shardmill.beam_jobs.sources.kinds import yolo
from shardmill.infra.dataset.exports.export import export
from tests.environments import NotInstallable, environment
from tests.samples.images.photos import jpeg
from tests.unit.infra.dataset.exports.test_yolo import version_with

REPOSITORY = Path(__file__).parents[2]

_CHECK = """
import json, sys
from pathlib import Path
from ultralytics.data.utils import check_det_dataset, verify_image_label

folder = Path(sys.argv[1])
data = check_det_dataset(str(folder / "data.yaml"), autodownload=False)
count, per_point = data.get("kpt_shape") or (0, 0)
found = {}
for image in sorted((folder / "images/train").iterdir()):
    label = folder / "labels/train" / f"{image.stem}.txt"
    asked = (str(image), str(label), "", bool(count), data["nc"], count, per_point, False)
    read = verify_image_label(asked)
    rows = None if read[0] is None else read[1].tolist()
    found[image.stem] = [rows, read[-1]]
print("found" + json.dumps([data["names"], found]))
"""


def checked(folder: Path) -> tuple[dict[str, str], dict[str, list[Any]]]:
    """Names of classes; image -> the rows that ultralytics reads (None: refused), and what it says."""
    try:
        packages = Path(__file__).parent / "requirements" / "ultralytics.txt"
        python = environment(REPOSITORY / ".venv-readers", packages)
    except NotInstallable as why:
        pytest.skip(f"ultralytics was NOT asked: {why}")
    done = subprocess.run(
        [python, "-c", _CHECK, folder], capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "YOLO_CONFIG_DIR": str(folder.parent), "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("found"))
    names, found = json.loads(line.removeprefix("found"))
    return names, found


def boxes_of(folder: Path) -> dict[str, list[Any]]:
    """Image -> the edges that our kind reads, float32 [N, 4], and how many objects it leaves out."""
    config = PrepareConfig.model_validate({"source": {"kind": "yolo"}})
    rows = yolo.list_inputs(SourceFolder(str(folder)), config).table.to_pylist()
    images = [row for row in rows if row["uri"].startswith("images/")]
    boxes = [np.reshape(row["feature:objects/bbox"], (-1, 4)) for row in images]
    lost = [row["feature:objects/num_left_out"] for row in images]
    return {Path(row["uri"]).stem: pair for row, *pair in zip(images, boxes, lost, strict=True)}


def edges(rows: list[list[float]]) -> np.ndarray:
    _, x, y, width, height = np.reshape(rows, (-1, 5)).T
    return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], axis=1).clip(0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("shapes", [(), ("polygons",), ("keypoints",), ("corners",)])
def test_ultralytics_takes_every_file_of_an_export(shapes: tuple[str, ...], tmp_path: Path) -> None:
    version = version_with(tmp_path / "sets", *shapes)
    export(version, tmp_path / "out", "yolo")
    names, found = checked(tmp_path / "out")
    assert list(names.values()) == version.manifest.classes
    for image, (boxes, _) in boxes_of(tmp_path / "out").items():
        rows, said = found[image]
        assert said == ""
        np.testing.assert_allclose(np.sort(edges(rows), axis=0), np.sort(boxes, axis=0), rtol=0, atol=2**-22)


@pytest.mark.slow
def test_ultralytics_refuses_what_our_kind_leaves_out(tmp_path: Path) -> None:
    random, odd = (
        np.random.default_rng(1),
        ["nan", "inf", "-0.005", "1.005", "1.02", "-0.02", "x", "1e400", "-1"],
    )
    for folder in ("images/train", "labels/train"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data.yaml").write_text("train: images/train\nval:\nnames: [a, b, c]\n")
    for number in range(300):
        values = [f"{value:.4f}" for value in random.uniform(0.2, 0.5, 4)]
        words = [str(random.integers(0, 4)), *values, *["0.5"] * int(random.integers(0, 8) == 0)]
        if number % 2:
            words[int(random.integers(len(words)))] = str(random.choice(odd))
        lines = [" ".join(words)] * (1 + number % 3)
        (tmp_path / "images/train" / f"{number}.jpg").write_bytes(jpeg(number))
        (tmp_path / "labels/train" / f"{number}.txt").write_text("\n".join(lines))
    _, found = checked(tmp_path)
    for image, (boxes, num_left_out) in boxes_of(tmp_path).items():
        rows, said = found[image]
        if rows is None:
            assert (len(boxes), num_left_out) == (0, 1 + int(image) % 3)
        else:
            np.testing.assert_allclose(edges(rows), boxes, rtol=0, atol=2**-22)
            assert ("duplicate" in said) == (num_left_out > 0)
