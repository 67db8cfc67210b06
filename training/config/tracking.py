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
        description="Registered model of MLflow that gets each SavedModel as a new version",
    )
    alias: str = Field(
        default="champion",
        min_length=1,
        description=("Its alias, which moves to a version with a better run.best_metric on validation"),
    )
