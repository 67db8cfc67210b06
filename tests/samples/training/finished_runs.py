"""Folders of finished runs with made-up predictions, on a dataset of two versions; nothing is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.format.contract import summarise_splits
from shardmill.infra.storage.filesystem import Storage
from shardmill.training.arrays import Ints
from shardmill.training.config import TrainConfig
from shardmill.training.reading import load_table
from shardmill.training.results.predictions.file import PredictionsWriter
from shardmill.training.results.run_files.run_folder import RunFolder, open_run
from tests.samples.datasets.published import coloured, publish

# The least that run.json and result.json of a run hold.
RUN_JSON = b'{"dataset": "set@1", "config": {"model": {"name": "m"}, "run": {}, "optimizer": {}}}'
RESULT_JSON = b'{"history": []}'


class FinishedRuns:
    """Runs on two versions of the dataset "set". In version 2, a shard of train is in validation."""

    def __init__(self, folder: Path, num_judged: int = 40) -> None:
        """Publish both versions in ``folder``."""
        self.root, self.runs = folder / "datasets", folder / "runs"
        judged = {"a": num_judged // 2, "b": num_judged // 2}
        pictures = coloured({"train": {"a": 10, "b": 10}, "validation": judged, "test": judged})
        first = publish(self.root, pictures, name="set")
        moved = first.shards("train")[0]
        shards = [
            shard.model_copy(update={"split": "validation"}) if shard is moved else shard
            for shard in first.manifest.shards
        ]
        about = {"version": 2, "parent": 1, "shards": shards, "splits": summarise_splits(shards)}
        Catalog(self.root).publish(first.manifest.model_copy(update=about))

    def version(self, number: int | str) -> DatasetVersion:
        """One of the versions, or what a reference names."""
        return Catalog(self.root).open_view(f"set@{number}" if isinstance(number, int) else number)

    def join_train(self, split: str) -> None:
        """Publish a version whose train split has the records of another split too."""
        manifest = Catalog(self.root).open("set").manifest
        shards = [
            shard.model_copy(update={"split": "train"}) if shard.split == split else shard
            for shard in manifest.shards
        ]
        number = manifest.version
        about = {
            "version": number + 1,
            "parent": number,
            "shards": shards,
            "splits": summarise_splits(shards),
        }
        Catalog(self.root).publish(manifest.model_copy(update=about))

    def run(
        self, name: str, number: int | str, right: Callable[[Ints], Ints], *judged_on: int | str
    ) -> RunFolder:
        """Make a run.

        Args:
            name: of its folder.
            number: of the version that it was trained on, or a reference.
            right: bool [N] from ordinals int64 [N]: whether its predictions are right.
            judged_on: further versions that it has predictions of.
        """
        folder, version = self.runs / name, self.version(number)
        folder.mkdir(parents=True)
        config = TrainConfig().model_dump(mode="json")
        (folder / "run.json").write_text(json.dumps({"dataset": version.ref, "config": config}))
        environment = {"config": config, "dataset": {"manifest_sha256": f"digest of {version.ref}"}}
        (folder / "environment.json").write_text(json.dumps(environment))
        (folder / "result.json").write_text('{"history": [], "metrics": {}}')
        metrics = {}
        for split in ("validation", "test"):
            for each in (number, *judged_on):
                share = self._predict(open_run(name, self.runs), self.version(each), split, right)
                metrics[split] = {"accuracy": share}
        result = {"task": "single-label", "metrics": metrics, "history": [], "image_size": 8}
        (folder / "result.json").write_text(json.dumps(result | {"classes": version.manifest.label_names}))
        return open_run(name, self.runs)

    def _predict(
        self, run: RunFolder, version: DatasetVersion, split: str, right: Callable[[Ints], Ints]
    ) -> float:
        table = load_table(version, split)
        rows = np.arange(len(table))
        labels, is_right = table.label[rows], right(rows)
        predicted = np.where(is_right, labels, 1 - labels)
        probabilities = np.where(np.eye(2)[predicted] > 0, 0.8, 0.2).astype(np.float32)
        own = np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0]
        folder = run.evaluation_dir(version.ref)
        folder.mkdir(parents=True, exist_ok=True)
        with PredictionsWriter(Storage.at(folder), version, table) as writer:
            writer.add(
                rows, labels, {"losses": -np.log(own), "predicted": predicted, "probabilities": probabilities}
            )
        return float(is_right.mean())
