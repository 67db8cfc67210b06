"""The figures of a split, computed again from its file of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.storage.names import name_of
from training.results.metrics.single_label import SingleLabelTally
from training.results.predictions.file import probabilities_of, read_classes, read_predictions


def figures_of(path: Path) -> dict[str, Any]:
    """Return the figures of a file of predictions, as they stand under ``metrics`` in the result of a run.

    Raises:
        CorruptDataError: it is no such file.
    """
    classes = [name_of(uri) for uri in read_classes(path)]
    tally = SingleLabelTally(len(classes))
    for rows in read_predictions(path, ["label_index", "predicted_index", "loss", "probabilities"]):
        found = {
            "losses": rows["loss"].to_numpy(),
            "predicted": rows["predicted_index"].to_numpy(),
            "probabilities": probabilities_of(rows),
        }
        tally.add(rows["label_index"].to_numpy(), found)
    return tally.evaluation().to_result(classes)
