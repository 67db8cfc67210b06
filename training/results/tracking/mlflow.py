"""Tell MLflow about a run, through the client of mlflow-skinny."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shardmill.infra import progress as events
from shardmill.infra.html.page import setting_rows
from shardmill.training.metrics.figures import is_smaller_better
from shardmill.training.results.tracking.tracked import TrackedRun, Tracker, read_identity

# MLflow's own defaults let an unreachable server hold up a training for minutes.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param
from mlflow.exceptions import MlflowException

_LONGEST = 500  # characters of a parameter that every store takes
_DIGEST = 36  # characters that MLflow keeps of the digest of a dataset
_TOGETHER = 100  # parameters that MLflow takes in one request
_SYSTEM = "mlflow"


class MLflowTracker(Tracker):
    """One run in MLflow. Implements ``Tracker``. The server is that of ``MLFLOW_TRACKING_URI``."""

    name = "MLflow"

    def __init__(self, run: TrackedRun) -> None:
        self._run = run
        self._client = MlflowClient()
        known = run.identity(_SYSTEM)
        if known is not None and known["uri"] == self._client.tracking_uri:
            self._id = known["run_id"]
            self._client.update_run(self._id, status="RUNNING")
        else:
            self._id = self._begun()
            run.remember(_SYSTEM, {"uri": self._client.tracking_uri, "run_id": self._id})

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Log the figures of an epoch; their step is the epoch."""
        figures = {name: value for name, value in row.items() if isinstance(value, float)}
        self._log(figures, int(row["epoch"]))

    def end(self, result: Mapping[str, Any]) -> None:
        """Log the figures of the best model, and where its files are; register it if that is configured."""
        figures = {
            f"{split}_{name}": value
            for split, of_split in result["metrics"].items()
            for name, value in of_split.items()
            if isinstance(value, float)
        }
        self._log({f"best_{name}": value for name, value in figures.items()}, int(result["epochs"]))
        for name in ("run_dir", "export_dir", "report", "tensorboard_dir"):
            self._client.set_tag(self._id, f"shardmill.{name}", str(result[name]))
        if self._run.settings.registered_model is not None:
            self._register(self._run.settings.registered_model, result)

    def close(self, *, is_finished: bool) -> None:
        """End the run in MLflow; a resumed run begins it again."""
        self._client.set_terminated(self._id, "FINISHED" if is_finished else "KILLED")

    def _begun(self) -> str:
        """Make a run with its parameters and its dataset; return its id."""
        name = self._run.settings.experiment
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        tags = {"shardmill.manifest_sha256": self._run.manifest_sha256}
        made = self._client.create_run(number, run_name=self._run.name, tags=tags)
        found = str(made.info.run_id)
        parameters = list(self._parameters())
        for start in range(0, len(parameters), _TOGETHER):
            self._client.log_batch(found, params=parameters[start : start + _TOGETHER])
        about = self._run.environment["dataset"]
        digest = self._run.manifest_sha256[:_DIGEST]
        dataset = Dataset(self._run.dataset, digest, "shardmill", str(about["source"]))
        context = [InputTag("mlflow.data.context", "training")]
        self._client.log_inputs(found, datasets=[DatasetInput(dataset, context)])
        return found

    def _parameters(self) -> Iterator[Param]:
        yield Param("dataset", self._run.dataset)
        for key, value in setting_rows(self._run.environment["config"]):
            yield Param(key, value[:_LONGEST])

    def _log(self, figures: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in figures.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def _register(self, name: str, result: Mapping[str, Any]) -> None:
        """Upload the SavedModel as a version of a registered model, and give it the alias if it is better."""
        self._client.log_artifacts(self._id, result["export_dir"], "export")
        try:
            self._client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        metric, figures = self._run.best_metric, result["metrics"].get("validation")
        tags = {"dataset": self._run.dataset, "metric": metric}
        if figures is not None:
            tags["value"] = repr(figures[metric])
        source = f"{self._client.get_run(self._id).info.artifact_uri}/export"
        made = self._client.create_model_version(name, source, run_id=self._id, tags=tags)
        alias = self._run.settings.alias
        refusal = _refusal(tags, self._holder(name, alias))
        if refusal is None:
            self._client.set_registered_model_alias(name, alias, made.version)
            events.log(f"MLflow: {name} version {made.version} has the alias {alias}")
        else:
            events.log(f"MLflow: {name} version {made.version} does not get the alias {alias}: {refusal}")

    def _holder(self, name: str, alias: str) -> Mapping[str, str] | None:
        """Return the tags of the version that has the alias; None: no version has it."""
        model = self._client.get_registered_model(name)
        if alias not in model.aliases:
            return None
        tags: Mapping[str, str] = self._client.get_model_version_by_alias(name, alias).tags
        return tags


def _refusal(new: Mapping[str, str], holder: Mapping[str, str] | None) -> str | None:
    """Return why a version does not take over the alias; None: it does."""
    if "value" not in new:
        return "there is no validation split"
    if not math.isfinite(float(new["value"])):
        return f"{new['metric']} is {new['value']}"
    if holder is None:
        return None
    if any(holder.get(name) != new[name] for name in ("dataset", "metric")) or "value" not in holder:
        return "the version that has it was measured otherwise, so set it by hand"
    before, now = float(holder["value"]), float(new["value"])
    if not math.isfinite(before):
        return None
    is_better = now < before if is_smaller_better(new["metric"]) else now > before
    return (
        None if is_better else f"{new['metric']} is {now:.4f}, that of the version which has it {before:.4f}"
    )


def give_alias(run_dir: Path, alias: str) -> str | None:
    """Give an alias to the model version that a run registered.

    Returns:
        The version, for people; None: the run registered none on the server of ``MLFLOW_TRACKING_URI``.
    """
    client = MlflowClient()
    known = read_identity(run_dir, _SYSTEM)
    if known is None or known["uri"] != client.tracking_uri:
        return None
    versions = client.search_model_versions(f"run_id='{known['run_id']}'")
    if not versions:
        return None
    newest = max(versions, key=lambda version: int(version.version))
    client.set_registered_model_alias(newest.name, alias, newest.version)
    return f"{newest.name} version {newest.version}"
