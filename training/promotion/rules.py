"""Rules that decide whether a candidate takes over an alias, and the figures that can decide, by task."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from shardmill.infra.errors import ConfigError
from shardmill.infra.settings import Settings
from shardmill.training.config.run import Metric
from shardmill.training.metrics.figures import CHOOSING


class PromotionRules(Settings):
    """Conditions under which a candidate takes over the alias from the run that has it."""

    split: Literal["validation", "test"] = Field(
        default="validation",
        description="Split that decides; the test split is reported anyway",
    )
    metric: Metric = Field(
        default="auto",
        description="Figure that decides; 'auto': as run.best_metric",
    )
    confidence: float = Field(
        default=0.95,
        ge=0.5,
        le=0.99,
        description="Share of the resampled differences that must be better",
    )
    minimum_gain: float = Field(
        default=0.0, ge=0, le=1e9, description="least improvement of the metric, for example 0.005"
    )
    minimum_examples: int = Field(
        default=30, ge=1, le=1 << 40, description="records below which figures decide nothing"
    )
    no_worse_on_each: bool = Field(
        default=False, description="Of several data sets: promote only if the figure is surely worse on none"
    )
    floor: float | None = Field(
        default=None,
        ge=-1e9,
        le=1e9,
        description="Worst value with which the first model gets the alias",
    )

    def metric_of(self, task: str) -> str:
        """Return the figure that decides between runs that learned a task, by its name.

        Raises:
            ConfigError: runs of the task are not compared, or not by this figure.
        """
        known = CHOOSING.get(task, ())
        if not known:
            raise ConfigError(
                f"runs that learned {task} are not compared by figures",
                "decide by hand: shardmill model promote RUN --reason TEXT",
            )
        if self.metric == "auto":
            return known[0]
        if self.metric not in known:
            raise ConfigError(f"{self.metric} is no figure of {task}", f"there are: {', '.join(known)}")
        return self.metric
