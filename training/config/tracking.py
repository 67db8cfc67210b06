"""The table [train.tracking]: reports about a run to other systems. They do not change the outcome."""

from __future__ import annotations

from pydantic import Field

from shardmill.infra.settings import Settings


class TrackingSettings(Settings):
    """Reports about a run to MLflow and Weights & Biases, if their environment variables are set."""

    experiment: str = Field(
        default="shardmill", min_length=1, description="experiment of MLflow, project of Weights & Biases"
    )
    registered_model: str | None = Field(
        default=None,
        min_length=1,
        description="registered model of MLflow: a finished run uploads its SavedModel as a new version",
    )
    alias: str = Field(
        default="champion",
        min_length=1,
        description="alias of the registered model that a new version takes over if its run.best_metric on "
        "the validation split is better than that of the version which has the alias",
    )
