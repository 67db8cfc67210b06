"""Datasets with likely label errors, for tests of reviews."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.decisions import Decision, DecisionLog
from shardmill.training.results.predictions.label_errors.found import COLUMNS, LABEL_ERRORS_FILE
from tests.samples.images.photos import make_photos
from tests.samples.preparing.prepared import rows, run


def make_review(folder: Path, count: int, classes: tuple[str, str] = ("cat", "dog")) -> list[str]:
    """Prepare ``d`` in ``folder/datasets`` from two classes of so many images, all likely label errors.

    Returns:
        The ids of the records in the order of the review.
    """
    per_class = dict.fromkeys(classes, count)
    run(make_photos(folder / "source", per_class), folder / "datasets", groups={"near_duplicates": False})
    found = rows(Catalog(folder / "datasets").open("d"))
    listed: list[Sequence[str]] = [COLUMNS]
    for number, (uri, row) in enumerate(found.items()):
        given, score = row["label"], 1 - number / len(found)
        suggested = next(name for name in classes if name != given)
        listed.append([row["record_id"], uri, row["split"], given, suggested, f"{score:.6f}", "", ""])
    of_run = folder / "runs" / "d-v1-label-errors-5-0123"
    of_run.mkdir(parents=True)
    with (of_run / LABEL_ERRORS_FILE).open("w", newline="") as stream:
        csv.writer(stream).writerows(listed)
    return [row["record_id"] for row in found.values()]


def decided(folder: Path) -> list[Decision]:
    """All rows of the decisions about ``d``, as another process reads them."""
    return DecisionLog(Catalog(folder / "datasets").dataset_storage("d")).read().rows
