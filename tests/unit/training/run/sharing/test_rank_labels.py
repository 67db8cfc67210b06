"""The examples of each class that a rank has, for every kind of labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shardmill import Dataset
from shardmill.infra.format.known_features import MaskFormat
from shardmill.training.run.sharing.balance_record import RankLabels
from tests.samples.datasets.published import coloured, publish, publish_patterned

SOME = np.array([0, 2, 2, 5])


@pytest.mark.parametrize("several", [True, False])
def test_several_labels_are_counted_each_and_numbers_not_at_all(tmp_path: Path, several: bool) -> None:
    version = publish_patterned(tmp_path, {"train": 8}, several=several, name="set")
    table = Dataset(version).table("train")
    counts = RankLabels.of(version.manifest.classes, table).counts(SOME)
    assert counts.dtype == np.int64
    assert counts.tolist() == (table.labels_of(SOME).sum(axis=0).tolist() if several else [])


def test_a_class_without_records_counts_none(tmp_path: Path) -> None:
    version = publish(tmp_path, coloured({"train": {"a": 4, "b": 4}}, size=(8, 8)), classes=["a", "b", "c"])
    table = Dataset(version).table("train")
    counts = RankLabels.of(version.manifest.classes, table).counts(SOME)
    assert counts.tolist() == [*np.bincount(table.label[SOME], minlength=2).tolist(), 0]


def test_records_with_masks_have_no_class(tmp_path: Path) -> None:
    version = publish_patterned(tmp_path, {"train": 8}, several=False, name="set")
    table = replace(Dataset(version).table("train"), mask=MaskFormat())
    labels = RankLabels.of(["ground", "disc"], table)
    assert (labels.names, labels.counts(SOME).tolist()) == ([], [])
