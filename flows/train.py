"""The train flow: a version of a dataset becomes a trained, evaluated and exported model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import CancelledRun

from shardmill.flows import promote as promotion_flow
from shardmill.flows.flow_runs import children
from shardmill.flows.flow_runs.jobs import train_command
from shardmill.flows.flow_runs.run_states import (
    cancelled_state,
    completed_state,
    failures_shown,
    job_task,
    shardmill_run,
)
from shardmill.flows.flow_runs.showing.headline import sentence
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.flows.flow_runs.showing.trained import show_trained
from shardmill.flows.parameters import (
    AliasWord,
    DatasetRef,
    OptionalFolder,
    Unset,
    root_or_default,
    runs_or_default,
)
from shardmill.flows.scheduling.attempts import attempted
from shardmill.flows.train_when import TrainWhen, due
from shardmill.infra.dataset.views.references import parse_joined
from shardmill.infra.errors import Cancelled, ConfigError
from shardmill.training.aliases import PRODUCTION
from shardmill.training.config import TrainConfig
from shardmill.training.promotion.rules import PromotionRules
from shardmill.training.ranks.launchers import is_rendering


@flow(name="train", flow_run_name="train-{dataset}")
@shardmill_run
@attempted
def train(  # noqa: PLR0913  the fields of the form
    dataset: DatasetRef,
    root: OptionalFolder = None,
    runs: OptionalFolder = None,
    config: TrainConfig | Unset = None,
    when: TrainWhen | Unset = None,
    promote: bool = False,
    alias: AliasWord = PRODUCTION,
    promotion: PromotionRules = promotion_flow.RULES,
    code: OptionalFolder = None,
) -> State[Any]:
    """Train a model on a published version, evaluate it on the other splits, and export it.

    A run that was cancelled or died continues from its last checkpoint when it is run again.

    Args:
        dataset: What to train on: NAME, NAME@VERSION or NAME@latest.
        root: Folder of the datasets; empty for the worker's default.
        runs: Folder of the training runs; empty for the worker's default.
        config: The model, its data, augmentation, optimizer and run; empty for the defaults.
        when: Train only if a condition holds; empty to train in any case.
        promote: Then compare the model with the one that has the alias, and move the alias if it is better.
        alias: The alias that the model may take over.
        promotion: When it takes over the alias.
        code: Folder of your own modules; empty for the folder in which the worker was started.
    """
    promoting = Promoting(alias, promotion) if promote else None
    return run_training(dataset, config or TrainConfig(), root, runs, when, promoting)


@dataclass(frozen=True, slots=True)
class Promoting:
    """An alias that a trained model may take over, and the rules for it."""

    alias: str
    rules: PromotionRules

    def decide(self, run: str, root: str | None, runs: str | None) -> None:
        """Compare a run with the one that has the alias, in a run of the promote flow."""
        promotion_flow.promote(run, self.alias, None, self.rules, root, runs)

    def decide_if_undecided(self, run: str, root: str | None, runs: str | None) -> None:
        """Decide about a run that has no decision yet, because the flow run that trained it died."""
        from shardmill.training.promotion.deciding import is_decided  # with the libraries of images

        if not is_decided(run, self.alias, runs_or_default(runs)):
            self.decide(run, root, runs)


def run_training(
    dataset: str,
    settings: TrainConfig,
    root: str | None,
    runs: str | None,
    when: TrainWhen | None,
    promoting: Promoting | None,
) -> State[Any]:
    """Train if a condition holds, show the model and decide about its alias; return the state of the run."""
    if is_rendering(settings.ranks.launcher):
        raise ConfigError(
            f"ranks.launcher = {settings.ranks.launcher!r} only writes the files of a job; this flow trains",
            "use the command: shardmill train NAME --launcher ..., and hand the job over as it says",
        )
    folder, runs_folder = root_or_default(root), runs_or_default(runs)
    try:
        checked = None if when is None else due(dataset, settings, when, folder, runs_folder)
        if checked is not None and not checked.is_due:
            if promoting is not None and checked.run is not None:
                promoting.decide_if_undecided(checked.run, root, runs)
            data = {"not_due": checked.reason}
            return completed_state(f"Not trained: {checked.reason}", data, is_unchanged=True)
        again = ["train", dataset, "--root", folder, "--runs", runs_folder]
        with failures_shown("train", _keys_of(dataset, settings), again, {"": settings}):
            report = train_model(dataset, folder, runs_folder, settings)
        show_model(report.result, dataset, settings)
        if promoting is not None:
            promoting.decide(Path(report.result["run_dir"]).name, root, runs)
    except (Cancelled, CancelledRun) as stop:
        return cancelled_state(stop)
    is_unchanged = bool(report.result.get("unchanged"))
    return completed_state(sentence(report.result), report.result, is_unchanged=is_unchanged)


@job_task("train-model")
def train_model(dataset: str, root: str, runs: str, config: TrainConfig) -> children.JobReport:
    """Run the training in a process of its own and return its result."""
    command = train_command(dataset, root, runs, config)
    return children.run_child_job(command, job="train", keys=_keys_of(dataset, config), log=get_run_logger())


@task(name="show-model", cache_policy=NO_CACHE)
def show_model(result: dict[str, Any], dataset: str, config: TrainConfig) -> None:
    """Show the figures, the confusion matrix and the hardest examples on the page of the run."""
    show_trained(RunPage.of_this_run(), _keys_of(dataset, config), result)


def _keys_of(dataset: str, config: TrainConfig) -> Keys:
    """Return the keys of the artifacts of a training."""
    return Keys.of(parse_joined(dataset).name, config)
