"""Decisions to train again, on made-up runs."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from shardmill.flows.train_when import TrainWhen, due, in_words, parse_train_when
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.errors import UsageError
from shardmill.infra.format.contract import summarise_splits
from shardmill.training.config import TrainConfig
from shardmill.training.run.files.identity import run_identity, run_name
from tests.samples.datasets.published import PLAN, coloured, publish

CONFIG = TrainConfig.model_validate({"run": {"epochs": 2}, "optimizer": {"schedule": "cosine"}})


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("new>=1000", TrainWhen(new_records=1000)),
        ("new>=1000,days>=7", TrainWhen(new_records=1000, days=7)),
        (" share >= 0.1 , days=0.5 ", TrainWhen(new_share=0.1, days=0.5)),
        ("new=7,drift", TrainWhen(new_records=7, drift=True)),
    ],
)
def test_conditions_are_read(text: str, found: TrainWhen) -> None:
    assert parse_train_when(text) == found
    assert parse_train_when(in_words(found).replace(" or ", ",")) == found


@pytest.mark.parametrize(
    "text", ["", "new>1000", "new>=many", "share>=2", "new>=0", "days>=1.2.3", "size>=3"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--train-when"):
        parse_train_when(text)


class Published:
    """A dataset of two versions: 10 of the 30 records of the second one's train split are new."""

    def __init__(self, folder: Path) -> None:
        self.root, self.runs = str(folder / "datasets"), folder / "runs"
        pictures = coloured({"train": {"a": 15, "b": 15}, "test": {"a": 2, "b": 2}})
        first = publish(Path(self.root), pictures, name="set", shards_per_split=3)
        (Path(self.root) / "set" / "manifests" / "000001.json").unlink()
        later = first.shards("train")[0]
        before = [
            shard.model_copy(update={"split": "validation"}) if shard is later else shard
            for shard in first.manifest.shards
        ]
        for version, shards in ((1, before), (2, first.manifest.shards)):
            about = {"version": version, "shards": shards, "splits": summarise_splits(shards)}
            Catalog(self.root).publish(first.manifest.model_copy(update=about))

    def train(
        self,
        version: int,
        config: TrainConfig = CONFIG,
        *,
        days_ago: float = 0,
        ended: bool = True,
        name: str = "set",
    ) -> str:
        """Make the folder of a run; return its name."""
        opened = Catalog(self.root).open(f"{name}@{version}")
        folder = self.runs / run_name(config, opened)
        folder.mkdir(parents=True)
        identity = run_identity(config, opened)
        identity["config"]["run"]["epochs"] = config.run.epochs
        (folder / "run.json").write_text(json.dumps(identity))
        if ended:
            result = {"epochs": config.run.epochs, "history": [], "stopped_early": None}
            (folder / "result.json").write_text(json.dumps(result))
            then = time.time() - days_ago * 86400
            os.utime(folder / "result.json", (then, then))
        return folder.name

    def due(self, when: TrainWhen, ref: str = "set") -> tuple[bool, str]:
        found = due(ref, CONFIG, when, self.root, str(self.runs))
        return found.is_due, found.reason


@pytest.fixture
def published(tmp_path: Path) -> Published:
    return Published(tmp_path)


def test_the_first_training_is_due_whatever_the_conditions(published: Published) -> None:
    assert published.due(TrainWhen(new_records=10**6)) == (
        True,
        "nothing was trained on set with these settings before",
    )


@pytest.mark.parametrize(
    ("when", "is_due"),
    [
        (TrainWhen(), True),
        (TrainWhen(new_records=10), True),
        (TrainWhen(new_records=11), False),
        (TrainWhen(new_share=0.33), True),
        (TrainWhen(new_share=0.34), False),
        (TrainWhen(days=2), True),
        (TrainWhen(days=4), False),
        (TrainWhen(new_records=11, days=2), True),
        (TrainWhen(new_records=11, new_share=0.5, days=4), False),
    ],
)
def test_one_condition_suffices(published: Published, when: TrainWhen, is_due: bool) -> None:
    published.train(1, days_ago=3)
    found, reason = published.due(when)
    assert found == is_due, reason
    if when != TrainWhen():
        assert "10 new records of 30 and 3.0 days" in reason


def test_drift_since_the_last_training_is_a_condition(published: Published) -> None:
    """From images of one colour to images of another one."""
    for version, counts in ((1, {"a": 150, "b": 1}), (2, {"a": 1, "b": 150})):
        root = Path(published.root) / f"colours-{version}"
        made = publish(root, coloured({"train": counts}), name="hues")
        data = Path(published.root) / "hues" / "data" / f"colour-{version}"
        shutil.copytree(root / "hues" / "data" / PLAN, data)
        shards = [
            shard.model_copy(
                update={
                    name: getattr(shard, name).replace(PLAN, f"colour-{version}")
                    for name in ("path", "index_path")
                }
            )
            for shard in made.manifest.shards
        ]
        manifest = made.manifest.model_copy(update={"version": version, "shards": shards})
        Catalog(published.root).publish(manifest)
        if version == 1:
            published.train(1, name="hues")
    assert not published.due(TrainWhen(new_records=10**6), "hues")[0]
    found, reason = published.due(TrainWhen(new_records=10**6, drift=True), "hues")
    assert found, reason
    assert reason.startswith("drift since hues@1: ")


def test_a_version_is_trained_on_once(published: Published) -> None:
    name = published.train(2, days_ago=1000)
    assert published.due(TrainWhen(days=1)) == (False, "set@2 was trained on before")
    assert due("set", CONFIG, TrainWhen(), published.root, str(published.runs)).run == name


def test_a_training_that_did_not_finish_stays_due(published: Published) -> None:
    published.train(1)
    published.train(2, ended=False)
    assert published.due(TrainWhen(new_records=10))[0]


def test_other_settings_count_on_their_own(published: Published) -> None:
    published.train(1, TrainConfig.model_validate({"model": {"name": "MobileNetV3Small"}}))
    assert published.due(TrainWhen(new_records=10**6)) == (
        True,
        "nothing was trained on set with these settings before",
    )


def test_a_version_that_is_gone_does_not_stop_training_for_good(published: Published) -> None:
    published.train(1)
    (Path(published.root) / "set" / "manifests" / "000001.json").unlink()
    found, reason = published.due(TrainWhen(new_records=10**6))
    assert found
    assert "is gone" in reason
