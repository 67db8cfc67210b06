"""The pipeline flow: prepare a folder of images, then train on what was published."""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow
from prefect.exceptions import CancelledRun
from prefect.states import Completed, State
from pydantic import Field
from training.config import TrainConfig

from beam_jobs.config import PrepareConfig
from flows import prepare as preparing
from flows import train as training_flow
from flows.parameters import DatasetName, Root, Runs, Source
from flows.stopping import cancelled_state
from infra.errors import Cancelled

OnlyWhenChanged = Annotated[
    bool, Field(description="Do not train when the source has not changed since the last run")
]


@flow(name="pipeline", flow_run_name="pipeline-{dataset}")
def pipeline(
    source: Source,
    dataset: DatasetName,
    root: Root = None,
    runs: Runs = None,
    prepare_config: PrepareConfig = preparing.DEFAULTS,
    train_config: TrainConfig = training_flow.DEFAULTS,
    only_when_changed: OnlyWhenChanged = False,
) -> State[Any]:
    """Prepare a folder of images as a dataset, then train a model on the version that came out."""
    try:
        prepared: Any = preparing.prepare(source, dataset, root, prepare_config)
        ref = f"{dataset}@{prepared['version']}"
        if prepared.get("unchanged") and only_when_changed:
            message = f"Nothing changed: {ref} is up to date, and nothing was trained"
            return Completed(message=message, data={"prepare": prepared, "train": None})
        trained: Any = training_flow.train(ref, root, runs, train_config)
    except (Cancelled, CancelledRun):
        return cancelled_state()
    return Completed(message=f"Trained on {ref}", data={"prepare": prepared, "train": trained})
