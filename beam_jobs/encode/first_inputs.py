"""Describe the label, split and mask of the first inputs of a source, for ``--dry-run``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from shardmill.beam_jobs.schemas import MASK_COLUMNS, has_masks
from shardmill.beam_jobs.tables.features import PREFIX
from shardmill.infra.format.known_features import LABELS, MASK_PIXELS

FIRST_INPUTS = 3
_SAID = ["uri", "label", "split", "group"]


def understood(references: pa.Table, facts: pa.Table | None, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the first inputs, JSON-able.

    Args:
        references: REFERENCE_SCHEMA and more.
        facts: FACTS_SCHEMA and more, of the first of them; None: nothing was read.
        classes: names of the classes of masks, by number.

    Returns:
        ``uri``, ``label``, ``split`` and ``group``. Of images with masks also ``mask``, its URI; if both were
        read ``height`` and ``width`` of the stored image, and ``shares``, class -> share of its pixels; or
        the ``problem`` for which it would be left out.
    """
    first = references.slice(0, FIRST_INPUTS)
    if not has_masks(references):
        rows: list[dict[str, Any]] = first.select(_SAID).to_pylist()
        return rows
    rows = first.select([*_SAID, MASK_COLUMNS[0].name]).to_pylist()
    read = [] if facts is None else facts.slice(0, FIRST_INPUTS).to_pylist()
    for at, row in enumerate(rows):
        row["mask"] = row.pop(MASK_COLUMNS[0].name)
        if at < len(read):
            row |= _of_mask(read[at], classes)
    return rows


def _of_mask(fact: dict[str, Any], classes: Sequence[str]) -> dict[str, Any]:
    """Describe the classes in the mask of an image, or the fault that was found."""
    if fact["reason"] is not None:
        return {"problem": f"{fact['reason']}: {fact['message']}"}
    if fact[PREFIX + LABELS] is None:  # the newest version has it
        return {}
    pixels = fact["height"] * fact["width"]
    counts = zip(fact[PREFIX + LABELS], fact[PREFIX + MASK_PIXELS], strict=True)
    shares = {classes[number]: round(count / pixels, 4) for number, count in counts}
    return {"height": fact["height"], "width": fact["width"], "shares": shares}
