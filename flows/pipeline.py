"""The pipeline flow: prepare a folder of images, then train on the published version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.exceptions import CancelledRun

from shardmill.beam_jobs.config import PrepareConfig
from shardmill.flows import prepare as preparing
from shardmill.flows import promote as promotion_flow
from shardmill.flows import train as training_flow
from shardmill.flows.flow_runs.run_states import (
    cancelled_state,
    completed_state,
    failures_shown,
    shardmill_run,
)
from shardmill.flows.flow_runs.showing import markdown, prepared, trained
from shardmill.flows.flow_runs.showing.headline import headline
from shardmill.flows.flow_runs.showing.markdown import escaped, link
from shardmill.flows.flow_runs.showing.page import Keys, RunPage
from shardmill.flows.parameters import (
    AliasWord,
    DatasetName,
    OptionalFolder,
    Source,
    Unset,
    root_or_default,
    runs_or_default,
)
from shardmill.flows.scheduling.attempts import attempted
from shardmill.flows.train_when import TrainWhen
from shardmill.infra.errors import Cancelled
from shardmill.training.aliases import PRODUCTION
from shardmill.training.config import TrainConfig
from shardmill.training.promotion.rules import PromotionRules


@flow(name="pipeline", flow_run_name="pipeline-{dataset}")
@shardmill_run
@attempted
def pipeline(  # noqa: PLR0913  the fields of the form
    source: Source,
    dataset: DatasetName,
    root: OptionalFolder = None,
    runs: OptionalFolder = None,
    prepare_config: PrepareConfig | Unset = None,
    train_config: TrainConfig | Unset = None,
    only_when_changed: bool = False,
    train_when: TrainWhen | Unset = None,
    promote: bool = False,
    alias: AliasWord = PRODUCTION,
    promotion: PromotionRules = promotion_flow.RULES,
    code: OptionalFolder = None,
) -> State[Any]:
    """Prepare a folder of images as a dataset, then train a model on the version that came out.

    Args:
        source: Folder of images, one folder a class: an absolute path on the worker's machine, or a URI.
        dataset: Name of the dataset.
        root: Folder of the datasets; empty for the worker's default.
        runs: Folder of the training runs; empty for the worker's default.
        prepare_config: How images are stored, filtered, split and packed into shards; empty for the defaults.
        train_config: The model, its data, augmentation, optimizer and run; empty for the defaults.
        only_when_changed: Do not train again when this version was trained on with this configuration before.
        train_when: Train only if a condition holds; empty to train in any case.
        promote: Then compare the model with the one that has the alias, and move the alias if it is better.
        alias: The alias that the model may take over.
        promotion: When it takes over the alias.
        code: Folder of your own modules; empty for the folder in which the worker was started.
    """
    when = train_when or (TrainWhen() if only_when_changed else None)
    for_prepare, for_train = prepare_config or PrepareConfig(), train_config or TrainConfig()
    page, keys = RunPage.of_this_run(), Keys.of(dataset, for_prepare, for_train)
    again = ["run", source, "--dataset", dataset, "--root", root_or_default(root)]
    again += ["--runs", runs_or_default(runs)]
    settings = {"prepare": for_prepare, "train": for_train}
    try:
        with failures_shown("prepare", keys, again, settings):
            prepared: Any = preparing.prepare(source, dataset, root, for_prepare)
        show_pipeline(page, keys, prepared, None)
        ref = f"{dataset}@{prepared['version']}"
        with failures_shown("train", keys, again, settings):
            trained: Any = training_flow.train(ref, root, runs, for_train, when, promote, alias, promotion)
    except (Cancelled, CancelledRun) as stop:
        return cancelled_state(stop)
    if "not_due" in trained:
        message = f"Nothing trained: {trained['not_due']}"
        data = {"prepare": prepared, "train": None}
        return completed_state(message, data, is_unchanged=bool(prepared.get("unchanged")))
    show_pipeline(page, keys, prepared, trained)
    message = f"Trained on {ref}: {headline(trained)}"
    is_unchanged = bool(prepared.get("unchanged") and trained.get("unchanged"))
    return completed_state(message, {"prepare": prepared, "train": trained}, is_unchanged=is_unchanged)


Result = Mapping[str, Any]


def show_pipeline(page: RunPage, keys: Keys, of_prepare: Result, of_train: Result | None) -> None:
    """Show the results that a pipeline has so far.

    Args:
        page: the page of the pipeline's run, which gets the artifact.
        keys: keys of the artifacts of the run.
        of_prepare: the result of the prepare job.
        of_train: the result of the training; None if it goes on, or if there is none.
    """
    lines = [headline(of_prepare), *([] if of_train is None else [headline(of_train)])]
    parts = []
    runs = zip(("prepare", "train"), page.sub_runs(), strict=False)
    parts.append("Runs: " + ", ".join(link(job, markdown.flow_run(run_id)) for job, run_id in runs))
    if of_train is not None:
        parts += trained.summary(of_train)
        parts += [matrix for split, matrix in trained.confusion_pictures(of_train) if split == "test"]
    parts += [*prepared.summary(of_prepare, ()), prepared.balance_picture(of_prepare)]
    page.markdown(keys.key("pipeline"), "\n\n".join(parts), f"**{escaped('; '.join(lines))}**")
