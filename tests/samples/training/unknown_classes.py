"""Several labels an image in data sets of which one lacks classes, and their losses and figures by numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from shardmill import open_dataset
from shardmill.infra.format.known_features import labels_feature
from tests.samples.datasets.published import Picture, patterned, publish

CLASSES = ["red", "green", "blue"]
Floats = npt.NDArray[np.float64]


def with_unknown(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels [8, 3] of which row 0 is unknown, row 1 has one known class, and row 6 two."""
    found = labels.copy()
    found[0], found[1, :2], found[6, 1] = np.nan, np.nan, np.nan
    return found


def unknown_classes_by_numpy(
    outputs: npt.NDArray[Any], labels: npt.NDArray[Any], shares: npt.NDArray[Any] | None, smoothing: float
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return the loss of each example and whether all its known classes are right, class by class."""
    losses, hits = np.zeros(len(outputs)), np.ones(len(outputs), np.bool_)
    for row, logits in enumerate(outputs.astype(np.float64)):
        terms = []
        for column, logit in enumerate(logits):
            wanted, share = float(labels[row, column]), 1.0 if shares is None else float(shares[row])
            if share < 1:
                wanted = share * wanted + (1 - share) * float(labels[row ^ 1, column])
            if np.isnan(wanted):
                continue
            hits[row] &= (logit > 0) == (wanted >= 0.5)
            smooth, likely = (1 - smoothing) * wanted + smoothing / 2, 1 / (1 + np.exp(-logit))
            terms.append(-(smooth * np.log(likely) + (1 - smooth) * np.log(1 - likely)))
        losses[row] = np.mean(terms) if terms else 0
    return losses, hits


def publish_with_unknown(root: Path) -> list[str]:
    """Publish a data set with the classes red, green and blue, and one with blue alone; return both."""
    feature = labels_feature("colours")
    counts = {"train": 16, "validation": 12}
    pictures = [one for split, number in counts.items() for one in patterned(split, number, several=True)]
    publish(root, pictures, name="all", classes=CLASSES, feature=feature)
    only = [
        Picture(one.split, "", one.pixels[::-1].copy(), (0,) if 2 in (one.values or ()) else ())
        for one in pictures
    ]
    publish(root, only, name="blues", classes=["blue"], feature=feature, container="none")
    return ["all@1", "blues@1"]


def check_figures(result: dict[str, Any], root: Path, refs: list[str]) -> None:
    """Compare the figures of a run with those of its predictions, of each class where it is known."""
    rows = pq.read_table(Path(result["run_dir"]) / "predictions-validation.parquet").to_pylist()
    assert [row["unknown"] for row in rows] == [[]] * 12 + [["red", "green"]] * 12
    table = open_dataset(refs, root).table("validation")
    labels, figures = table.labels_of(np.arange(24)), result["metrics"]["validation"]
    assert np.isnan(labels).tolist() == [[False] * 3] * 12 + [[True, True, False]] * 12
    likely = np.array([row["probabilities"] for row in rows], np.float64)
    terms = np.where(labels > 0.5, -np.log(likely), -np.log1p(-likely))
    assert [row["loss"] for row in rows] == pytest.approx(np.nanmean(terms + 0 * labels, axis=1), rel=1e-4)
    assert figures["loss"] == pytest.approx(np.mean([row["loss"] for row in rows]), rel=1e-5)
    for number, name in enumerate(CLASSES):
        known = ~np.isnan(labels[:, number])
        wanted = labels[known, number] > 0.5
        found = np.array([name in row["predicted"] for row in rows])[known]
        figure = figures["per_class"][name]
        assert figure["support"] == wanted.sum()
        assert figure["recall"] == pytest.approx((wanted & found).sum() / max(wanted.sum(), 1))
        assert figure["precision"] == pytest.approx((wanted & found).sum() / max(found.sum(), 1))
    right = [
        not any(
            (name in row["labels"]) != (name in row["predicted"]) and name not in row["unknown"]
            for name in CLASSES
        )
        for row in rows
    ]
    assert figures["exact_match"] == pytest.approx(np.mean(right))
    assert [*figures["by_data_set"]] == refs
