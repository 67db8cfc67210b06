"""Judge a candidate: measure it and the champion on the same records, and decide from their figures.

Records of a split do not count where either was trained on them. A model without predictions of a split is
evaluated first, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shardmill.infra import progress as events
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError, NotFoundError
from shardmill.infra.processes.children import run_child
from shardmill.infra.processes.job_command import python_module
from shardmill.infra.readable import counted
from shardmill.training.metrics.figures import FIGURES, are_finite, is_smaller_better
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.results.predictions.comparison import Comparison, compare
from shardmill.training.results.predictions.file import read_all
from shardmill.training.results.run_files.run_folder import RunFolder

EVALUATE: tuple[str, ...] = tuple(python_module("shardmill.training.evaluate"))

# The splits whose records do not count. A model learned from train. Validation chose the best epoch of
# both models alike, so it can compare them.
_SEEN = {"validation": ("train",), "test": ("train", "validation")}

_Ids = npt.NDArray[np.bytes_]  # [N], 16 hexadecimal digits each


@dataclass(frozen=True, slots=True)
class Measured:
    """Champion and candidate on the same records.

    Attributes:
        ref: the dataset version of the records.
        split: their split.
        comparison: comparison of the champion (first) and the candidate (second).
        num_left_out: records of the split that one of them has learned from.
        unknown: names of the runs whose training records are unknown, because their version is gone.
    """

    ref: str
    split: str
    comparison: Comparison
    num_left_out: int = 0
    unknown: tuple[str, ...] = ()


def measure(
    champion: RunFolder,
    candidate: RunFolder,
    version: DatasetVersion,
    split: str,
    root: str,
    rules: PromotionRules,
) -> Measured:
    """Compare two runs on a split of a version, and evaluate them on it first where that is missing.

    Records that one of them has learned from do not count: a record of this split may have been in another
    split of an earlier version, if the source gives the splits.

    Args:
        champion: the run that has the alias.
        candidate: the run that may take it over.
        version: the dataset version.
        split: "validation" or "test".
        root: the folder of the datasets.
        rules: the rules of the comparison.

    Raises:
        UsageError, DataError: they cannot be compared, or on too few records.
    """
    if not version.shards(split):
        raise DataError(
            f"{version.ref} has no {split} split",
            "prepare it with one, or name the split that decides: --set split=validation or split=test",
        )
    tested = _ids(version, split)
    seen = {run.name: _seen(run, version, split, root) for run in (champion, candidate)}
    known = [ids for ids in seen.values() if ids is not None]
    fair = tested[~np.isin(tested, np.concatenate(known))] if known else tested
    if fair.size < rules.minimum_examples:
        raise DataError(
            f"{version.ref} has {counted(fair.size, f'{split} record')} that neither run has learned from; "
            f"minimum_examples = {rules.minimum_examples}",
            f"prepare with a larger {split} split, or lower minimum_examples",
        )
    first, second = (_predictions(run, version.ref, split, fair, root) for run in (champion, candidate))
    events.stage("compare", int(fair.size), unit="records")
    found = compare(first, second, fair, rules.confidence)
    unknown = tuple(name for name, ids in seen.items() if ids is None)
    return Measured(version.ref, split, found, tested.size - fair.size, unknown)


def _seen(run: RunFolder, version: DatasetVersion, split: str, root: str) -> _Ids | None:
    """Return the ids of the records that a run knows and that do not count; None: unknown."""
    if run.dataset == version.ref:
        return np.array([], "S16")  # its splits have no record in common
    try:
        trained_on = Catalog(root).open_view(run.dataset)
    except NotFoundError:
        return None
    return np.concatenate([_ids(trained_on, seen) for seen in _SEEN[split]])


def _ids(version: DatasetVersion, split: str) -> _Ids:
    columns = [version.rows(shard, ["id"])["id"] for shard in version.shards(split)]
    found: list[str] = [] if not columns else pa.chunked_array(columns, pa.string()).to_pylist()
    return np.array(found, "S16")


def _predictions(run: RunFolder, ref: str, split: str, wanted: _Ids, root: str) -> Path:
    """Return the predictions of a run on a split of a version; evaluate it first if records lack one."""
    try:
        path = run.predictions(split, ref)
        if np.isin(wanted, np.array(read_all(path, ["id"])["id"].to_pylist(), "S16")).all():
            return path
    except NotFoundError:
        pass
    command = [*EVALUATE, str(run.path), "--split", split, "--dataset", ref, "--root", root]
    run_child(command, on_event=_relay, on_line=_relay_line).reported()
    return run.predictions(split, ref)


def _relay(event: Mapping[str, Any]) -> None:
    """Pass on the progress of an evaluation; its result and its error are not those of this job."""
    if event.get("event") in ("stage", "progress", "log"):
        events.emit(dict(event))


def _relay_line(line: str) -> None:
    if line.strip():
        print(line, flush=True)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision about a candidate.

    Attributes:
        is_promoted: it takes over the alias.
        words: the decision with its figures.
        comparison: the figures, JSON-able; None: nothing was compared.
    """

    is_promoted: bool
    words: str
    comparison: dict[str, Any] | None = None


def judge(
    measured: Measured,
    metric: str,
    rules: PromotionRules,
    *,
    times_used: int = 0,
    tested: Measured | None = None,
) -> Verdict:
    """Decide whether a candidate is better than the champion beyond the noise.

    Args:
        measured: both on the same records.
        metric: the figure that decides.
        rules: the rules.
        times_used: the number of other candidates that the split has judged. With each of them it is more
            likely that the winner suits these records by chance.
        tested: both on the test split, which is reported and decides nothing; None: there is none.
    """
    found = measured.comparison
    difference = found.figures[metric]
    details = {
        "dataset": measured.ref,
        "split": measured.split,
        "times_used": times_used,
        "left_out": measured.num_left_out,
        "unknown": list(measured.unknown),
        "metric": metric,
        "rules": rules.model_dump(mode="json"),
        **found.to_json(),
    }
    if tested is not None:
        details["test"] = {"left_out": tested.num_left_out, **tested.comparison.to_json()}
    figure, records = FIGURES[metric], counted(found.num_examples, f"{measured.split} record")
    sign = -1.0 if is_smaller_better(metric) else 1.0
    change, ends = difference.second - difference.first, (difference.low, difference.high)
    gain = sign * change
    surely_better = min(sign * end for end in ends) > 0
    surely_worse = max(sign * end for end in ends) < 0
    if surely_better and gain >= rules.minimum_gain:
        outcome = "better beyond the noise"
    elif surely_better:
        outcome = f"better, but by less than the minimum gain of {rules.minimum_gain:g}"
    elif surely_worse:
        outcome = "worse beyond the noise"
    else:
        outcome = "no difference beyond the noise"
    figures = (
        f"{figure.words} {figure.text(difference.second)} against {figure.text(difference.first)} of the "
        f"present model ({change:+.4f}; {rules.confidence:.0%} interval {difference.low:+.4f} to "
        f"{difference.high:+.4f}) on {records} of {measured.ref}"
    )
    if times_used:
        figures += f", which judged {counted(times_used, 'other candidate')} before"
    if tested is not None:
        on_test = tested.comparison.figures[metric]
        figures += f"; on the test split {figure.text(on_test.second)} against {figure.text(on_test.first)}"
    if measured.unknown:
        figures += f"; what {' and '.join(measured.unknown)} learned from is unknown: that version is gone"
    return Verdict(surely_better and gain >= rules.minimum_gain, f"{outcome}: {figures}", details)


def judge_first(figures: Mapping[str, Any], metric: str, rules: PromotionRules, ref: str) -> Verdict:
    """Decide whether the first model gets the alias.

    Args:
        figures: figures of the split that decides; empty: it has none.
        metric: the figure that decides.
        rules: the rules.
        ref: the dataset version.
    """
    split = rules.split
    if metric in figures and not are_finite(figures, metric):
        return Verdict(False, f"{FIGURES[metric].words} or loss on the {split} split of {ref} is not finite")
    if rules.floor is None:
        known = (
            f", {FIGURES[metric].precise(figures[metric])} on the {split} split" if metric in figures else ""
        )
        return Verdict(True, f"the first model{known}")
    if metric not in figures:
        return Verdict(False, f"nothing to hold against the floor: {ref} has no {split} split")
    value, figure = float(figures[metric]), FIGURES[metric]
    is_below = value > rules.floor if is_smaller_better(metric) else value < rules.floor
    words = f"{figure.precise(value)} on the {split} split of {ref}, floor {rules.floor:g}"
    if is_below:
        return Verdict(False, f"the first model, but not good enough: {words}")
    return Verdict(True, f"the first model: {words}")
