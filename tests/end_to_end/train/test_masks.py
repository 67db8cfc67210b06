"""Training on masks, by the command: the mean IoU rises, and the exported model gives a mask."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from shardmill.infra.codecs.masks import decode_stored_mask
from tests.samples.images.masks import config, make_masked, painted
from tests.samples.preparing.prepared import run

pytestmark = pytest.mark.slow

_USE = """
import json, sys
import tensorflow as tf
served = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
found = served(image_bytes=tf.constant([open(sys.argv[2], "rb").read()]))
sides = found["probabilities"].shape[1:].as_list()
print(json.dumps({"mask": found["mask"].numpy()[0].tolist(), "sides": sides}))
"""


def test_a_unet_is_trained_evaluated_and_exported(tmp_path: Path) -> None:
    source, root = make_masked(tmp_path / "photos", 60), tmp_path / "root"
    run(source, root, **config(image={"size": 64}))
    settings = {
        "model.name": "small_unet", "data.image_size": 64, "data.global_batch_size": 8, "run.epochs": 12,
        "optimizer.learning_rate": 0.003,
    }  # fmt: skip
    command = [sys.executable, "-m", "shardmill.training.train", "d", "--root", str(root), "--json"]
    command += ["--runs", str(tmp_path / "runs")]
    command += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["metrics"]["validation"]["mean_iou"] > 0.8
    assert result["metrics"]["test"]["per_class"]["box"]["iou"] > 0.5
    (folder,) = (tmp_path / "runs").glob("d-v1-*")
    page = (folder / "report.html").read_text()
    assert "mean IoU" in page
    assert "Left the mask of the record" in page
    assert '#800000"/></svg>ground' in page
    assert re.search(r'width="174" height="64"', page), "two pictures of 85 pixels side by side"
    predictions = pq.read_table(folder / "predictions-test.parquet").to_pylist()
    for row in predictions:
        label, predicted = decode_stored_mask(row["label"]), decode_stored_mask(row["predicted"])
        counts = label != 255
        assert row["pixel_accuracy"] == pytest.approx((label == predicted)[counts].mean())
    used = subprocess.run(
        [sys.executable, "-c", _USE, str(folder / "export"), str(source / "images" / "000.png")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    served = json.loads(used.stdout.splitlines()[-1])
    assert served["sides"] == [64, 64, 3]
    wanted = painted(0)[1][np.ix_(np.arange(64) * 96 // 64, np.arange(64) * 128 // 64)]
    assert (np.array(served["mask"]) == wanted)[wanted != 255].mean() > 0.9
    check_predicted_files(folder, source, tmp_path)


def check_predicted_files(folder: Path, source: Path, place: Path) -> None:
    """The predicted masks have the size of their files, and show what the files show."""
    images = [*sorted((source / "images").iterdir())[:9], place / "missing.png"]
    command = [
        sys.executable,
        "-m",
        "shardmill.flows.cli",
        "predict",
        str(folder),
        *map(str, images),
        "--overlays",
    ]
    command += ["--format", "json", "--out", str(place / "found.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, "a file that was named is missing"
    assert "9 files predicted, 1 refused" in done.stdout
    rows = [json.loads(line) for line in (place / "found.json").read_text().splitlines()]
    assert [row["reason"] for row in rows] == [None] * 9 + ["unreadable"]
    for seed, row in enumerate(rows[:9]):
        wanted = painted(seed)[1]  # of the upright image, whatever its orientation
        found = decode_stored_mask((place / row["mask"]).read_bytes())
        assert found.shape == wanted.shape == (row["height"], row["width"])
        assert (found == wanted)[wanted != 255].mean() > 0.9
        assert row["shares"]["disc"] == pytest.approx((found == 1).mean(), abs=1e-6)
        assert (place / row["overlay"]).stat().st_size > 500
    printed = subprocess.run([*command[:-4], "--format", "json"], capture_output=True, text=True, check=False)
    assert "--out predictions.csv" in printed.stderr
