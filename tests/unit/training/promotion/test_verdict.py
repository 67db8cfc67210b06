"""Verdicts from figures: a table of cases."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.infra.errors import ConfigError
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.promotion.verdict import Measured, judge, judge_first
from shardmill.training.results.predictions.comparison import Comparison, Difference
from shardmill.training.tasks.registry import KINDS


def measured(first: float, second: float, low: float, high: float) -> Measured:
    figures = {name: Difference(first, second, low, high, 0.9) for name in ("accuracy", "loss")}
    return Measured("photos@2", "validation", Comparison(200, 3, 9, figures), 5)


@pytest.mark.parametrize(
    ("values", "metric", "rules", "is_promoted", "words"),
    [
        ((0.80, 0.90, 0.02, 0.18), "accuracy", {}, True, "better beyond the noise"),
        ((0.80, 0.90, 0.00, 0.18), "accuracy", {}, False, "no difference beyond the noise"),
        ((0.80, 0.90, -0.01, 0.2), "accuracy", {}, False, "no difference beyond the noise"),
        ((0.90, 0.80, -0.2, -0.02), "accuracy", {}, False, "worse beyond the noise"),
        ((0.80, 0.81, 0.001, 0.02), "accuracy", {"minimum_gain": 0.02}, False, "less than the minimum gain"),
        ((0.80, 0.83, 0.001, 0.05), "accuracy", {"minimum_gain": 0.02}, True, "better beyond the noise"),
        ((0.80, 0.60, -0.3, -0.1), "loss", {}, True, "better beyond the noise"),
        ((0.60, 0.80, 0.1, 0.3), "loss", {}, False, "worse beyond the noise"),
        ((0.80, 0.80, 0.0, 0.0), "accuracy", {}, False, "no difference beyond the noise"),
    ],
)
def test_only_what_is_better_beyond_the_noise_is_promoted(
    values: tuple[float, float, float, float],
    metric: str,
    rules: dict[str, float],
    is_promoted: bool,
    words: str,
) -> None:
    found = judge(measured(*values), metric, PromotionRules.model_validate(rules))
    assert found.is_promoted == is_promoted
    assert words in found.words
    assert "200 validation records of photos@2" in found.words
    assert found.comparison is not None
    assert (found.comparison["left_out"], found.comparison["metric"]) == (5, metric)


def test_the_test_split_is_reported_and_decides_nothing() -> None:
    tested = Measured("photos@2", "test", measured(0.7, 0.5, -0.3, -0.1).comparison)
    found = judge(measured(0.80, 0.90, 0.02, 0.18), "accuracy", PromotionRules(), times_used=3, tested=tested)
    assert found.is_promoted
    assert "which judged 3 other candidates before; on the test split 50.0% against 70.0%" in found.words
    assert found.comparison is not None
    assert found.comparison["times_used"] == 3
    assert found.comparison["test"]["figures"]["accuracy"]["second"] == 0.5


@pytest.mark.parametrize(
    ("figures", "metric", "floor", "is_promoted", "words"),
    [
        ({"accuracy": 0.4}, "accuracy", None, True, "the first model"),
        ({}, "accuracy", None, True, "the first model"),
        ({"accuracy": 0.9, "loss": None}, "accuracy", None, False, "is not finite"),
        ({"accuracy": 0.9, "loss": np.nan}, "accuracy", 0.5, False, "is not finite"),
        ({"loss": None}, "loss", 0.5, False, "is not finite"),
        ({"accuracy": 0.4}, "accuracy", 0.5, False, "not good enough"),
        ({"accuracy": 0.5}, "accuracy", 0.5, True, "floor 0.5"),
        ({"loss": 0.9}, "loss", 0.5, False, "not good enough"),
        ({"loss": 0.4}, "loss", 0.5, True, "floor 0.5"),
        ({}, "accuracy", 0.5, False, "no validation split"),
    ],
)
def test_the_first_model_is_held_against_the_floor(
    figures: dict[str, float], metric: str, floor: float | None, is_promoted: bool, words: str
) -> None:
    found = judge_first(figures, metric, PromotionRules(floor=floor), "photos@1")
    assert found.is_promoted == is_promoted
    assert words in found.words


@pytest.mark.parametrize("task", ["single-label", "multi-label", "regression"])
def test_each_figure_that_may_decide_is_compared(task: str) -> None:
    values = np.array([[0.2, 0.8], [0.7, 0.3], [0.6, 0.4]], np.float32)
    several = {"predicted": values > 0.5, "probabilities": values, "losses": values[:, 0]}
    rows, labels = {
        "single-label": ({"predicted": np.array([1, 0, 0]), "losses": values[:, 0]}, np.array([1, 0, 1])),
        "multi-label": (several, (values > 0.5).astype(np.float32)),
        "regression": ({"predicted": values, "losses": values[:, 0]}, values + 1),
    }[task]
    found = KINDS[task].resampled(labels, rows, 2)(np.ones(3, np.int64)).figures()
    assert set(KINDS[task].figures) == set(found)


@pytest.mark.parametrize(
    ("task", "wanted", "found"),
    [
        ("single-label", "auto", "accuracy"),
        ("multi-label", "auto", "mean_average_precision"),
        ("regression", "auto", "r2"),
        ("regression", "absolute_error", "absolute_error"),
        ("regression", "accuracy", None),
        ("detection", "auto", "average_precision"),
        ("segmentation", "auto", "mean_iou"),
        ("depth", "auto", None),
    ],
)
def test_the_metric_follows_the_task(task: str, wanted: str, found: str | None) -> None:
    if found is None:
        with pytest.raises(ConfigError):
            PromotionRules(metric=wanted).metric_of(task)
    else:
        assert PromotionRules(metric=wanted).metric_of(task) == found
