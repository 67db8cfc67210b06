"""``examples.json``: the first examples of the page of a run, for other pages that show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shardmill.infra.storage.filesystem import Storage
from shardmill.infra.strict_json import dump_json

if TYPE_CHECKING:  # who reads the file needs no more than its name
    from shardmill.training.results.predictions.hardest import HardExample
    from shardmill.training.results.predictions.label_errors.found import LabelError

EXAMPLES_FILE = "examples.json"
_SHOWN = 8  # examples shown of a split; a picture has about 4 kB
_SPLITS = ("test", "validation")  # the first of them that was evaluated

Shown = Mapping[str, Any]


def write_examples(
    run_dir: Path,
    hardest: Mapping[str, Sequence[HardExample]],
    label_errors: Sequence[LabelError],
    pictures: Mapping[str, str],
) -> None:
    """Write the hardest examples of the test split and the likeliest label errors, with small pictures.

    Args:
        run_dir: the folder of the run.
        hardest: split -> its hardest examples.
        label_errors: likely label errors, the likeliest first.
        pictures: record id -> data URI.
    """
    split = next((name for name in _SPLITS if name in hardest), None)
    chosen = {split: [_hard(one, pictures) for one in hardest[split][:_SHOWN]]} if split else {}
    errors = [_error(one, pictures) for one in label_errors[:_SHOWN]]
    text = dump_json({"hardest": chosen, "label_errors": errors})
    Storage.at(run_dir).write_atomic(EXAMPLES_FILE, text.encode("ascii"))


def _hard(one: HardExample, pictures: Mapping[str, str]) -> Shown:
    return {
        "uri": one.place,
        "label": one.label,
        "predicted": one.predicted,
        "loss": one.loss,
        "picture": pictures.get(one.id),
    }


def _error(one: LabelError, pictures: Mapping[str, str]) -> Shown:
    return {
        "uri": one.place,
        "split": one.split,
        "label": one.given_label,
        "suggested": one.suggested_label,
        "score": one.score,
        "picture": pictures.get(one.id),
    }
