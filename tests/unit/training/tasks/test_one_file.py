"""A metric is one entry and a task two files: settings, promotion, comparisons and files have them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FIGURES = """
from dataclasses import dataclass

from shardmill.training.metrics.evaluation import LOSS, Figure
from shardmill.training.metrics.regression import RegressionEvaluation


@dataclass(frozen=True, slots=True)
class Ageing(RegressionEvaluation):
    task = "ageing"
    FIGURES = (Figure("squared_years", "squared years", "mean squared error",
                      lambda found: float(found.squared.mean()), falls=True), LOSS)
"""
TASK = """
from shardmill.training.metrics.ageing import Ageing
from shardmill.training.tasks.regression import RegressionKind


class AgeingKind(RegressionKind):
    learned = "none"
    evaluation = Ageing

    def resampled(self, labels, rows, num_names):
        evaluated = super().resampled(labels, rows, num_names)

        def ageing(times):
            found = evaluated(times)
            return Ageing(*(getattr(found, name) for name in found.__slots__))

        return ageing
"""
LOOK = """
import json, sys
from pathlib import Path
import numpy as np
import shardmill.training.metrics, shardmill.training.tasks
shardmill.training.metrics.__path__.append(sys.argv[1] + "/metrics")
shardmill.training.tasks.__path__.append(sys.argv[1] + "/tasks")
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.config import TrainConfig
from shardmill.training.metrics.figures import FIGURES, is_smaller_better
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.reading import load_table
from shardmill.training.results.predictions.comparison import compare
from shardmill.training.results.predictions.file import PredictionsWriter
from shardmill.training.tasks.registry import KINDS, kind_of
from shardmill.training.tasks.settings import settings_for
from tests.samples.datasets.published import publish_patterned

folder = Path(sys.argv[1])
version = publish_patterned(folder, {"train": 4, "test": 4}, several=False, name="set")
table, rows = load_table(version, "test"), {"losses": np.ones(4, np.float32)}
labels, paths = np.arange(8, dtype=np.float32).reshape(4, 2), []
for number in range(2):
    with PredictionsWriter(Storage.at(folder), version, table, f"{number}.parquet", KINDS["ageing"]) as out:
        out.add(np.arange(4), labels, rows | {"predicted": labels + number})
    paths.append(folder / f"{number}.parquet")
found = compare(*paths).figures["squared_years"]
version = DatasetVersion(version.storage, version.manifest.model_copy(update={"label_kind": "none"}))
print(json.dumps({
    "kind": kind_of(version).name,
    "best": settings_for(TrainConfig.model_validate({"augment": {}}), version).run.best_metric,
    "asked": TrainConfig.model_validate({"run": {"best_metric": "squared_years"}}).run.best_metric,
    "decides": PromotionRules(metric="squared_years").metric_of("ageing"),
    "compared": [found.first, found.second],
    "shown": [FIGURES["squared_years"].words, is_smaller_better("squared_years")],
}))
"""


def test_a_new_task_and_its_figure_act_everywhere(tmp_path: Path) -> None:
    for folder, text in (("metrics", FIGURES), ("tasks", TASK)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ageing.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "kind": "ageing",
        "best": "squared_years",
        "asked": "squared_years",
        "decides": "squared_years",
        "compared": [0.0, 1.0],
        "shown": ["squared years", True],
    }
