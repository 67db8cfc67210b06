"""Predicted beside true numbers, drawn from a file of predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shardmill.training.results.pictures.scatter import scatter_svg
from shardmill.training.results.predictions.columns import RegressionColumns
from shardmill.training.results.predictions.file import (
    columns_of,
    num_predictions,
    read_classes,
    read_predictions,
)

_MOST_POINTS = 1500


def scatters_of(path: Path) -> list[str]:
    """Return a picture of each target of a regression as SVG; none for other tasks.

    Of many records every k-th is drawn, as stored; the file is read in parts.
    """
    columns = columns_of(path)
    if not isinstance(columns, RegressionColumns):
        return []
    names, every = read_classes(path), max(-(-num_predictions(path) // _MOST_POINTS), 1)
    wanted, predicted, seen = [], [], 0
    for table in read_predictions(path, ["loss", *columns.fields]):
        labels, rows = columns.read(names, table)
        taken = np.arange(-seen % every, len(labels), every)
        wanted.append(labels[taken])
        predicted.append(rows["predicted"][taken])
        seen += len(labels)
    if not seen:
        return []
    true, found = np.concatenate(wanted), np.concatenate(predicted)
    return [scatter_svg(true[:, number], found[:, number], name) for number, name in enumerate(names)]
