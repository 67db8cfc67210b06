"""The figures and pictures of a split, made again from its file of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shardmill.infra.storage.locations import name_of
from shardmill.training.results.pictures.scatter import scatter_svg
from shardmill.training.results.predictions.file import (
    kind_in,
    num_predictions,
    read_classes,
    read_predictions,
)

_MOST_POINTS = 1500


def figures_of(path: Path) -> dict[str, Any]:
    """Return the figures of a file of predictions, as they stand under ``metrics`` in the result of a run.

    Raises:
        CorruptDataError: it is no such file.
    """
    kind, names = kind_in(path), read_classes(path)
    tally = kind.tally(len(names))
    for table in read_predictions(path, ["loss", *kind.fields]):
        tally.add(*kind.read(names, table))
    return tally.evaluation().to_result([name_of(uri) for uri in names])


def scatters_of(path: Path) -> list[str]:
    """Return a picture of each predicted number beside the true one as SVG; none for other tasks.

    Of many records every k-th is drawn, as stored; the file is read in parts.
    """
    kind = kind_in(path)
    if not kind.has_numbers:
        return []
    names, every = read_classes(path), max(-(-num_predictions(path) // _MOST_POINTS), 1)
    wanted, predicted, seen = [], [], 0
    for table in read_predictions(path, ["loss", *kind.fields]):
        labels, rows = kind.read(names, table)
        taken = np.arange(-seen % every, len(labels), every)
        wanted.append(labels[taken])
        predicted.append(rows["predicted"][taken])
        seen += len(labels)
    if not seen:
        return []
    true, found = np.concatenate(wanted), np.concatenate(predicted)
    return [scatter_svg(true[:, number], found[:, number], name) for number, name in enumerate(names)]
