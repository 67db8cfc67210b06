"""Sum up the result of a job in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmill.infra.dataset.views.references import reference_of
from shardmill.infra.readable import counted, readable_seconds

Result = Mapping[str, Any]


def headline(result: Result) -> str:
    """Return a headline of a result, such as ``published photos@3: 3,564 records``."""
    return _trained(result) if "run_dir" in result else _prepared(result)


def sentence(result: Result) -> str:
    """Return the message of a run's state: the headline, of a new version without its counts."""
    if "run_dir" not in result and not result.get("unchanged"):
        return f"Published {reference_of(result)}"
    text = headline(result)
    return text[0].upper() + text[1:]


def _main_figure(result: Result) -> str | None:
    """Return the main figure in words, on the test split if there is one."""
    from shardmill.training.metrics.figures import FIGURES

    for split in ("test", "validation"):
        figures = result.get("metrics", {}).get(split, {})
        name = next((name for name in FIGURES if name in figures), None)
        if name is not None:
            return f"{split} {FIGURES[name].precise(figures[name])}"
    return None


def _prepared(result: Result) -> str:
    ref, lost = reference_of(result), int(result.get("num_quarantined", 0))
    if result.get("unchanged"):
        return f"nothing changed: {ref} is up to date"
    records = counted(int(result["num_records"]), "record")
    return f"published {ref}: {records}" + (f", {counted(lost, 'input')} quarantined" if lost else "")


def _trained(result: Result) -> str:
    epochs = counted(int(result["epochs"]), "epoch")
    after = f"after {epochs}"
    if "seconds" in result:
        after += f" in {readable_seconds(float(result['seconds']))}"
    if result.get("unchanged"):
        after += " (finished before)"
    found = _main_figure(result)
    if found is None:
        return f"trained on {reference_of(result)} {after}"
    return f"{found} {after}"
