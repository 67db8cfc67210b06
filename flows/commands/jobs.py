"""prepare, train and run: the commands that do the work, each a Prefect flow run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands import options
from infra.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from beam_jobs.config import PrepareConfig
    from training.config import TrainConfig

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say classes, splits, shards, disk and time, and do nothing")
]


def prepare(
    source: options.SourceFolder,
    dataset: options.Dataset,
    root: options.Root = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    failure_budget: options.FailureBudget = None,
    dry_run: DryRun = False,
    json_output: options.Json = False,
) -> None:
    """Turn a folder of images into a published version of a dataset.

    [bold]Examples[/bold]

      shardmill prepare photos --dataset photos

      shardmill prepare photos --dataset photos --set image.size=128 --set shards.container=none

      shardmill prepare photos --dataset photos --dry-run
    """
    settings = prepare_settings(config, overrides or [], failure_budget)
    source, folder = checked_source(source, dataset), _root(root)
    if dry_run:
        _dry_run(source, dataset, folder, settings, json_output)
        return
    from flows.commands.flow_runs import run_flow

    result = run_flow(_load_prepare, source=source, dataset=dataset, root=folder, config=settings)
    _show(result, json_output, _print_prepared)


def train(
    dataset: options.Ref,
    root: options.Root = None,
    runs: options.Runs = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    json_output: options.Json = False,
) -> None:
    """Train a model on a version of a dataset, evaluate it and export it.

    [bold]Examples[/bold]

      shardmill train photos

      shardmill train photos@3 --set run.epochs=20 --set model.name=EfficientNetB0
    """
    settings = train_settings(config, overrides or [])
    from flows.parameters import runs_or_default
    from infra.catalog import Catalog

    folder = _root(root)
    # Which version is meant is settled now, not when the run gets to it.
    ref = Catalog(folder).open(dataset).ref
    from flows.commands.flow_runs import run_flow

    result = run_flow(_load_train, dataset=ref, root=folder, runs=runs_or_default(runs), config=settings)
    _show(result, json_output, _print_trained)


def run(
    source: options.SourceFolder,
    dataset: options.Dataset,
    root: options.Root = None,
    runs: options.Runs = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    failure_budget: options.FailureBudget = None,
    json_output: options.Json = False,
) -> None:
    """Prepare a folder of images, then train on what was published.

    [bold]Examples[/bold]

      shardmill run photos --dataset photos

      shardmill run photos --dataset photos --set prepare.image.size=128 --set train.run.epochs=5
    """
    from flows.parameters import runs_or_default
    from infra.settings import split_overrides

    by_section = split_overrides(overrides or [])
    for_prepare = prepare_settings(config, by_section["prepare"], failure_budget)
    for_train = train_settings(config, by_section["train"])
    source = checked_source(source, dataset)
    from flows.commands.flow_runs import run_flow

    result = run_flow(
        _load_pipeline,
        source=source,
        dataset=dataset,
        root=_root(root),
        runs=runs_or_default(runs),
        prepare_config=for_prepare,
        train_config=for_train,
    )
    _show(result, json_output, _print_run)


def _load_prepare() -> Any:
    from flows.prepare import prepare as flow

    return flow


def _load_train() -> Any:
    from flows.train import train as flow

    return flow


def _load_pipeline() -> Any:
    from flows.pipeline import pipeline as flow

    return flow


def prepare_settings(
    config: Path | None, overrides: list[str], failure_budget: float | None = None
) -> PrepareConfig:
    from beam_jobs.config import PrepareConfig
    from infra.settings import load_settings

    given = {} if failure_budget is None else {"failure_budget": failure_budget}
    return load_settings(PrepareConfig, section="prepare", config=config, overrides=overrides, given=given)


def train_settings(config: Path | None, overrides: list[str]) -> TrainConfig:
    from infra.settings import load_settings
    from training.config import TrainConfig

    return load_settings(TrainConfig, section="train", config=config, overrides=overrides)


def checked_source(source: str, dataset: str) -> str:
    """The source as an absolute path or URI. What is wrong at a glance is said before Prefect starts."""
    from flows.parameters import absolute
    from infra.contract import check_dataset_name

    check_dataset_name(dataset)
    if not source.strip():
        raise UsageError("which folder? SOURCE is empty", "give a folder of images, or . for this one")
    place = absolute(source)
    if "://" not in place and not Path(place).is_dir():
        what = "is a file, not a folder" if Path(place).exists() else "does not exist"
        raise NotFoundError(f"source {source} {what}", "give a folder of images, with one folder a class")
    return place


def _root(root: str | None) -> str:
    from flows.parameters import root_or_default

    return root_or_default(root)


def _dry_run(source: str, dataset: str, root: str, settings: PrepareConfig, json_output: bool) -> None:
    """No flow run: nothing is done that a history should hold."""
    from flows.children import PREPARE
    from flows.commands import output
    from flows.commands.child import result_of

    command = [*PREPARE, source, "--dataset", dataset, "--root", root, "--dry-run"]
    command += ["--config-json", settings.model_dump_json()]
    result = result_of(command, on_line=output.note if json_output else output.say)
    if json_output:
        output.print_json(result)


def _show(result: dict[str, Any], json_output: bool, for_people: Any) -> None:
    from flows.commands import output

    if json_output:
        output.print_json(result)
    else:
        for_people(result)


def _print_prepared(result: dict[str, Any]) -> None:
    from flows.commands import views

    views.prepared(result)


def _print_trained(result: dict[str, Any]) -> None:
    from flows.commands import views

    views.trained(result)


def _print_run(result: dict[str, Any]) -> None:
    _print_prepared(result["prepare"])
    _print_trained(result["train"])
