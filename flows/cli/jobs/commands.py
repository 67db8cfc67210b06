"""prepare, import, train and run: each command runs a flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli import options
from flows.cli.jobs.settings import (
    checked_source,
    prepare_settings,
    settings_by_section,
    train_settings,
    with_options,
)
from infra.dataset.views.references import reference_of

if TYPE_CHECKING:
    from beam_jobs.config import PrepareConfig
    from training.config import TrainConfig

DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Print the expected classes, splits, shards, disk space and time; write nothing"
    ),
]


def prepare(
    source: options.SourceFolder,
    dataset: options.Dataset,
    root: options.Root = None,
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    failure_budget: options.FailureBudget = None,
    source_kind: options.SourceKind = None,
    label_edits: options.LabelEdits = None,
    runner: options.Runner = None,
    flink_master: options.FlinkMaster = None,
    dry_run: DryRun = False,
    now: options.Now = False,
    json_output: options.Json = False,
) -> None:
    """Turn a folder of images into a published version of a dataset.

    [bold]Examples[/bold]

      shardmill prepare photos --dataset photos

      shardmill prepare photos --dataset photos --set image.size=128 --set shards.container=none

      shardmill prepare photos --dataset photos --dry-run

      shardmill prepare "shards/train-*.tar" --dataset photos --source-kind auto

      shardmill prepare s3://bucket/photos --dataset photos --flink-master flink.example.org:8081
    """
    _take_turns(now)
    from flows.parameters import root_or_default

    changes = with_options(overrides or [], source_kind, runner, flink_master, label_edits)
    settings = prepare_settings(config, changes, failure_budget, recipe)
    source, folder = checked_source(source, dataset, settings.source.kind), root_or_default(root)
    if dry_run:
        _dry_run(source, dataset, folder, settings, json_output)
        return
    _run_prepare(source, dataset, folder, settings, json_output)


def import_(
    source: options.ImportedFolder,
    dataset: options.Dataset,
    root: options.Root = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    failure_budget: options.FailureBudget = None,
    source_kind: options.ImportedKind = None,
    runner: options.Runner = None,
    flink_master: options.FlinkMaster = None,
    dry_run: DryRun = False,
    now: options.Now = False,
    json_output: options.Json = False,
) -> None:
    """Take over a data set of TensorFlow Datasets or WebDataset; images are copied, not encoded again.

    The same command later makes the next version of what is new in the folder.

    [bold]Examples[/bold]

      shardmill import ~/tensorflow_datasets/beans/0.1.0 --dataset beans

      shardmill import shards --dataset photos --dry-run

      shardmill import "shards/train-*.tar" --dataset photos
    """
    _take_turns(now)
    from flows.cli.jobs.importing import recognised_import
    from flows.parameters import root_or_default

    folder = root_or_default(root)
    changes = with_options(overrides or [], source_kind, runner, flink_master)
    request = recognised_import(source, dataset, folder, config, changes, failure_budget)
    if dry_run:
        _dry_run(request.source, dataset, folder, request.config, json_output)
        return
    _run_prepare(request.source, dataset, folder, request.config, json_output)


def train(
    dataset: options.ViewRef,
    devices: options.Devices = None,
    workers: options.Workers = None,
    launcher: options.Launcher = None,
    framework: options.Framework = None,
    root: options.Root = None,
    runs: options.Runs = None,
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    now: options.Now = False,
    json_output: options.Json = False,
) -> None:
    """Train a model on a version of a dataset, evaluate it and export it.

    [bold]Examples[/bold]

      shardmill train photos

      shardmill train photos --recipe finetune

      shardmill train photos@3 --set run.epochs=20 --set model.name=EfficientNetB0

      shardmill train photos --workers 4      (a process a GPU; a rank that dies costs a restart)

      shardmill train photos --framework torch --set model.name=resnet50
    """
    _take_turns(now)
    from flows.parameters import root_or_default, runs_or_default
    from infra.dataset.catalog import Catalog
    from training.config import with_devices
    from training.ranks.launchers.registry import is_rendering

    changes = [*(overrides or []), *([] if framework is None else [f"run.framework={framework}"])]
    settings = with_devices(train_settings(config, changes, recipe), devices, workers, launcher)
    folder = root_or_default(root)
    # The newest version now, not when the run starts.
    ref = Catalog(folder).open_view(dataset).ref
    if is_rendering(settings.ranks.launcher):
        _write_job(ref, folder, runs_or_default(runs), settings, json_output)
        return
    from flows.cli.jobs.calls import train_call
    from flows.cli.jobs.flow_runs import run_flow

    result = run_flow(train_call(ref, folder, runs_or_default(runs), settings))
    _show(result, json_output, _print_trained)


def run(
    source: options.SourceFolder,
    dataset: options.Dataset,
    root: options.Root = None,
    runs: options.Runs = None,
    recipe: options.Recipe = None,
    config: options.Config = None,
    overrides: options.Overrides = None,
    failure_budget: options.FailureBudget = None,
    source_kind: options.SourceKind = None,
    label_edits: options.LabelEdits = None,
    runner: options.Runner = None,
    flink_master: options.FlinkMaster = None,
    now: options.Now = False,
    json_output: options.Json = False,
) -> None:
    """Prepare a folder of images, then train on the published version.

    [bold]Examples[/bold]

      shardmill run photos --dataset photos

      shardmill run photos --dataset photos --set prepare.image.size=128 --set train.run.epochs=5
    """
    _take_turns(now)
    from flows.parameters import root_or_default, runs_or_default

    by_section = settings_by_section(overrides or [])
    changes = with_options(by_section["prepare"], source_kind, runner, flink_master, label_edits)
    for_prepare = prepare_settings(config, changes, failure_budget, recipe)
    for_train = train_settings(config, by_section["train"], recipe)
    source = checked_source(source, dataset, for_prepare.source.kind)
    from flows.cli.jobs.calls import pipeline_call
    from flows.cli.jobs.flow_runs import run_flow

    folders = (root_or_default(root), runs_or_default(runs))
    result = run_flow(pipeline_call(source, dataset, *folders, for_prepare, for_train))
    _show(result, json_output, _print_run)


def _take_turns(now: bool) -> None:
    from flows import home

    if not now:
        home.take_turns()


def _run_prepare(source: str, dataset: str, root: str, settings: PrepareConfig, json_output: bool) -> None:
    from flows.cli.jobs.calls import prepare_call
    from flows.cli.jobs.flow_runs import run_flow

    _show(run_flow(prepare_call(source, dataset, root, settings)), json_output, _print_prepared)


def _write_job(ref: str, root: str, runs: str, settings: TrainConfig, json_output: bool) -> None:
    """Write the files of a job without a flow: nothing is trained yet."""
    from flows.cli.jobs.job_process import result_of
    from flows.flow_runs.jobs.job_commands import train_command

    _show(result_of(train_command(ref, root, runs, settings)), json_output, _print_trained)


def _dry_run(source: str, dataset: str, root: str, settings: PrepareConfig, json_output: bool) -> None:
    """Run the job without a flow: nothing happens that belongs into a history."""
    from flows.cli import output
    from flows.cli.jobs.job_process import result_of
    from flows.flow_runs.jobs.job_commands import prepare_command

    command = [*prepare_command(source, dataset, root, settings), "--dry-run"]
    result = result_of(command, on_line=output.note if json_output else output.say)
    if json_output:
        output.print_json(result)


def _show(result: dict[str, Any], json_output: bool, for_people: Callable[[dict[str, Any]], None]) -> None:
    from flows.cli import output

    if json_output:
        output.print_json(result)
    else:
        for_people(result)


def _print_prepared(result: dict[str, Any]) -> None:
    from beam_jobs.summaries import version_lines
    from flows.cli import output

    ref = reference_of(result)
    output.say(*version_lines(result), f"Look at: shardmill show {ref}")
    if result["label_kind"] != "none":
        output.say(f"Train:   shardmill train {ref}")


def _print_trained(result: dict[str, Any]) -> None:
    from flows.cli import output
    from training.runs.summary import summary

    output.say(*summary(result).split("\n"))


def _print_run(result: dict[str, Any]) -> None:
    _print_prepared(result["prepare"])
    _print_trained(result["train"])
