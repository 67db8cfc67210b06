"""A model of a tutorial, 28 × 28 × 1, trains on grey records and is exported."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.samples.datasets.published import Picture, publish
from tests.samples.training.trainer import settings, train_here


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated")
def test_a_model_of_one_channel_trains_and_is_exported(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    random = np.random.default_rng(0)
    pictures = [
        Picture(split, name, random.integers(low, low + 80, (30, 30, 1), dtype=np.uint8))
        for split, count in (("train", 24), ("test", 6))
        for name, low in (("dark", 0), ("light", 170))
        for _ in range(count)
    ]
    publish(tmp_path / "datasets", pictures, name="grey", encoding="png")
    result = train_here(
        tmp_path,
        "grey",
        settings(
            model={"name": "tests.samples.models.tutorial_cnn"},
            data={"image_size": 28, "image_channels": 1},
            optimizer={"learning_rate": 0.01},
            export={"formats": ["litert"]},
            run={"epochs": 8, "evaluate_train": True},
            reading={"mode": "streaming", "cache": "memory"},
        ),
    )
    assert list(result["metrics"]) == ["test", "train"]
    assert (result["reading"]["mode"], result["reading"]["cache"]["place"]) == ("streaming", "memory")
    assert result["metrics"]["train"]["num_examples"] == 48
    assert Path(result["predictions"]["train"]).stat().st_size > 0
    assert result["metrics"]["test"]["accuracy"] == 1.0
    form = result["exports"]["litert"]
    assert (form["accuracy"], form["agreement"], form["num_examples"]) == (1.0, 1.0, 12)
    interpreter = tf.lite.Interpreter(model_path=form["path"])
    assert interpreter.get_input_details()[0]["shape"].tolist() == [1, 28, 28, 1]
    served = tf.saved_model.load(result["export_dir"]).signatures["serving_default"]
    for images in (
        [Image.new("L", (40, 32), value) for value in (30, 220)],
        [Image.new("RGB", (40, 32), colour) for colour in ((0, 0, 255), (255, 255, 0))],  # luminance 29, 226
    ):
        files = []
        for image in images:
            stream = io.BytesIO()
            image.save(stream, "PNG")
            files.append(stream.getvalue())
        names = served(image_bytes=tf.constant(files))["class_name"].numpy().tolist()
        assert names == [b"dark", b"light"]
