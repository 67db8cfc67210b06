"""The pipeline flow: prepare a folder of images, then train on the published version."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.exceptions import CancelledRun
from prefect.states import Completed

from beam_jobs.config import PrepareConfig
from flows import prepare as preparing
from flows import train as training_flow
from flows.flow_runs.run_states import cancelled_state
from flows.parameters import DatasetName, Source, root_or_default, runs_or_default
from infra.errors import Cancelled
from training.config import TrainConfig
from training.train import has_finished


@flow(name="pipeline", flow_run_name="pipeline-{dataset}")
def pipeline(
    source: Source,
    dataset: DatasetName,
    root: str | None = None,
    runs: str | None = None,
    prepare_config: PrepareConfig = preparing.DEFAULTS,
    train_config: TrainConfig = training_flow.DEFAULTS,
    only_when_changed: bool = False,
) -> State[Any]:
    """Prepare a folder of images as a dataset, then train a model on the version that came out.

    Args:
        source: Folder of images, one folder a class: an absolute path on the worker's machine, or a URI.
        dataset: Name of the dataset.
        root: Folder of the datasets; empty for the worker's default.
        runs: Folder of the training runs; empty for the worker's default.
        prepare_config: How images are stored, filtered, split and packed into shards.
        train_config: The model, its data, augmentation, optimizer and run.
        only_when_changed: Do not train again when this version was trained on with this configuration before.
    """
    try:
        prepared: Any = preparing.prepare(source, dataset, root, prepare_config)
        ref = f"{dataset}@{prepared['version']}"
        if only_when_changed and has_finished(
            ref, train_config, root=root_or_default(root), runs=runs_or_default(runs)
        ):
            message = f"Nothing changed: {ref} is up to date and was trained on before"
            return Completed(message=message, data={"prepare": prepared, "train": None})
        trained: Any = training_flow.train(ref, root, runs, train_config)
    except (Cancelled, CancelledRun) as stop:
        return cancelled_state(stop)
    return Completed(message=f"Trained on {ref}", data={"prepare": prepared, "train": trained})
