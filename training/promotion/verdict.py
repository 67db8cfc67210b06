"""Judge a candidate: measure it and the champion on the same records, and decide from their figures.

Records of a split do not count where either was trained on them. A model without predictions of a split is
evaluated first, in a process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardmill.infra import progress as events
from shardmill.infra.dataset.catalog import Catalog
from shardmill.infra.dataset.joined import JoinedVersion
from shardmill.infra.dataset.version import DatasetVersion
from shardmill.infra.errors import DataError, NotFoundError
from shardmill.infra.processes.children import run_child
from shardmill.infra.processes.job_command import python_module
from shardmill.infra.readable import counted
from shardmill.training.metrics.figures import FIGURES, are_finite, is_smaller_better
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.results.predictions.comparison import Comparison, Difference, compare
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
        by_data_set: of several data sets the comparison on the records of each, by reference.
    """

    ref: str
    split: str
    comparison: Comparison
    num_left_out: int = 0
    unknown: tuple[str, ...] = ()
    by_data_set: Mapping[str, Comparison] = field(default_factory=dict)


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
    _check_enough(fair.size, version.ref, split, rules)
    first, second = (_predictions(run, version.ref, split, fair, root) for run in (champion, candidate))
    events.stage("compare", int(fair.size), unit="records")
    found = compare(first, second, fair, rules.confidence)
    unknown = tuple(name for name, ids in seen.items() if ids is None)
    by_data_set = {}
    for ref, ids in _ids_by_data_set(version, split).items():
        own = np.unique(fair[np.isin(fair, ids)])  # another data set may have the same image
        if rules.no_worse_on_each and split == rules.split:
            _check_enough(own.size, ref, split, rules)
        if own.size:
            by_data_set[ref] = compare(first, second, own, rules.confidence, data_set=ref)
    return Measured(version.ref, split, found, tested.size - fair.size, unknown, by_data_set)


def _check_enough(size: int, ref: str, split: str, rules: PromotionRules) -> None:
    """Check that there are as many fair records as the rules ask for.

    Raises:
        DataError: there are not.
    """
    if size < rules.minimum_examples:
        raise DataError(
            f"{ref} has {counted(size, f'{split} record')} that neither run has learned from; "
            f"minimum_examples = {rules.minimum_examples}",
            f"prepare with a larger {split} split, or lower minimum_examples",
        )


def _seen(run: RunFolder, version: DatasetVersion, split: str, root: str) -> _Ids | None:
    """Return the ids of the records that a run knows and that do not count; None: unknown."""
    if run.dataset == version.ref and len(version.data_sets) == 1:
        return np.array([], "S16")  # its splits have no record in common; those of several data sets may
    try:
        trained_on = Catalog(root).open_view(run.dataset)
    except NotFoundError:
        return None
    return np.concatenate([_ids(trained_on, seen) for seen in _SEEN[split]])


def _ids(version: DatasetVersion, split: str) -> _Ids:
    return np.concatenate([np.array([], "S16"), *_ids_of_shards(version, split).values()])


def _ids_by_data_set(version: DatasetVersion, split: str) -> dict[str, _Ids]:
    """Return the ids of the records of each data set with splits of its own, by reference; of one nothing."""
    if not isinstance(version, JoinedVersion) or len(version.data_sets) == 1:
        return {}
    parts = zip(version.reference.parts, version.data_sets, strict=True)
    none = {one.ref: np.array([], "S16") for part, one in parts if part.has(split)}
    return none | _ids_of_shards(version, split)


def _ids_of_shards(version: DatasetVersion, split: str) -> dict[str, _Ids]:
    found: dict[str, list[str]] = {}
    for shard in version.shards(split):
        ids = version.rows(shard, ["id"])["id"].to_pylist()
        found.setdefault(version.data_set_of(shard).ref, []).extend(ids)
    return {ref: np.array(ids, "S16") for ref, ids in found.items()}


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
    if measured.by_data_set:
        details["by_data_set"] = {ref: one.to_json() for ref, one in measured.by_data_set.items()}
    if tested is not None:
        details["test"] = {"left_out": tested.num_left_out, **tested.comparison.to_json()}
    figure, records = FIGURES[metric], counted(found.num_examples, f"{measured.split} record")
    sign = -1.0 if is_smaller_better(metric) else 1.0
    change, ends = difference.second - difference.first, (difference.low, difference.high)
    gain = sign * change
    surely_better = min(sign * end for end in ends) > 0
    surely_worse = _is_surely_worse(difference, sign)
    each = {ref: one.figures[metric] for ref, one in measured.by_data_set.items()}
    worse_on = [ref for ref, one in each.items() if rules.no_worse_on_each and _is_surely_worse(one, sign)]
    if worse_on:
        outcome = f"worse beyond the noise on {' and '.join(worse_on)}"
    elif surely_better and gain >= rules.minimum_gain:
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
    for ref, one in each.items():
        figures += f"; on {ref} {figure.text(one.second)} against {figure.text(one.first)}"
    if times_used:
        figures += f", which judged {counted(times_used, 'other candidate')} before"
    if tested is not None:
        on_test = tested.comparison.figures[metric]
        figures += f"; on the test split {figure.text(on_test.second)} against {figure.text(on_test.first)}"
    if measured.unknown:
        figures += f"; what {' and '.join(measured.unknown)} learned from is unknown: that version is gone"
    is_promoted = surely_better and gain >= rules.minimum_gain and not worse_on
    return Verdict(is_promoted, f"{outcome}: {figures}", details)


def _is_surely_worse(difference: Difference, sign: float) -> bool:
    """Return whether the whole interval is worse. ``sign``: -1 where smaller figures are better, else 1."""
    return max(sign * difference.low, sign * difference.high) < 0


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
