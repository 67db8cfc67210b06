"""Datasets on which the model of a run cannot be evaluated: refused before anything is read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import ConfigError, NotFoundError
from shardmill.infra.format.features import Feature, KeyPoints
from shardmill.infra.format.known_features import BOXES, KEYPOINTS, labels_feature
from shardmill.training.config import TrainConfig
from shardmill.training.evaluate import evaluate_run
from shardmill.training.results.run_files.run_folder import RunFolder, open_run
from tests.samples.datasets.published import Picture, coloured, publish


def finished(folder: Path, ref: str, task: str, **about: object) -> RunFolder:
    """Make the folder of a finished run."""
    run = folder / "runs" / "one"
    run.mkdir(parents=True)
    config = TrainConfig().model_dump(mode="json")
    (run / "run.json").write_text(json.dumps({"dataset": ref, "config": config}))
    (run / "environment.json").write_text(json.dumps({"config": config}))
    (run / "result.json").write_text(json.dumps({"task": task, "history": [], "metrics": {}, **about}))
    return open_run("one", folder / "runs")


def test_a_data_set_in_which_nobody_has_looked_for_a_class(tmp_path: Path) -> None:
    for name, classes in (("full", ["red", "rose"]), ("half", ["red"])):
        pictures = [Picture("test", "", np.full((8, 8, 3), 9 * n, np.uint8), (0,)) for n in range(3)]
        publish(tmp_path, pictures, name=name, classes=classes, feature=labels_feature("shades"))
    run = finished(tmp_path, "full@1", "multi-label", classes=["red", "rose"])
    with pytest.raises(ConfigError, match="half@1 has no class 'rose': nothing says"):
        evaluate_run(run, tmp_path, "test", "full; half")


@pytest.mark.parametrize("is_gone", [False, True])
def test_key_points_of_other_names(tmp_path: Path, is_gone: bool) -> None:
    """Their number is the same, so nothing else would notice."""
    made = publish(tmp_path, coloured({"test": {"dog": 2}}, size=(8, 8)), name="dogs").manifest
    for number, names in ((1, ("nose", "tail")), (2, ("nose", "ear")), (3, None)):
        features = [Feature(name=BOXES, dtype="float32", shape="variable")]
        if names is not None:
            points = KeyPoints(names=names)
            features.append(Feature(name=KEYPOINTS, dtype="float32", shape="variable", points=points))
        about = {"version": number + 1, "parent": number, "extra_features": features}
        Catalog(tmp_path).publish(made.model_copy(update=about))
    trained_on = "gone@1" if is_gone else "dogs@2"
    run = finished(tmp_path, trained_on, "keypoints", classes=["dog"], keypoints=["nose", "tail"])
    if is_gone:
        with pytest.raises(NotFoundError, match="gone"):
            evaluate_run(run, tmp_path, "test", "dogs@3")
        return
    for other, lacks in (("dogs@3", "tail; it adds ear"), ("dogs@4", "nose, tail")):
        with pytest.raises(ConfigError, match=f"has other key points than the run one: it lacks {lacks}"):
            evaluate_run(run, tmp_path, "test", other)
