"""Judge a candidate from its figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shardmill.infra.readable import counted
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.results.metrics.figures import FIGURES, are_finite, is_smaller_better
from shardmill.training.results.predictions.comparison import Comparison, Difference


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
    gain, ends = sign * (difference.second - difference.first), (difference.low, difference.high)
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
        f"present model ({_signed(difference)}; {rules.confidence:.0%} interval {difference.low:+.4f} to "
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


def _signed(difference: Difference) -> str:
    return f"{difference.second - difference.first:+.4f}"
